"""A dataset with every kind of feature and an untrained model of it, for what is said of exports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from models.build import build_model
from models.checkpoint import save_checkpoint
from models.config import ModelSpec, OptimizersSpec
from preprocessing.analysis import analyse
from preprocessing.dataset import TRANSFORM_FOLDER, Dataset, Shard
from preprocessing.spec import FeatureSpec
from preprocessing.transform import plan_transform, save_transform
from serving.export_spec import ExportOptions, RankOptions

ITEM_COLUMNS = frozenset({"item", "category", "tags", "price", "views"})
FEATURES: tuple[FeatureSpec, ...] = tuple(
    TypeAdapter(FeatureSpec).validate_python(feature)
    for feature in (
        {"kind": "categorical", "name": "user"},
        {"kind": "categorical", "name": "item"},
        {"kind": "numeric", "name": "age"},
        {"kind": "hashed", "name": "category", "buckets": 7},
        {"kind": "multivalued", "name": "tags", "max_length": 3},
        {"kind": "multivalued", "name": "past", "table": "item", "max_length": 4, "pooling": "sqrtn"},
        {"kind": "bucketed_list", "name": "ages", "boundaries": [10, 100], "max_length": 4},
        {"kind": "numeric", "name": "price", "log1p": True},
        {"kind": "numeric", "name": "views", "buckets": 3},
        {"kind": "numeric", "name": "views_plain", "column": "views", "indicator": False},
        {"kind": "crossed", "name": "user_category", "columns": ["user", "category"], "buckets": 50},
        {"kind": "hour_of_day", "name": "hour", "column": "seen_ms"},
    )
)


def some_rows(count: int, *, seed: int = 5) -> pa.Table:
    """Returns rows in which every tenth value or so is missing."""
    random = np.random.default_rng(seed)

    def holes(values: Sequence[object]) -> list[object]:
        return [None if random.random() < 0.1 else value for value in values]

    def lists(prefix: str, longest: int) -> list[object]:
        return holes(
            [[f"{prefix}{random.integers(9)}" for _ in range(random.integers(0, longest))] for _ in range(count)]
        )

    return pa.table(
        {
            "user": pa.array(holes([f"u{random.integers(20)}" for _ in range(count)])),
            "item": pa.array(holes([f"i{random.integers(30)}" for _ in range(count)])),
            "age": pa.array(holes(list(random.integers(18, 80, count).tolist())), pa.int64()),
            "category": pa.array(holes([f"c{random.integers(5)}" for _ in range(count)])),
            "tags": pa.array(lists("t", 5), pa.list_(pa.string())),
            "past": pa.array(lists("i", 6), pa.list_(pa.string())),
            "ages": pa.array(
                [random.integers(0, 200, random.integers(0, 5)).tolist() for _ in range(count)], pa.list_(pa.int64())
            ),
            "price": pa.array(holes(random.lognormal(size=count).tolist()), pa.float64()),
            "views": pa.array(holes(random.integers(0, 50, count).tolist()), pa.int64()),
            "seen_ms": pa.array((1_767_225_600_000 + random.integers(0, 86_400_000, count)).tolist(), pa.int64()),
        }
    )


def write_dataset(
    folder: Path, rows: pa.Table, *, features: tuple[FeatureSpec, ...] = FEATURES, labels: Sequence[str] = ("click",)
) -> Dataset:
    """Returns a dataset whose transform is learned from `rows`, which are its valid split too; it has no records."""
    types = {name: rows.schema.field(name).type for name in rows.column_names}
    planned = plan_transform(features, analyse(rows, features), time_zone="UTC", labels=labels, raw_types=types)
    save_transform(planned, folder / TRANSFORM_FOLDER)
    pq.write_table(rows, folder / "valid.parquet")
    shard = Shard(period="all", records="valid.tfrecord", rows="valid.parquet", num_rows=rows.num_rows)
    return Dataset(folder=folder, schema=planned.schema, splits={"valid": (shard,)})


def write_checkpoint(folder: Path, dataset: Dataset, spec: ModelSpec, *, scale: float = 0.3) -> Path:
    """Returns a checkpoint of an untrained model whose weights, biases too, are all other than 0; `scale` of rows."""
    model = build_model(dataset.schema, spec, optimizers=OptimizersSpec(), seed=3)
    random = np.random.default_rng(4)
    for variable in model.dense_variables.values():
        shift = random.uniform(0.01, 0.1, variable.shape) * random.choice([-1.0, 1.0], variable.shape)
        variable.assign(variable + shift.astype(np.float32))
    for table in model.tables.plan.tables:
        for group in model.tables.groups:
            values = random.normal(scale=scale, size=(table.num_rows, model.tables.width(group))).astype(np.float32)
            model.tables.write(table.name, group, array="weights", ids=range(table.num_rows), values=values)
    save_checkpoint(folder, model, progress={"step": 1})
    return folder


def ranked(
    *, features: tuple[FeatureSpec, ...] = FEATURES, item_columns: frozenset[str] = ITEM_COLUMNS, top_k: int = 5
) -> ExportOptions:
    """Returns options with the signature `rank`."""
    return ExportOptions(rank=RankOptions(features, item_columns, top_k))

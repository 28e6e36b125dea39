"""The dataset job: records that plain TensorFlow reads, equal to the transform of the raw rows, one by one."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from pydantic import TypeAdapter

from preprocessing.dataset import SCHEMA_FILE, TRANSFORM_FOLDER, Dataset, Shard
from preprocessing.dataset_job import RowFile, build_dataset
from preprocessing.errors import ArtefactError
from preprocessing.raw_values import raw_tensors
from preprocessing.runner import local_pipeline
from preprocessing.schema import DatasetSchema
from preprocessing.spec import FeatureSpec
from preprocessing.transform import load_transform

T0 = int(dt.datetime(2026, 1, 5, tzinfo=dt.UTC).timestamp() * 1000)
FEATURES: list[FeatureSpec] = TypeAdapter(list[FeatureSpec]).validate_python(
    [
        {"name": "user", "kind": "categorical", "min_count": 2, "oov_buckets": 3},
        {"name": "tags", "kind": "multivalued", "max_length": 2},
        {"name": "price", "kind": "numeric", "log1p": True},
        {"name": "price_bucket", "kind": "numeric", "column": "price", "buckets": 4},
        {"name": "both", "kind": "crossed", "columns": ["user", "slot"], "buckets": 50},
        {"name": "slot", "kind": "integer", "size": 3},
        {"name": "hour", "kind": "hour_of_day", "column": "at"},
    ]
)
TOKENS = [b"plain", b"", b"two\nlines", b"\xff\xfe", "ü☃".encode(), b"a\x00b"]
SHARDS = {"train": [40, 25], "valid": [10], "test": [7]}


def raw_rows(count: int, *, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)

    def maybe(values: list[Any]) -> list[Any]:
        return [None if rng.random() < 0.15 else value for value in values]

    tags = [[TOKENS[k] for k in rng.integers(0, len(TOKENS), rng.integers(0, 4))] for _ in range(count)]
    return pa.table(
        {
            "user": pa.array(maybe([TOKENS[k] for k in rng.integers(0, len(TOKENS), count)]), pa.binary()),
            "tags": pa.array(maybe(tags), pa.list_(pa.binary())),
            "price": pa.array(maybe([float(v) for v in rng.lognormal(size=count)]), pa.float64()),
            "slot": pa.array(maybe([int(v) for v in rng.integers(-1, 5, count)]), pa.int64()),
            "at": pa.array([T0 + int(v) for v in rng.integers(0, 86_400_000, count)], pa.int64()),
            "not_a_feature": pa.array([0] * count),
            "__label_click": pa.array(rng.integers(0, 2, count).astype(np.float32)),
            "__weight": pa.array(rng.random(count).astype(np.float32)),
        }
    )


def write_examples(folder: Path) -> dict[str, list[RowFile]]:
    files: dict[str, list[RowFile]] = {}
    for split, counts in SHARDS.items():
        (folder / "rows" / split).mkdir(parents=True)
        files[split] = [RowFile(f"day{i}", f"rows/{split}/day{i}.parquet", count) for i, count in enumerate(counts)]
        for i, file in enumerate(files[split]):
            pq.write_table(raw_rows(file.num_rows, seed=i + 10 * len(split)), folder / file.path)
    return files


def build(
    examples: Path,
    files: dict[str, list[RowFile]],
    folder: Path,
    *,
    workers: int = 1,
    keep: float = 1.0,
    **options: Any,
) -> dict[str, list[Shard]]:
    folder.mkdir()
    return build_dataset(
        examples,
        files,
        features=FEATURES,
        labels=["click"],
        time_zone="Europe/Berlin",
        folder=folder,
        final_folder=folder.parent / "final" / folder.name,
        pipeline=lambda: local_pipeline(workers=workers, **options),
        negative_keep=keep,
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Dataset]]:
    root = tmp_path_factory.mktemp("dataset")
    splits = build(root / "examples", write_examples(root / "examples"), root / "one")
    schema = DatasetSchema.model_validate_json((root / "one" / SCHEMA_FILE).read_bytes())
    yield root, Dataset(root / "one", schema, {name: tuple(shards) for name, shards in splits.items()})


Built = tuple[Path, Dataset]


def parse(path: Path, schema: DatasetSchema) -> dict[str, np.ndarray]:
    """Reads records as anybody would, by the keys that the schema's documentation names."""
    description = {
        "ids": tf.io.FixedLenFeature([len(schema.id_fields)], tf.int64),
        "dense": tf.io.FixedLenFeature([len(schema.dense)], tf.float32),
        "labels": tf.io.FixedLenFeature([len(schema.labels)], tf.float32),
        "weight": tf.io.FixedLenFeature([1], tf.float32),
        **{f"list/{f.name}": tf.io.FixedLenFeature([f.length], tf.int64) for f in schema.list_fields},
    }
    records = list(tf.data.TFRecordDataset(str(path)))
    parsed = tf.io.parse_example(tf.stack(records), description)
    return {name: value.numpy() for name, value in parsed.items()}


def test_records_equal_the_transform_of_the_raw_rows_one_by_one(built: Built) -> None:
    root, dataset = built
    transform = load_transform(dataset.folder / TRANSFORM_FOLDER)
    seen = 0
    for shards in dataset.splits.values():
        for shard in shards:
            rows = pq.read_table(os.path.normpath(root / "final" / "one" / shard.rows))
            records = parse(dataset.folder / shard.records, dataset.schema)
            inputs = {name: tf.constant(value) for name, value in raw_tensors(rows, dataset.schema.raw_columns).items()}
            expected = {name: value.numpy() for name, value in transform(inputs).items()}
            assert set(expected) == set(records) - {"labels", "weight"}
            for name, value in expected.items():
                np.testing.assert_array_equal(records[name], value, err_msg=name)
            np.testing.assert_array_equal(records["labels"][:, 0], rows["__label_click"].to_numpy())
            np.testing.assert_array_equal(records["weight"][:, 0], rows["__weight"].to_numpy())
            assert len(records["weight"]) == shard.num_rows == rows.num_rows
            seen += shard.num_rows
    assert seen == sum(sum(counts) for counts in SHARDS.values())


def test_paths_of_shards_are_told_from_where_the_dataset_will_stand(built: Built) -> None:
    _, dataset = built
    assert dataset.splits["train"] == (
        Shard(period="day0", records="train/day0-00000.tfrecord", rows="../../examples/rows/train/day0.parquet",
              num_rows=40),
        Shard(period="day1", records="train/day1-00000.tfrecord", rows="../../examples/rows/train/day1.parquet",
              num_rows=25),
    )  # fmt: skip
    found = {str(path.relative_to(dataset.folder)) for path in dataset.folder.rglob("*.tfrecord*")}
    assert found == {shard.records for shards in dataset.splits.values() for shard in shards}


def test_only_the_training_split_is_analysed(built: Built) -> None:
    root, dataset = built
    train = pa.concat_tables(pq.read_table(path) for path in sorted((root / "examples/rows/train").iterdir()))
    counts = {value["values"]: value["counts"] for value in train["user"].drop_null().value_counts().to_pylist()}
    vocabulary = pq.read_table(dataset.folder / "vocabularies" / "user.parquet")
    expected = sorted(((t, n) for t, n in counts.items() if n >= 2), key=lambda pair: (-pair[1], pair[0]))
    assert [(row["token"], row["count"]) for row in vocabulary.to_pylist()] == expected
    assert {table.name: table.num_rows for table in dataset.schema.tables}["user"] == 1 + 3 + len(expected)


def record_files(folder: Path) -> dict[str, bytes]:
    paths = [*folder.rglob("*.tfrecord"), *folder.rglob("*.parquet"), folder / SCHEMA_FILE, folder / "statistics.json"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_the_same_bytes_with_two_workers(built: Built) -> None:
    root, dataset = built
    examples = root / "examples"
    files = {split: [RowFile(s.period, f"rows/{split}/{Path(s.rows).name}", s.num_rows) for s in found]
             for split, found in dataset.splits.items()}  # fmt: skip
    build(examples, files, root / "two", workers=2)
    assert record_files(root / "two") == record_files(dataset.folder)


def test_a_file_of_rows_is_analysed_once(built: Built, tmp_path: Path) -> None:
    root, _ = built
    files = write_examples(tmp_path / "examples")
    states = tmp_path / "examples" / "states"
    shutil.copytree(root / "examples" / "states", states)
    before = {path.name: path.stat().st_mtime_ns for path in states.iterdir()}
    build(tmp_path / "examples", {**files, "train": files["train"][:1]}, tmp_path / "out")
    assert {path.name: path.stat().st_mtime_ns for path in states.iterdir()} == before
    assert len(before) == 2


def test_negatives_are_sampled_in_the_training_split_only(built: Built) -> None:
    root, dataset = built
    files = {split: [RowFile(s.period, f"rows/{split}/{Path(s.rows).name}", s.num_rows) for s in found]
             for split, found in dataset.splits.items()}  # fmt: skip
    shards = build(root / "examples", files, root / "sampled", keep=0.3)
    schema = DatasetSchema.model_validate_json((root / "sampled" / SCHEMA_FILE).read_bytes())
    assert schema.negative_keep == 0.3
    for before, after in zip(dataset.splits["train"], shards["train"], strict=True):
        whole = parse(dataset.folder / before.records, dataset.schema)["labels"]
        kept = parse(root / "sampled" / after.records, schema)["labels"]
        assert len(kept) == after.num_rows < len(whole)
        assert kept.sum() == whole.sum()
    for split in ("valid", "test"):
        for shard in shards[split]:
            assert (root / "sampled" / shard.records).read_bytes() == (dataset.folder / shard.records).read_bytes()


@pytest.mark.slow
def test_the_same_bytes_from_worker_processes(built: Built, tmp_path: Path) -> None:
    root, dataset = built
    build(root / "examples", write_examples(tmp_path / "again"), root / "processes", workers=2, mode="multi_processing")
    assert record_files(root / "processes") == record_files(dataset.folder)


@pytest.mark.slow
def test_rows_that_went_bad_are_an_error_that_names_the_file(built: Built, tmp_path: Path) -> None:
    files = write_examples(tmp_path / "examples")
    path = tmp_path / "examples" / files["valid"][0].path
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ArtefactError, match=r"valid/day0\.parquet"):
        build(tmp_path / "examples", files, tmp_path / "out")

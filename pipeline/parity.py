"""What a running server says of raw rows against the offline scores of the same rows; a difference has a name.

Offline, rows are encoded as preprocessing encodes them and scored by the checkpoint; served, they travel by gRPC to a
model server that holds the exported model. `N` rows, `K` labels.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from models.config import ModelSpec
from pipeline.launch import HOST, free_ports
from pipeline.parity_rows import hostile_rows, real_rows
from pipeline.scoring import read_rows
from preprocessing.dataset import TRANSFORM_FOLDER, Dataset
from preprocessing.encode import encode_columns
from preprocessing.schema import DENSE_KEY, IDS_KEY, LABEL_PREFIX, LIST_PREFIX, RawColumn
from preprocessing.spec import FeatureSpec, columns_of
from preprocessing.transform import load_transform
from serving.client import Client, connect
from serving.export import inference_model
from serving.export_spec import ExportOptions
from serving.launch import ServeOptions, find_binary, serve_command, start, wait_until_available

__all__ = ["Parity", "measured_parity"]

_NAME = "candidate"
_START_S = 120.0
_SHOWN = 60

Score = Callable[[pa.Table], npt.NDArray[np.float32]]


@dataclasses.dataclass(frozen=True)
class Parity:
    """The largest difference of a probability, infinite if one side alone is no number; `note` names its feature."""

    difference: float
    note: str


def measured_parity(
    dataset: Dataset,
    features: Sequence[FeatureSpec],
    *,
    model: ModelSpec,
    checkpoint: Path,
    options: ExportOptions,
    saved_model: Path,
    num_rows: int,
    tolerance: float,
) -> Parity:
    """Returns how far a running server and the offline scores are apart on test rows and on hostile ones.

    Args:
        dataset: gives rows, transform and schema.
        features: as the dataset was made.
        model: the network.
        checkpoint: its weights.
        options: say how the exported model stores its tables; the offline scores are of the same tables.
        saved_model: the exported model.
        num_rows: of the test split.
        tolerance: above it the feature is looked for.

    Raises:
        ServingError: if the server does not start, or refuses the rows.
    """
    columns = dataset.schema.raw_columns
    real = real_rows(pa.concat_tables(read_rows(dataset, "test")), columns, num_rows=num_rows)
    rows = pa.concat_tables([real, hostile_rows(real, columns)])
    offline = _offline(dataset, features, model=model, checkpoint=checkpoint, options=options)
    with _server(saved_model) as client:
        served = _served(client, dataset.schema.labels)
        expected, found = offline(rows), served(rows)
        apart = _apart(expected, found)
        worst = int(apart.argmax())
        if apart[worst] <= tolerance:
            return Parity(float(apart[worst]), "")
        row = rows.slice(worst, 1)
        name, left = _least_without(row, features, columns, apart=lambda some: _apart(offline(some), served(some)))
    values = ", ".join(f"{column} = {row[column][0].as_py()!r:.{_SHOWN}}" for column in _columns_of(name, features))
    scores = f"{found[worst].tolist()} served, {expected[worst].tolist()} offline"
    alone = "" if left <= tolerance else f"; without it still {left:.2g} apart, so others differ too"
    return Parity(float(apart[worst]), f"feature {name!r} ({values}): {scores}{alone}")


def _apart(one: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Returns [N] the largest difference of the labels of each row; two values that are no numbers are equal."""
    difference = np.abs(one.astype(np.float64) - other.astype(np.float64))
    difference[np.isnan(one) & np.isnan(other)] = 0.0
    return np.nan_to_num(difference, nan=np.inf).max(axis=1)


def _least_without(
    row: pa.Table,
    features: Sequence[FeatureSpec],
    columns: Sequence[RawColumn],
    *,
    apart: Callable[[pa.Table], npt.NDArray[np.float64]],
) -> tuple[str, float]:
    """Returns the feature without whose columns, few rather than many, the two sides come closest, and how close."""
    variants = []
    for feature in features:
        changed = row
        for place, column in enumerate(columns):
            if column.name in columns_of(feature):
                changed = changed.set_column(place, column.name, pa.nulls(1, row.schema.field(place).type))
        variants.append(changed)
    left = apart(pa.concat_tables(variants)).tolist()
    best = min(range(len(features)), key=lambda i: (left[i], len(columns_of(features[i]))))
    return features[best].name, left[best]


def _columns_of(name: str, features: Sequence[FeatureSpec]) -> tuple[str, ...]:
    return next(columns_of(feature) for feature in features if feature.name == name)


def _offline(
    dataset: Dataset, features: Sequence[FeatureSpec], *, model: ModelSpec, checkpoint: Path, options: ExportOptions
) -> Score:
    schema, transform = dataset.schema, load_transform(dataset.folder / TRANSFORM_FOLDER)
    made = inference_model(dataset, checkpoint, model=model, options=options)

    def score(rows: pa.Table) -> npt.NDArray[np.float32]:
        unlabelled = pa.array(np.zeros(rows.num_rows, np.float32))
        for label in schema.labels:
            rows = rows.append_column(LABEL_PREFIX + label, unlabelled)
        encoded = encode_columns(transform, schema, features, rows)
        inputs: dict[str, npt.NDArray[Any]] = {LIST_PREFIX + name: values for name, values in encoded.lists.items()}
        inputs |= {IDS_KEY: encoded.ids} if schema.id_fields else {}
        inputs |= {DENSE_KEY: encoded.dense} if schema.dense else {}
        batch = {key: tf.constant(value) for key, value in inputs.items()}
        probabilities: npt.NDArray[np.float32] = tf.sigmoid(made.logits(batch)).numpy()
        return probabilities

    return score


def _served(client: Client, labels: Sequence[str]) -> Score:
    def score(rows: pa.Table) -> npt.NDArray[np.float32]:
        outputs = client.predict(_NAME, rows.to_pylist())
        return np.stack([outputs[label] for label in labels], axis=1)

    return score


@contextlib.contextmanager
def _server(saved_model: Path) -> Iterator[Client]:
    """Starts a model server on a SavedModel, on ports of its own, and yields a client of it."""
    port, rest_port = free_ports(2)
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / _NAME
        base.mkdir()
        os.symlink(saved_model.absolute(), base / "1", target_is_directory=True)
        options = ServeOptions(model_name=_NAME, model_base_path=base, port=port, rest_api_port=rest_port)
        server = start(serve_command(options, binary=find_binary()), log_path=Path(folder) / "server.log")
        try:
            wait_until_available(HOST, rest_port, model_name=_NAME, timeout_s=_START_S, server=server)
            with connect(f"{HOST}:{port}", timeout_s=_START_S) as client:
                yield client
        finally:
            server.stop()

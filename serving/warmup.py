"""Writes the warm-up file of an exported model from real rows, and runs every record before the model is published.

A record that fails makes TF Serving refuse the version, so what is written has been run: each signature at each batch
size that serving will use. `Q` is 1 in requests of `rank`, whose batch size is the number of candidates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2, regression_pb2

from preprocessing.dataset import Dataset
from preprocessing.errors import ArtefactError, ServingError
from preprocessing.raw_values import raw_tensors
from preprocessing.schema import RawColumn
from serving.packed import PACKED_SIGNATURE
from serving.server.metrics import Metrics
from serving.server.servable import Servable
from serving.server.status import StatusError
from serving.server.tensors import to_proto
from serving.server.warmup import MAX_RECORDS, WARMUP_FILE, warm_up
from serving.signatures import DEFAULT_SIGNATURE, EXAMPLES_SIGNATURE, RANK_SIGNATURE, packed_layout

__all__ = ["sample_rows", "verify_warmup", "write_warmup"]

Arrays = dict[str, NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class _Record:
    """A request and what it is, for a message."""

    what: str
    log: prediction_log_pb2.PredictionLog


def sample_rows(dataset: Dataset, *, num_rows: int) -> pa.Table:
    """Returns `num_rows` raw rows of the valid split, else test, else train, repeated if there are fewer.

    Raises:
        ArtefactError: if no split has a row, or its file cannot be read.
    """
    names = [column.name for column in dataset.schema.raw_columns]
    for split in ("valid", "test", "train"):
        shards = [shard for shard in dataset.splits.get(split, ()) if shard.num_rows]
        if shards:
            path = dataset.folder / shards[0].rows
            try:
                batches = pq.ParquetFile(path).iter_batches(batch_size=num_rows, columns=names)
                rows = pa.Table.from_batches([next(batches)])
            except (OSError, pa.ArrowInvalid) as error:
                raise ArtefactError(f"{path} cannot be read: {error}; run preprocess again") from error
            return rows.take(np.arange(num_rows) % rows.num_rows)
    raise ArtefactError(f"{dataset.folder} has no row to warm a model up with; set export.warmup.batch_sizes to []")


def write_warmup(saved_model: Path, dataset: Dataset, *, batch_sizes: Sequence[int]) -> int:
    """Writes the warm-up file of a SavedModel and runs it; returns the number of records, 0 without batch sizes.

    Args:
        saved_model: as `export.export_model` wrote it.
        dataset: whose rows the requests are made of.
        batch_sizes: rows of a request of each signature.

    Raises:
        ServingError: if there are too many records, or one fails.
    """
    if not batch_sizes:
        return 0
    servable = _load(saved_model)
    try:
        num_records = len(batch_sizes) * (4 if RANK_SIGNATURE in servable.signatures else 3)
        if num_records > MAX_RECORDS:
            raise ServingError(
                f"export.warmup.batch_sizes: {num_records} warm-up records, and a server takes {MAX_RECORDS}; "
                "give fewer batch sizes"
            )
        rows = sample_rows(dataset, num_rows=max(batch_sizes))
        records = [
            record
            for size in batch_sizes
            for record in _records(rows.slice(0, size), dataset.schema.raw_columns, servable, size)
        ]
        path = saved_model / WARMUP_FILE
        path.parent.mkdir(exist_ok=True)
        for record in records:
            _write(path, [record])
            _run(servable, record.what)
        _write(path, records)
    finally:
        servable.close()
    return verify_warmup(saved_model)


def verify_warmup(saved_model: Path) -> int:
    """Loads a SavedModel and runs its warm-up file, as a server does; returns the number of records.

    Raises:
        ServingError: if it does not load or a record fails.
    """
    servable = _load(saved_model)
    try:
        return _run(servable, "the whole file")
    finally:
        servable.close()


def _load(saved_model: Path) -> Servable:
    try:
        return Servable.load(saved_model)
    except StatusError as error:
        raise ServingError(f"{saved_model} does not load, so it cannot be warmed up or published: {error}") from error


def _run(servable: Servable, what: str) -> int:
    try:
        return warm_up(servable, version=1, num_iterations=1, metrics=Metrics())
    except StatusError as error:
        raise ServingError(
            f"warm-up of {servable.path} fails ({what}): {error}. A server would refuse this version; this is no export"
        ) from error


def _write(path: Path, records: Sequence[_Record]) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record.log.SerializeToString())


def _records(rows: pa.Table, columns: Sequence[RawColumn], servable: Servable, size: int) -> Iterator[_Record]:
    arrays = raw_tensors(rows, columns)
    inputs: dict[str, Arrays] = {
        DEFAULT_SIGNATURE: arrays,
        PACKED_SIGNATURE: packed_layout(columns).pack(arrays),
    }
    if RANK_SIGNATURE in servable.signatures:
        inputs[RANK_SIGNATURE] = _ranked(arrays, columns, servable)
    for signature, tensors in inputs.items():
        log = prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=_predict(tensors)))
        log.predict_log.request.model_spec.signature_name = signature
        yield _Record(f"signature {signature}, {size} rows", log)
    yield _Record(f"signature {EXAMPLES_SIGNATURE}, {size} rows", _regress(arrays, columns))


def _predict(tensors: Arrays) -> predict_pb2.PredictRequest:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "warmup"
    for name, array in tensors.items():
        request.inputs[name].CopyFrom(to_proto(array))
    return request


def _ranked(arrays: Arrays, columns: Sequence[RawColumn], servable: Servable) -> Arrays:
    """Returns one request: the first row's user, and all rows' candidates."""
    shapes = servable.signature(RANK_SIGNATURE).input_shapes
    ranks = {column.name: 1 if column.length is None else 2 for column in columns}
    return {name: array[None] if len(shapes[name] or ()) > ranks[name] else array[:1] for name, array in arrays.items()}


def _regress(arrays: Arrays, columns: Sequence[RawColumn]) -> prediction_log_pb2.PredictionLog:
    request = regression_pb2.RegressionRequest()
    request.model_spec.name = "warmup"
    request.model_spec.signature_name = EXAMPLES_SIGNATURE
    for position in range(len(next(iter(arrays.values())))):
        features = request.input.example_list.examples.add().features.feature
        for column in columns:
            _fill(features[column.name], arrays[column.name][position], column)
    return prediction_log_pb2.PredictionLog(regress_log=prediction_log_pb2.RegressLog(request=request))


def _fill(feature: tf.train.Feature, value: Any, column: RawColumn) -> None:
    values = np.atleast_1d(value).tolist()
    if column.dtype == "string":
        feature.bytes_list.value.extend(values)
    elif column.dtype == "int64":
        feature.int64_list.value.extend(values)
    else:
        feature.float_list.value.extend(values)

"""Answered requests as Arrow rows: the columns as the model got them, what it said, and when.

A missing value is null; a list has the elements that were there. What is not a raw column begins with "@":
@request_id, @row (its place in the request), @time_ms, @latency_ms, @model, @signature, @label, @version (null where
REST was asked for the newest), and @score.NAME for each output that has a number or a text a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from preprocessing.schema import MISSING_INT64, MISSING_STRING
from serving.client_record import Exchange
from serving.rank_request import RANK_SIGNATURE, TOP_INDICES, TOP_SCORES
from serving.rows import InputColumn, rows_to_arrays

__all__ = ["OWN", "SCORE", "raw_columns", "score_columns", "to_batch"]

OWN = "@"
SCORE = "@score."
_RANKS = (1, 2)


def raw_columns(schema: pa.Schema) -> list[str]:
    """Returns the names of the raw columns of a log."""
    return [name for name in schema.names if not name.startswith(OWN)]


def score_columns(schema: pa.Schema) -> list[str]:
    """Returns the names of the outputs of a log."""
    return [name.removeprefix(SCORE) for name in schema.names if name.startswith(SCORE)]


def to_batch(exchange: Exchange) -> pa.RecordBatch:
    """Returns a row for each row of a request.

    Raises:
        ServingError: if the rows do not fit the signature; they did when they were sent.
    """
    count = len(exchange.rows)
    arrays = rows_to_arrays(exchange.rows, exchange.info.inputs, ignore_unknown=True)
    columns = {column.name: _raw(arrays[column.name], column) for column in exchange.info.inputs}
    return pa.RecordBatch.from_pydict({**_own(exchange, count), **columns, **_scores(exchange, count)})


def _own(exchange: Exchange, count: int) -> dict[str, pa.Array]:
    selected = exchange.asked.selected
    values = {
        "@request_id": pa.scalar(exchange.request_id, pa.string()),
        "@time_ms": pa.scalar(exchange.started_ms, pa.int64()),
        "@latency_ms": pa.scalar(exchange.latency_ms, pa.float32()),
        "@model": pa.scalar(selected.model_name, pa.string()),
        "@signature": pa.scalar(exchange.asked.signature, pa.string()),
        "@label": pa.scalar(selected.label, pa.string()),
        "@version": pa.scalar(exchange.answer.version, pa.int64()),
    }
    repeated = {name: pa.repeat(value, count) for name, value in values.items()}
    return {**repeated, "@row": pa.array(np.arange(count, dtype=np.int32))}


def _scores(exchange: Exchange, count: int) -> dict[str, pa.Array]:
    outputs = exchange.answer.outputs
    if exchange.asked.signature == RANK_SIGNATURE:
        outputs = {name: values[0] for name, values in outputs.items() if name not in {TOP_INDICES, TOP_SCORES}}
    # A single column of scores has the same meaning with and without its second dimension.
    flat = {name: values[:, 0] if values.shape[1:] == (1,) else values for name, values in sorted(outputs.items())}
    return {SCORE + name: pa.array(values) for name, values in flat.items() if values.shape == (count,)}


def _raw(values: NDArray[Any], column: InputColumn) -> pa.Array:
    missing = _is_missing(values)
    if values.ndim == 1:
        return _flat(values, missing)
    # What follows the last element is padding; a gap before it is a missing element.
    places = np.arange(1, values.shape[1] + 1)
    lengths = np.max(np.where(missing, 0, places), axis=1, initial=0)
    kept = places[None, :] <= lengths[:, None]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), _flat(values[kept], missing[kept]))


def _flat(values: NDArray[Any], missing: NDArray[np.bool_]) -> pa.Array:
    if values.dtype == np.object_:
        return pa.array(values, pa.binary(), mask=missing)
    return pa.array(values, mask=missing)


def _is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    if values.dtype == np.object_:
        # Not by numpy: to it b"\x00" equals b"".
        same = pc.equal(pa.array(values.ravel(), pa.binary()), pa.scalar(MISSING_STRING, pa.binary()))
        return np.asarray(same.to_numpy(zero_copy_only=False), np.bool_).reshape(values.shape)
    if values.dtype == np.int64:
        return np.asarray(values == MISSING_INT64)
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, np.bool_)

"""The states of an analysis: they add up, and travel as bytes without pickle."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from preprocessing.errors import CorruptError
from preprocessing.histogram import Histogram, merge_histograms
from preprocessing.moments import Moments, merge_moments
from preprocessing.token_counts import TokenCounts, merge_counts

__all__ = ["FeatureState", "State", "from_bytes", "merge", "to_bytes"]


@dataclasses.dataclass(frozen=True)
class FeatureState:
    """What is known of one feature.

    Attributes:
        num_rows: rows seen.
        num_missing: rows without a value (of lists: without any).
        tokens: of features with a vocabulary.
        moments: of numbers, after clip and log1p.
        histogram: of numbers as they are.
    """

    num_rows: int
    num_missing: int
    tokens: TokenCounts | None = None
    moments: Moments | None = None
    histogram: Histogram | None = None


@dataclasses.dataclass(frozen=True)
class State:
    """The state of each feature, by name, in the order of the config."""

    features: dict[str, FeatureState]


def merge(states: Sequence[State]) -> State:
    """Returns the state of all rows together; states must come in a fixed order to give the same bytes."""
    names = list(states[0].features) if states else []
    return State(features={name: _merge_feature([state.features[name] for state in states]) for name in names})


def _merge_feature(parts: Sequence[FeatureState]) -> FeatureState:
    tokens = [part.tokens for part in parts if part.tokens is not None]
    moments = [part.moments for part in parts if part.moments is not None]
    histograms = [part.histogram for part in parts if part.histogram is not None]
    return FeatureState(
        num_rows=sum(part.num_rows for part in parts),
        num_missing=sum(part.num_missing for part in parts),
        tokens=merge_counts(tokens) if tokens else None,
        moments=merge_moments(moments) if moments else None,
        histogram=merge_histograms(histograms) if histograms else None,
    )


_STATE_SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("num_rows", pa.int64()),
        ("num_missing", pa.int64()),
        ("tokens", pa.large_list(pa.large_binary())),
        ("token_counts", pa.large_list(pa.int64())),
        ("moments", pa.struct([("count", pa.int64()), ("mean", pa.float64()), ("squares", pa.float64())])),
        ("histogram_keys", pa.large_list(pa.int64())),
        ("histogram_counts", pa.large_list(pa.int64())),
    ]
)


def to_bytes(state: State) -> bytes:
    """Returns the state as an Arrow IPC stream, one row a feature."""
    parts = state.features.values()
    tokens = [part.tokens for part in parts]
    histograms = [part.histogram for part in parts]
    columns = [
        pa.array(list(state.features), pa.string()),
        pa.array([part.num_rows for part in parts], pa.int64()),
        pa.array([part.num_missing for part in parts], pa.int64()),
        _lists([None if part is None else part.tokens for part in tokens], pa.large_binary()),
        _lists([None if part is None else pa.array(part.counts) for part in tokens], pa.int64()),
        pa.array(
            [None if part.moments is None else dataclasses.asdict(part.moments) for part in parts],
            _STATE_SCHEMA.field("moments").type,
        ),
        _lists([None if part is None else pa.array(part.keys) for part in histograms], pa.int64()),
        _lists([None if part is None else pa.array(part.counts) for part in histograms], pa.int64()),
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _STATE_SCHEMA) as writer:
        writer.write_batch(pa.record_batch(columns, schema=_STATE_SCHEMA))
    return sink.getvalue().to_pybytes()


def _lists(items: Sequence[pa.Array | None], value_type: pa.DataType) -> pa.Array:
    """Returns a large_list array with one list an item, null for None, without a Python object a value."""
    lengths = [0 if item is None else len(item) for item in items]
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64))
    present = [item for item in items if item is not None]
    values = pa.concat_arrays([pa.array([], value_type), *present])
    return pa.LargeListArray.from_arrays(offsets, values, mask=pa.array([item is None for item in items]))


def from_bytes(data: bytes) -> State:
    """Returns the state that `to_bytes` wrote.

    Raises:
        CorruptError: if the bytes are no such stream.
    """
    try:
        table = pa.ipc.open_stream(data).read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptError(f"an analysis state of {len(data)} bytes cannot be read: {error}") from error
    if table.schema != _STATE_SCHEMA:
        raise CorruptError("an analysis state has other columns than this version's; run preprocess again")
    return State(features={row["name"].as_py(): _feature_state(row) for row in _rows(table)})


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return [{name: table[name][i] for name in table.column_names} for i in range(table.num_rows)]


def _feature_state(row: dict[str, Any]) -> FeatureState:
    def numbers(name: str) -> npt.NDArray[np.int64]:
        return row[name].values.to_numpy().copy()

    tokens = row["tokens"].values
    moments = row["moments"].as_py()
    has_histogram = row["histogram_keys"].is_valid
    return FeatureState(
        num_rows=row["num_rows"].as_py(),
        num_missing=row["num_missing"].as_py(),
        tokens=None if tokens is None else TokenCounts(tokens=tokens, counts=numbers("token_counts")),
        moments=None if moments is None else Moments(**moments),
        histogram=Histogram(keys=numbers("histogram_keys"), counts=numbers("histogram_counts"))
        if has_histogram
        else None,
    )

"""What the transform must know of the training split, as states that merge: counts, moments, histograms.

`analyse` turns one table of joined rows into a `State`, `merge` adds states up in the order given (only sums of
floats depend on it), `to_bytes` and `from_bytes` carry them. Values are seen as the transform sees them: numbers in
float32, what is not finite or equals the missing marker is missing, lists cut to their length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.errors import CorruptError
from preprocessing.histogram import Histogram, merge_histograms
from preprocessing.moments import Moments, merge_moments, moments_of
from preprocessing.raw_values import column_of, finite_numbers, flat_values, list_lengths, raw_dtype
from preprocessing.schema import MISSING_INT64, MISSING_STRING
from preprocessing.spec import (
    CategoricalFeature,
    CrossedFeature,
    FeatureSpec,
    MultivaluedFeature,
    NumericFeature,
    columns_of,
)
from preprocessing.token_counts import TokenCounts, count_tokens, merge_counts

__all__ = ["FeatureState", "State", "analyse", "from_bytes", "log_clip", "merge", "summary", "to_bytes"]

_QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
_TOP_VALUES = 10


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


def log_clip(
    values: npt.NDArray[np.float64], *, clip: tuple[float, float] | None, log1p: bool
) -> npt.NDArray[np.float64]:
    """Returns values clipped, then sign(x) * log(1 + |x|), as told: what the transform does in float32."""
    if clip is not None:
        values = np.clip(values, *clip)
    return np.sign(values) * np.log1p(np.abs(values)) if log1p else values


def analyse(table: pa.Table, features: Sequence[FeatureSpec]) -> State:
    """Returns the state of joined rows (of the training split).

    Raises:
        DataError: if a column of a feature is absent.
    """
    return State(features={feature.name: _analyse_feature(table, feature) for feature in features})


def _analyse_feature(table: pa.Table, feature: FeatureSpec) -> FeatureState:
    if isinstance(feature, CrossedFeature):
        missing = [_missing(column_of(table, name)) for name in columns_of(feature)]
        return FeatureState(num_rows=table.num_rows, num_missing=int(np.logical_or.reduce(missing).sum()))
    column = column_of(table, columns_of(feature)[0])
    if isinstance(feature, MultivaluedFeature):
        return _analyse_list(column, feature.max_length)
    if isinstance(feature, CategoricalFeature):
        tokens = count_tokens(column)
        return FeatureState(num_rows=len(column), num_missing=len(column) - tokens.total(), tokens=tokens)
    if isinstance(feature, NumericFeature):
        return _analyse_number(column, feature)
    return _analyse_other(column)


def _analyse_list(column: pa.Array, max_length: int) -> FeatureState:
    empty = int(np.count_nonzero(list_lengths(column, max_length=max_length) == 0))
    tokens = count_tokens(flat_values(column, max_length=max_length))
    return FeatureState(num_rows=len(column), num_missing=empty, tokens=tokens)


def _analyse_number(column: pa.Array, feature: NumericFeature) -> FeatureState:
    values = finite_numbers(column)
    return FeatureState(
        num_rows=len(column),
        num_missing=len(column) - len(values),
        moments=moments_of(log_clip(values, clip=feature.clip, log1p=feature.log1p)),
        histogram=Histogram.of(values),
    )


def _analyse_other(column: pa.Array) -> FeatureState:
    """Returns the state of a feature with nothing to learn: its missing share, and its range if it is a number."""
    if raw_dtype(column.type) == "string":
        return FeatureState(num_rows=len(column), num_missing=int(_missing(column).sum()))
    values = finite_numbers(column)
    return FeatureState(num_rows=len(column), num_missing=len(column) - len(values), histogram=Histogram.of(values))


def _missing(column: pa.Array) -> npt.NDArray[np.bool_]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    marker = MISSING_INT64 if pa.types.is_integer(column.type) else MISSING_STRING
    same = pc.equal(column, pa.scalar(marker, column.type))
    return pc.fill_null(same, True).to_numpy(zero_copy_only=False)


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


def summary(state: State) -> dict[str, Any]:
    """Returns what a person reads of the training split, as JSON values, by feature."""
    return {name: _summary(part) for name, part in state.features.items()}


def _summary(part: FeatureState) -> dict[str, Any]:
    found: dict[str, Any] = {
        "num_rows": part.num_rows,
        "missing_share": part.num_missing / part.num_rows if part.num_rows else 0.0,
    }
    if part.tokens is not None:
        found |= {"num_values": part.tokens.total(), "distinct": len(part.tokens), "top_values": _top(part.tokens)}
    if part.moments is not None and part.moments.count:
        found |= {"mean": part.moments.mean, "deviation": part.moments.deviation()}
    if part.histogram is not None and part.histogram.total():
        values = part.histogram.quantiles(_QUANTILES)
        found["quantiles"] = {repr(share): float(value) for share, value in zip(_QUANTILES, values, strict=True)}
    return found


def _top(tokens: TokenCounts) -> list[dict[str, Any]]:
    """Returns the most frequent tokens, ties by bytes; bytes that are no UTF-8 are shown as escapes."""
    least = np.partition(tokens.counts, -_TOP_VALUES)[-_TOP_VALUES] if len(tokens) > _TOP_VALUES else 0
    frequent = np.flatnonzero(tokens.counts >= least)
    texts = tokens.tokens.take(pa.array(frequent)).to_pylist()
    top = sorted(zip(tokens.counts[frequent].tolist(), texts, strict=True), key=lambda pair: (-pair[0], pair[1]))
    return [{"value": text.decode(errors="backslashreplace"), "count": count} for count, text in top[:_TOP_VALUES]]

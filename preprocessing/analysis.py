"""What the transform must know of the training split, as states that merge: counts, moments, histograms.

`analyse` turns one table of joined rows into a `State`, `merge` adds states up in the order given (only sums of
floats depend on it), `to_bytes` and `from_bytes` carry them. Values are seen as the transform sees them: numbers in
float32, what is not finite or equals the missing marker is missing, lists cut to their length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.analysis_state import FeatureState, State, from_bytes, merge, to_bytes
from preprocessing.dictionaries import known_indices
from preprocessing.histogram import Histogram
from preprocessing.moments import moments_of
from preprocessing.raw_values import column_of, finite_numbers, flat_values, list_lengths, raw_dtype
from preprocessing.schema import MISSING_INT64, MISSING_STRING
from preprocessing.spec import (
    BucketedListFeature,
    CategoricalFeature,
    CrossedFeature,
    FeatureSpec,
    MultivaluedFeature,
    NumericFeature,
    columns_of,
)
from preprocessing.token_counts import TokenCounts, count_tokens

__all__ = ["FeatureState", "State", "analyse", "from_bytes", "log_clip", "merge", "summary", "to_bytes"]

_QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
_TOP_VALUES = 10


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
    if isinstance(feature, BucketedListFeature):
        return _analyse_number_list(column, feature.max_length)
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


def _analyse_number_list(column: pa.Array, max_length: int) -> FeatureState:
    empty = int(np.count_nonzero(list_lengths(column, max_length=max_length) == 0))
    values = finite_numbers(flat_values(column, max_length=max_length))
    return FeatureState(num_rows=len(column), num_missing=empty, histogram=Histogram.of(values))


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
        return np.append(_missing(column.dictionary), True)[known_indices(column)]
    marker = MISSING_INT64 if pa.types.is_integer(column.type) else MISSING_STRING
    same = pc.equal(column, pa.scalar(marker, column.type))
    return pc.fill_null(same, True).to_numpy(zero_copy_only=False)


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
    table = pa.table({"value": tokens.tokens, "count": tokens.counts})
    order = [("count", "descending"), ("value", "ascending")]
    top = table.take(pc.select_k_unstable(table, k=_TOP_VALUES, sort_keys=order)).to_pylist()
    return [{"value": one["value"].decode(errors="backslashreplace"), "count": one["count"]} for one in top]

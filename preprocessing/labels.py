"""Labels: a comparison on a column, or an action that follows an impression within a window."""

from __future__ import annotations

import operator as operators
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.columnar import key_codes
from preprocessing.errors import DataError

__all__ = ["compare", "join_actions"]

_OPERATORS = {
    "==": operators.eq,
    "!=": operators.ne,
    ">=": operators.ge,
    "<=": operators.le,
    ">": operators.gt,
    "<": operators.lt,
}
_INT64 = (-(2**63), 2**63 - 1)
_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float32]


def compare(array: pa.Array | pa.ChunkedArray, operator: str, value: float) -> tuple[_Floats, npt.NDArray[np.bool_]]:
    """Returns float32 [rows] of 0 and 1, and bool [rows]: whether there was a value to compare.

    Integers are compared exactly with a whole number.

    Raises:
        DataError: if the column does not hold numbers.
    """
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type) or pa.types.is_boolean(array.type)):
        raise DataError(f"a label compares numbers, and the column holds {array.type}; declare it int64 or float64")
    valid = array.is_valid().to_numpy(zero_copy_only=False) if isinstance(array, pa.Array) else _valid(array)
    wide = pa.float64() if pa.types.is_floating(array.type) else pa.int64()
    numbers = pc.fill_null(array.cast(wide), 0).to_numpy()
    exact = wide == pa.int64() and float(value).is_integer() and _INT64[0] <= int(value) <= _INT64[1]
    truth = _OPERATORS[operator](numbers, np.int64(value) if exact else np.float64(value))
    valid = valid & ~np.isnan(numbers) if wide == pa.float64() else valid
    return np.where(valid, truth, False).astype(np.float32), valid


def _valid(array: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return array.is_valid().to_numpy()


def join_actions(
    impressions: pa.Table,
    actions: pa.Table,
    *,
    key: Sequence[str],
    impression_time: str | None,
    action_time: str | None,
    window_ms: int,
) -> _Floats:
    """Returns float32 [impressions]: 1 where an action with an equal key follows within the window, both ends in.

    Nulls, in a key or a time, match nothing. Without a clock on either side the key alone decides.
    """
    wanted, present = key_codes(impressions, actions, key)
    if impression_time is None or action_time is None:
        return np.isin(wanted, present[present >= 0]).astype(np.float32)
    start, has_start = _times(impressions.column(impression_time))
    times, has_time = _times(actions.column(action_time))
    rows = np.flatnonzero((present >= 0) & has_time)
    rows = rows[np.lexsort((times[rows], present[rows]))]
    found = _first_at_or_after(present[rows], times[rows], wanted, start)
    hit = found < len(rows)
    at = rows[np.minimum(found, len(rows) - 1)] if len(rows) else np.zeros(len(found), np.int64)
    if len(rows):
        # As unsigned numbers the distance of two times never overflows; the action is not the earlier one.
        distance = times[at].view(np.uint64) - start.view(np.uint64)
        hit &= (present[at] == wanted) & (distance <= np.uint64(window_ms))
    return (hit & has_start & (wanted >= 0)).astype(np.float32)


def _times(column: pa.ChunkedArray) -> tuple[_Ints, npt.NDArray[np.bool_]]:
    return pc.fill_null(column.cast(pa.int64()), 0).to_numpy(), _valid(column)


def _first_at_or_after(codes: _Ints, times: _Ints, wanted: _Ints, start: _Ints) -> _Ints:
    """Returns for each (wanted, start) the place of the first (code, time) that is not smaller; codes, times rise.

    Times are replaced by their ranks, so that the pair fits one 64-bit number.
    """
    ranked = np.unique(times)
    place = codes * (len(ranked) + 1) + np.searchsorted(ranked, times)
    return np.searchsorted(place, wanted * (len(ranked) + 1) + np.searchsorted(ranked, start))

"""As-of joins: of the rows of a slowly changing table, the one that was valid and known just before a moment.

`A` rows on the left, `B` rows on the right. Times are in ms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.columnar import key_codes
from preprocessing.keyed_times import num_below, time_scale
from preprocessing.raw_values import column_of

__all__ = ["find_as_of"]

_Ints = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]


def find_as_of(
    left: pa.Table, right: pa.Table, *, on: Sequence[str], left_time: str, valid_from: str, arrival: str | None
) -> _Ints:
    """Returns int64 [A]: the row of `right` that holds for each row of `left`, -1 where none does.

    Of the rows with an equal key that were valid, and had arrived, strictly before the left time, it is the one with
    the greatest `valid_from`, of several the last in the table. A null in a key or a time matches nothing.

    Args:
        left: key columns and the time to look from.
        right: key columns, and from when each row is valid.
        on: names of the key columns.
        left_time: int64 column of `left`.
        valid_from: int64 column of `right`.
        arrival: int64 column of `right`: when the row became known; None: as soon as it is valid.

    Raises:
        DataError: if a column is absent, or a key differs in type between the sides.
    """
    wanted, present = key_codes(left, right, on)
    moments, has_moment = _times(left, left_time)
    starts, has_start = _times(right, valid_from)
    visible, has_arrived = _times(right, arrival) if arrival is not None else (starts, has_start)
    rows = np.flatnonzero((present >= 0) & has_start & has_arrived)
    asking = np.flatnonzero((wanted >= 0) & has_moment)
    found = np.full(left.num_rows, -1, np.int64)
    if len(rows):
        visible = np.maximum(starts, visible)
        newest = _Newest(present[rows], starts[rows], visible[rows])
        places = newest.before(wanted[asking], moments[asking])
        found[asking] = np.where(places >= 0, rows[places], -1)
    return found


def _times(table: pa.Table, name: str) -> tuple[_Ints, _Mask]:
    column = column_of(table, name)
    return pc.fill_null(column.cast(pa.int64()), 0).to_numpy(), column.is_valid().to_numpy(zero_copy_only=False)


class _Newest:
    """The row with the greatest start among those visible before a moment, for each key and moment."""

    def __init__(self, codes: _Ints, starts: _Ints, visible: _Ints) -> None:
        """Takes the key, start and time of visibility of each row, int64 [B]; of equal starts the later row wins."""
        self._scale = time_scale([visible], num_codes=int(codes.max()) + 1)
        self._by_start = np.lexsort((starts, codes))
        rank = np.empty(len(codes), np.int64)
        rank[self._by_start] = np.arange(len(codes))
        pairs = self._scale.pairs(codes, visible)
        in_order = np.argsort(pairs)
        self._pairs = pairs[in_order]
        self._codes = codes[in_order]
        # A key's ranks are above those of the keys before it: the running maximum starts anew with each key.
        self._best = np.maximum.accumulate(rank[in_order])

    def before(self, codes: _Ints, moments: _Ints) -> _Ints:
        """Returns int64 [A]: the index of the row, -1 where none is visible before the moment."""
        last = num_below(self._pairs, self._scale.pairs(codes, moments)) - 1
        same = (last >= 0) & (self._codes[last] == codes)
        return np.where(same, self._by_start[self._best[last]], -1)

"""The last values of a key before a moment, newest first: slices of one sorted log.

`E` entries of the log, `K` keys, `Q` queries, `V` values of all lists together. Times are in ms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.counters import Queries
from preprocessing.keyed_times import TimeScale

__all__ = ["Entries", "History", "Slices", "history_of"]

MS_PER_S = 1000
_BLOCK_ROWS = 1 << 17
_Ints = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Entries:
    """What enters a history, in any order.

    Attributes:
        codes: int64 [E], the place of the key, from 0.
        known: int64 [E], when it became known.
        times: int64 [E], of the event: of what became known at once, the later event is the newer.
        order: uint64 [E]: of those that still tie, the smaller is the newer.
        values: [E], no nulls.
    """

    codes: _Ints
    known: _Ints
    times: _Ints
    order: npt.NDArray[np.uint64]
    values: pa.Array


@dataclasses.dataclass(frozen=True)
class History:
    """Entries sorted by key, of a key the newest last.

    Attributes:
        pairs: int64 [E], rising, on the scale.
        starts: int64 [K], the place of the first entry of each key.
        known: int64 [E].
        values: [E].
    """

    pairs: _Ints
    starts: _Ints
    known: _Ints
    values: pa.Array

    def slices(self, queries: Queries, *, length: int, horizon_ms: int | None) -> Slices:
        """Returns for each row that asks its newest entries before the cutoff, none older than the horizon."""
        ends = np.searchsorted(self.pairs, queries.pairs())
        if horizon_ms is None:
            starts = self.starts[queries.codes]
        else:
            starts = np.searchsorted(self.pairs, queries.pairs(horizon_ms))
        lengths = np.minimum(ends - starts, length)
        return Slices(ends=queries.spread(ends), lengths=queries.spread(lengths), queries=queries, log=self)


def history_of(entries: Entries, *, scale: TimeScale, num_keys: int) -> History:
    """Returns the history of entries whose known times lie on the scale."""
    pairs = scale.pairs(entries.codes, entries.known)
    order = np.lexsort((~entries.order, entries.times, pairs))
    counts = np.bincount(entries.codes, minlength=num_keys)
    return History(
        pairs=pairs[order],
        starts=(np.cumsum(counts) - counts).astype(np.int64),
        known=entries.known[order],
        values=entries.values.take(pa.array(order)),
    )


@dataclasses.dataclass(frozen=True)
class Slices:
    """The entries of each row: the last `lengths` of the log before `ends`, int64 [num_rows], the newest first.

    The lists are made in blocks of rows, so that what is held beside the result stays small and no block of strings
    passes the 2 GiB of an Arrow array.
    """

    ends: _Ints
    lengths: _Ints
    queries: Queries
    log: History

    def values(self) -> pa.ChunkedArray:
        """Returns a list column: the values, newest first."""
        return self._taken(self.log.values)

    def known(self) -> pa.ChunkedArray:
        """Returns a list<int64> column beside `values`: when each became known, in ms."""
        return self._taken(pa.array(self.log.known))

    def ages(self) -> pa.ChunkedArray:
        """Returns a list<int64> column beside `values`: whole seconds from when each became known to the cutoff."""
        cutoffs = self.queries.spread(self.queries.cutoffs)
        blocks = []
        for known, rows in zip(self.known().chunks, self._rows(), strict=True):
            # As unsigned numbers the distance of two times never overflows; what is known is not the later one.
            until = np.repeat(cutoffs[rows], self.lengths[rows]).view(np.uint64)
            distance = until - known.values.to_numpy().view(np.uint64)
            seconds = (distance // np.uint64(MS_PER_S)).view(np.int64)
            blocks.append(pa.ListArray.from_arrays(known.offsets, pa.array(seconds)))
        return pa.chunked_array(blocks, pa.list_(pa.int64()))

    def _taken(self, log: pa.Array) -> pa.ChunkedArray:
        blocks = []
        for rows in self._rows():
            offsets = np.concatenate([[0], np.cumsum(self.lengths[rows])])
            dtype = np.int32 if len(log) + offsets[-1] < 2**31 else np.int64  # half the width, two thirds of the time
            last = (self.ends[rows] - 1 + offsets[:-1]).astype(dtype)
            places = np.repeat(last, self.lengths[rows]) - np.arange(offsets[-1], dtype=dtype)
            values = pc.take(log, pa.array(places), boundscheck=False)
            blocks.append(pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values))
        return pa.chunked_array(blocks, pa.list_(log.type))

    def _rows(self) -> Iterator[slice]:
        """Yields some rows at a time."""
        for begin in range(0, len(self.ends), _BLOCK_ROWS):
            yield slice(begin, begin + _BLOCK_ROWS)

"""How many events of a key lie in a window of time before a moment: sorted once, then two searches a window.

`E` events, `K` keys, `Q` queries. Times are in ms.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from preprocessing.keyed_times import TimeScale, earlier

__all__ = ["Counter", "Queries", "counter_of", "queries_of"]

_Ints = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Queries:
    """Moments at which something is asked about a key, sorted by key and moment, so that searches stay in cache.

    Attributes:
        codes: int64 [Q], the place of the key, from 0.
        cutoffs: int64 [Q]; only what is strictly before counts.
        rows: int64 [Q], the row that asks.
        num_rows: of all rows, those without a key included.
        scale: on which the events lie.
    """

    codes: _Ints
    cutoffs: _Ints
    rows: _Ints
    num_rows: int
    scale: TimeScale

    def pairs(self, window_ms: int = 0) -> _Ints:
        """Returns int64 [Q], rising: key and cutoff less the window."""
        return self.scale.pairs(self.codes, earlier(self.cutoffs, window_ms))

    def spread(self, answers: _Ints) -> _Ints:
        """Returns int64 [num_rows]: the answer of each row, 0 for rows without a key."""
        result = np.zeros(self.num_rows, np.int64)
        result[self.rows] = answers
        return result


def queries_of(codes: _Ints, cutoffs: _Ints, *, scale: TimeScale) -> Queries:
    """Returns the queries of rows in any order; rows whose code is -1 ask nothing."""
    rows = np.flatnonzero(codes >= 0)
    rows = rows[np.argsort(scale.pairs(codes[rows], cutoffs[rows]))]
    return Queries(codes=codes[rows], cutoffs=cutoffs[rows], rows=rows, num_rows=len(codes), scale=scale)


@dataclasses.dataclass(frozen=True)
class Counter:
    """Events of one kind, by key and time.

    Attributes:
        pairs: int64 [E], rising, on the scale.
        since: int64 [K], the place in `pairs` of the first event of each key that `before` does not hold.
        before: int64 [K], how many events of each key an earlier state holds.
    """

    pairs: _Ints
    since: _Ints
    before: _Ints

    def until(self, queries: Queries) -> _Ints:
        """Returns int64 [Q]: the number of events of smaller keys, or of the key before the cutoff."""
        return np.searchsorted(self.pairs, queries.pairs()).astype(np.int64)

    def count(self, queries: Queries, *, window_ms: int | None, until: _Ints) -> _Ints:
        """Returns int64 [Q]: events of the key in [cutoff - window, cutoff), or all that are before the cutoff."""
        if window_ms is None:
            return until - (self.since - self.before)[queries.codes]
        return until - np.searchsorted(self.pairs, queries.pairs(window_ms))


def counter_of(codes: _Ints, times: _Ints, *, scale: TimeScale, base_ms: int, before: _Ints) -> Counter:
    """Returns the counter of events.

    Args:
        codes: int64 [E], keys from 0.
        times: int64 [E], in any order.
        scale: on which the times lie.
        base_ms: events before it are among `before`, and remain for the finite windows.
        before: int64 [K], events of each key before base_ms.
    """
    pairs = np.sort(scale.pairs(codes, times))
    keys = np.arange(len(before), dtype=np.int64)
    since = np.searchsorted(pairs, scale.pairs(keys, np.full(len(before), base_ms)))
    return Counter(pairs=pairs, since=since.astype(np.int64), before=before)

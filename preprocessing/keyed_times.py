"""Pairs of a key's code and a time as one int64 that sorts as the pairs do: look-ups in time become one-dimensional.

`E` events, `Q` queries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["FIRST_TIME", "LAST_TIME", "TimeScale", "earlier", "num_below", "time_scale"]

FIRST_TIME, LAST_TIME = -(2**63), 2**63 - 1
_ROOM = 2**62  # pairs stay below it
_Ints = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class TimeScale:
    """Times as whole numbers from 0 to `size` - 1: counted from the first event or, where that is too wide, by rank.

    For the time t of an event on the scale and any time c, t < c if and only if the number of t is below that of c.
    """

    first: int
    last: int
    size: int
    ranked: _Ints | None

    def pairs(self, codes: _Ints, times: _Ints) -> _Ints:
        """Returns int64: a number for each (code, time), which sort by code, then by time; codes are from 0."""
        if self.ranked is not None:
            numbers = np.searchsorted(self.ranked, times).astype(np.int64)
        else:
            numbers = np.clip(times, self.first, min(self.last + 1, LAST_TIME))
            numbers -= self.first
        numbers += codes * np.int64(self.size)
        return numbers


def time_scale(times: Sequence[_Ints], *, num_codes: int) -> TimeScale:
    """Returns a scale on which all event times lie, such that a pair with a code below `num_codes` fits 64 bits."""
    filled = [part for part in times if len(part)]
    if not filled:
        return TimeScale(first=0, last=0, size=2, ranked=None)
    first, last = min(int(part.min()) for part in filled), max(int(part.max()) for part in filled)
    size = last - first + 2
    if size * num_codes < _ROOM:
        return TimeScale(first=first, last=last, size=size, ranked=None)
    ranked = np.unique(np.concatenate(filled))
    return TimeScale(first=first, last=last, size=len(ranked) + 1, ranked=ranked)


def earlier(times: _Ints, by_ms: int) -> _Ints:
    """Returns times less a duration of at least 0, the first time where that would lie before it."""
    by_ms = min(by_ms, LAST_TIME)
    return np.maximum(times, FIRST_TIME + by_ms) - by_ms


def num_below(events: _Ints, wanted: _Ints) -> _Ints:
    """Returns int64 [Q]: how many of the rising `events` [E] are below each of `wanted` [Q], in any order."""
    order = np.argsort(wanted)  # a search in order stays in cache: a tenth of the time
    found = np.empty(len(wanted), np.int64)
    found[order] = np.searchsorted(events, wanted[order])
    return found

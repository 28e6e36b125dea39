"""Two clocks: when something happened (event time), and when it could be known (arrival time).

All times are int64 milliseconds since 1970 UTC and may be any int64: distances are taken as unsigned numbers, where
nothing overflows. A row whose log has no arrival time, or whose arrival is missing, arrives as it happens.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "NO_ARRIVAL",
    "NO_TIME",
    "arrivals_of",
    "arrived_late",
    "follows_within",
    "is_closed",
    "is_from_future",
    "time_before",
    "times_of",
    "visible_ms",
]

NO_TIME = np.iinfo(np.int64).max  # when something becomes known that never does
NO_ARRIVAL = np.iinfo(np.int64).min  # the arrival of a row that arrives as it happens

_Times = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]


def times_of(column: pa.ChunkedArray) -> tuple[_Times, _Mask]:
    """Returns int64 [rows], 0 where null, and bool [rows]: where there is a time."""
    return pc.fill_null(column.cast(pa.int64()), 0).to_numpy(), column.is_valid().to_numpy()


def arrivals_of(column: pa.ChunkedArray) -> _Times:
    """Returns int64 [rows], `NO_ARRIVAL` where null."""
    return pc.fill_null(column.cast(pa.int64()), NO_ARRIVAL).to_numpy()


def visible_ms(event_ms: _Times, arrival_ms: _Times | None) -> _Times:
    """Returns int64 [rows]: the later of event and arrival; before it, nobody can have seen the row.

    Args:
        event_ms: int64 [rows].
        arrival_ms: int64 [rows] of `arrivals_of`; None for a log without arrival times.
    """
    return event_ms if arrival_ms is None else np.maximum(event_ms, arrival_ms)


def arrived_late(event_ms: _Times, arrival_ms: _Times, *, allowed_lateness_ms: int) -> _Mask:
    """Returns bool [rows]: whether a row arrived more than so many milliseconds after its event."""
    return _is_after(arrival_ms, event_ms, by_more_than_ms=allowed_lateness_ms)


def is_from_future(event_ms: _Times, arrival_ms: _Times | None, *, now_ms: int, tolerance_ms: int) -> _Mask:
    """Returns bool [rows]: whether an event lies more than so many milliseconds after its own arrival.

    A row without an arrival is held against `now_ms`, the time of the run.
    """
    now = np.full(len(event_ms), now_ms, np.int64)
    limit = now if arrival_ms is None else np.where(arrival_ms == NO_ARRIVAL, now, arrival_ms)
    return _is_after(event_ms, limit, by_more_than_ms=tolerance_ms)


def is_closed(event_ms: _Times, *, as_of_ms: int, window_ms: int) -> _Mask:
    """Returns bool [rows]: whether the window after an event is over: event + window <= as of."""
    return event_ms <= as_of_ms - window_ms  # a Python integer: it may lie beyond all int64


def follows_within(later_ms: _Times, earlier_ms: _Times, *, duration_ms: int) -> _Mask:
    """Returns bool [rows]: whether earlier <= later <= earlier + duration."""
    return (earlier_ms <= later_ms) & (_distance(earlier_ms, later_ms) <= _unsigned(duration_ms))


def time_before(times_ms: _Times, *, duration_ms: int) -> _Times:
    """Returns int64 [rows]: time - duration, or the least int64 where that is smaller."""
    least = np.full(len(times_ms), np.iinfo(np.int64).min)
    has_room = _distance(least, times_ms) >= _unsigned(duration_ms)
    return np.where(has_room, (times_ms.view(np.uint64) - _unsigned(duration_ms)).view(np.int64), least)


def _is_after(later: _Times, earlier: _Times, *, by_more_than_ms: int) -> _Mask:
    return (later > earlier) & (_distance(earlier, later) > _unsigned(by_more_than_ms))


def _distance(earlier: _Times, later: _Times) -> npt.NDArray[np.uint64]:
    """Returns uint64 [rows]: later - earlier, exact for any two int64 times in order and meaningless for others."""
    return later.view(np.uint64) - earlier.view(np.uint64)


def _unsigned(duration_ms: int) -> np.uint64:
    return np.uint64(min(duration_ms, np.iinfo(np.uint64).max))

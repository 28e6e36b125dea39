import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.visibility import (
    NO_ARRIVAL,
    arrivals_of,
    arrived_late,
    follows_within,
    is_closed,
    is_from_future,
    time_before,
    times_of,
    visible_ms,
)

LIMITS = settings(deadline=None, max_examples=100)  # machines under test are busy
LEAST, GREATEST = -(2**63), 2**63 - 1
NEAR_THE_ENDS = st.sampled_from([LEAST, LEAST + 1, LEAST + 10, -1, 0, 1, 10, GREATEST - 10, GREATEST - 1, GREATEST])
TIMES = NEAR_THE_ENDS | st.integers(LEAST, GREATEST)
PAIRS = st.lists(st.tuples(TIMES, TIMES), max_size=20)
DURATIONS = st.sampled_from([0, 1, 9, 10, 11, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**80])


def columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    array = np.array(pairs, np.int64).reshape(-1, 2)
    return array[:, 0].copy(), array[:, 1].copy()


@LIMITS
@given(PAIRS, DURATIONS)
def test_times_are_compared_as_whole_numbers_without_bounds(pairs: list[tuple[int, int]], duration: int) -> None:
    first, second = columns(pairs)
    later = [b - a > duration for a, b in pairs]
    assert arrived_late(first, second, allowed_lateness_ms=duration).tolist() == later
    within = follows_within(second, first, duration_ms=duration)
    assert within.tolist() == [a <= b <= a + duration for a, b in pairs]
    assert time_before(first, duration_ms=duration).tolist() == [max(a - duration, LEAST) for a, _ in pairs]


@LIMITS
@given(PAIRS, TIMES, DURATIONS)
def test_windows_close_and_futures_begin_where_arithmetic_says(
    pairs: list[tuple[int, int]], now: int, duration: int
) -> None:
    event, arrival = columns(pairs)
    assert is_closed(event, as_of_ms=now, window_ms=duration).tolist() == [a + duration <= now for a, _ in pairs]
    ahead = is_from_future(event, None, now_ms=now, tolerance_ms=duration)
    assert ahead.tolist() == [a > now + duration for a, _ in pairs]
    ahead = is_from_future(event, arrival, now_ms=now, tolerance_ms=duration)
    assert ahead.tolist() == [a > (now if b == NO_ARRIVAL else b) + duration for a, b in pairs]


def test_a_row_is_visible_once_it_happened_and_arrived() -> None:
    event, arrival = np.array([5, 5, 5, LEAST]), np.array([9, 2, NO_ARRIVAL, GREATEST])
    assert visible_ms(event, arrival).tolist() == [9, 5, 5, GREATEST]
    assert visible_ms(event, None).tolist() == event.tolist()


def test_a_window_of_a_day_is_open_until_its_last_millisecond() -> None:
    day = 86_400_000
    assert is_closed(np.array([0, 1]), as_of_ms=day, window_ms=day).tolist() == [True, False]


def test_missing_arrivals_are_neither_late_nor_early() -> None:
    arrival = arrivals_of(pa.chunked_array([[None, 20], [None]], pa.int64()))
    event = np.array([0, 0, 30])
    assert arrival.tolist() == [NO_ARRIVAL, 20, NO_ARRIVAL]
    assert arrived_late(event, arrival, allowed_lateness_ms=10).tolist() == [False, True, False]
    assert is_from_future(event, arrival, now_ms=25, tolerance_ms=4).tolist() == [False, False, True]


def test_times_come_with_their_presence() -> None:
    times, present = times_of(pa.chunked_array([[7], [None, -3]], pa.int64()))
    assert times[present].tolist() == [7, -3]
    assert present.tolist() == [True, False, True]

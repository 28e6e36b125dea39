"""Pairs of code and time as numbers: they sort as the pairs do, whatever the times are."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.keyed_times import FIRST_TIME, LAST_TIME, earlier, num_below, time_scale

TIMES = st.one_of(st.integers(-5, 5), st.sampled_from([FIRST_TIME, LAST_TIME]), st.integers(FIRST_TIME, LAST_TIME))


def ints(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


@settings(deadline=None, max_examples=100)
@given(
    events=st.lists(st.tuples(st.integers(0, 3), TIMES), max_size=8),
    asked=st.lists(st.tuples(st.integers(0, 3), TIMES), max_size=8),
)
def test_the_number_of_events_below_a_pair_is_that_of_the_pairs(
    events: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    times = ints([time for _, time in events])
    scale = time_scale([times], num_codes=4)
    pairs = np.sort(scale.pairs(ints([code for code, _ in events]), times))
    wanted = scale.pairs(ints([code for code, _ in asked]), ints([time for _, time in asked]))
    assert num_below(pairs, wanted).tolist() == [sum(one < pair for one in events) for pair in asked]


def test_times_are_ranked_only_where_their_span_is_too_wide() -> None:
    month_ms = 30 * 86_400_000
    assert time_scale([ints([0, month_ms])], num_codes=10**9).ranked is None
    wide = time_scale([ints([0, month_ms]), ints([LAST_TIME])], num_codes=10)
    assert wide.ranked is not None
    assert wide.size == 4  # three times, and what is after them


@settings(deadline=None, max_examples=50)
@given(TIMES, st.integers(0, 2**70))
def test_a_time_before_the_first_is_the_first(time: int, by_ms: int) -> None:
    assert earlier(ints([time]), by_ms).tolist() == [max(time - min(by_ms, LAST_TIME), FIRST_TIME)]

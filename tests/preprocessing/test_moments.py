import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocessing.moments import Moments, merge_moments, moments_of

PARTS = st.lists(st.lists(st.floats(-1e6, 1e6), max_size=20), min_size=1, max_size=5)


@given(PARTS)
def test_merged_moments_are_those_of_all_values(parts: list[list[float]]) -> None:
    values = np.array([value for part in parts for value in part])
    merged = merge_moments([moments_of(np.array(part)) for part in parts])
    assert merged.count == len(values)
    if len(values):
        assert merged.mean == pytest.approx(values.mean(), abs=1e-8)
        assert merged.deviation() == pytest.approx(values.std(), abs=1e-6)


def test_a_large_mean_does_not_cancel_a_small_deviation() -> None:
    part = moments_of(np.array([1e9 - 1, 1e9 + 1]))
    assert merge_moments([part] * 1000).deviation() == pytest.approx(1.0, rel=1e-12)


def test_nothing_has_no_deviation() -> None:
    assert merge_moments([]) == Moments()
    assert Moments().deviation() == 0.0

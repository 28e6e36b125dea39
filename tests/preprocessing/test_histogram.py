import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from preprocessing.histogram import Histogram, merge_histograms

FINITE = st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=50)


def histogram(values: list[float]) -> Histogram:
    return Histogram.of(np.array(values, np.float64))


@given(FINITE)
def test_a_quantile_is_the_value_of_its_rank_but_for_its_last_bits(values: list[float]) -> None:
    shares = [0.0, 0.1, 0.5, 0.9, 1.0]
    ordered = np.sort(np.array(values, np.float64))
    exact = ordered[np.minimum((np.array(shares) * len(values)).astype(int), len(values) - 1)]
    found = histogram(values).quantiles(shares)
    assert np.all(np.abs(found) <= np.abs(exact))
    assert np.all(np.abs(exact - found) <= np.abs(exact) / 2048)


@given(st.lists(FINITE, min_size=2, max_size=4))
def test_merging_in_any_order_gives_the_histogram_of_all_values(parts: list[list[float]]) -> None:
    whole = histogram([value for part in parts for value in part])
    for order in (parts, parts[::-1]):
        merged = merge_histograms([histogram(part) for part in order])
        assert merged.keys.tolist() == whole.keys.tolist()
        assert merged.counts.tolist() == whole.counts.tolist()


def test_integers_below_4096_are_exact() -> None:
    values = [float(value) for value in range(-4095, 4096)]
    assert histogram(values).edges().tolist() == values


def test_both_zeros_are_one_value() -> None:
    assert histogram([0.0, -0.0]).counts.tolist() == [2]


def test_boundaries_cut_into_equal_parts() -> None:
    assert histogram([float(value) for value in range(100)]).boundaries(4) == (25.0, 50.0, 75.0)


def test_boundaries_leave_out_empty_parts() -> None:
    assert histogram([1.0] * 90 + [2.0] * 10).boundaries(10) == (2.0,)
    assert histogram([5.0] * 10).boundaries(4) == ()
    assert Histogram.of(np.zeros(0)).boundaries(4) == ()
    assert np.isnan(Histogram.of(np.zeros(0)).quantiles([0.5])).all()

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.drift import EPSILON, OTHERS, ColumnDrift, drift, jensen_shannon, psi
from preprocessing.profile import Profile, profile

SHARES = st.lists(st.integers(0, 100), min_size=2, max_size=6).filter(any)


def of(**columns: Sequence[object]) -> Profile:
    return profile(pa.table({name: pa.array(values) for name, values in columns.items()}), [])


def moved(reference: Sequence[object], current: Sequence[object]) -> ColumnDrift:
    return drift(of(x=reference), of(x=current))["x"]


def bins(found: ColumnDrift) -> list[tuple[str, float, float]]:
    return [(one.label, one.reference, one.current) for one in found.bins]


def test_psi_by_hand() -> None:
    expected = (0.6 - 0.5) * math.log(0.6 / 0.5) + (0.4 - 0.5) * math.log(0.4 / 0.5)
    assert psi([0.5, 0.5], [0.6, 0.4]) == pytest.approx(expected)


def test_an_empty_bin_counts_as_one_ten_thousandth() -> None:
    assert EPSILON == 1e-4
    expected = (1 - 0.5) * math.log(1 / 0.5) + (1e-4 - 0.5) * math.log(1e-4 / 0.5)
    assert psi([0.5, 0.5], [1.0, 0.0]) == pytest.approx(expected)
    assert psi([0.5, 0.5, 0.0], [0.5, 0.5, 0.0]) == 0.0


def test_jensen_shannon_by_hand() -> None:
    # m = (0.75, 0.25); H(m) - (H(p) + H(q)) / 2 with H(p) = 1 bit and H(q) = 0
    entropy = -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25))
    assert jensen_shannon([0.5, 0.5], [1.0, 0.0]) == pytest.approx(entropy - 0.5)
    assert jensen_shannon([1.0, 0.0], [0.0, 1.0]) == 1.0


@settings(deadline=None)
@given(SHARES, st.randoms())
def test_both_are_symmetric_and_zero_of_equal_distributions(counts: list[int], random: object) -> None:
    p = np.array(counts) / sum(counts)
    q = p.copy()
    random.shuffle(q)  # type: ignore[attr-defined]
    for measure in (psi, jensen_shannon):
        assert measure(p, p) == 0.0
        assert measure(p, q) == pytest.approx(measure(q, p), abs=1e-12)
        assert measure(p, q) >= 0.0
    assert jensen_shannon(p, q) <= 1.0 + 1e-12


def test_text_falls_into_its_frequent_tokens_the_rest_and_missing() -> None:
    found = moved([b"a"] * 3 + [b"b"] + [None] * 4, [b"a"] * 2 + [b"c"] * 1 + [None])
    assert bins(found) == [("a", 3 / 8, 1 / 2), ("b", 1 / 8, 0.0), (OTHERS, 0.0, 1 / 4), ("missing", 1 / 2, 1 / 4)]
    assert found.psi == pytest.approx(psi([3 / 8, 1 / 8, 0, 1 / 2], [1 / 2, 0, 1 / 4, 1 / 4]))
    assert found.jensen_shannon == pytest.approx(jensen_shannon([3 / 8, 1 / 8, 0, 1 / 2], [1 / 2, 0, 1 / 4, 1 / 4]))
    assert (found.new_token_share, found.vanished_token_share) == (1 / 3, 1 / 4)


def test_only_twenty_tokens_have_a_bin() -> None:
    values = [str(number).encode() for number in range(30) for _ in range(40 - number)]
    found = moved(values, values)
    assert [one.label for one in found.bins] == [*(str(number) for number in range(20)), OTHERS, "missing"]
    assert found.bins[-2].reference == pytest.approx(sum(range(11, 21)) / len(values))
    assert (found.psi, found.jensen_shannon) == (0.0, 0.0)


def test_numbers_fall_into_tenths_of_the_reference() -> None:
    found = moved(list(range(100)), list(range(50, 150)))
    assert [one.reference for one in found.bins] == [pytest.approx(0.1)] * 10 + [0.0]
    assert [one.current for one in found.bins] == [0.0] * 5 + [pytest.approx(0.1)] * 4 + [pytest.approx(0.6), 0.0]
    assert [found.bins[0].label, found.bins[1].label, found.bins[9].label] == ["below 10", "10 to 20", "90 and above"]
    assert found.new_token_share is None


def test_a_frequent_number_has_a_bin_of_its_own() -> None:
    found = moved([0.0] * 95 + [5.0] * 5, [0.0] * 50 + [5.0] * 50)
    assert bins(found) == [("below 5", 0.95, 0.5), ("5 and above", 0.05, 0.5), ("missing", 0.0, 0.0)]


def test_close_numbers_of_few_values_are_told_apart() -> None:
    found = moved([20260101] * 5 + [20260102] * 5, [20260102] * 10)
    assert found.jensen_shannon == pytest.approx(jensen_shannon([0.5, 0.5], [0.0, 1.0]))


def test_many_numbers_are_compared_by_histogram() -> None:
    numbers = np.random.default_rng(3).lognormal(size=(2, 20_000))
    same, other = moved(numbers[0], numbers[1]), moved(numbers[0], 1.3 * numbers[1])
    assert [one.reference for one in same.bins[:-1]] == [pytest.approx(0.1, abs=0.002)] * 10
    assert same.psi < 3 * same.chance
    assert other.psi > 20 * other.chance


def test_lists_count_elements_and_empty_lists_once() -> None:
    kind = pa.list_(pa.binary())
    before = profile(pa.table({"x": pa.array([[b"a", b"b"], [], [b"a"]], kind)}), [])
    now = profile(pa.table({"x": pa.array([[b"a"], None, None, None], kind)}), [])
    found = drift(before, now)["x"]
    assert bins(found) == [("a", 0.5, 0.25), ("b", 0.25, 0.0), (OTHERS, 0.0, 0.0), ("missing", 0.25, 0.75)]


def test_chance_is_what_samples_of_one_distribution_show() -> None:
    rng = np.random.default_rng(11)
    draws = [rng.choice([b"a", b"b", b"c", b"d"], size=4000, p=[0.4, 0.3, 0.2, 0.1]).tolist() for _ in range(81)]
    found = [moved(draws[0], draw) for draw in draws[1:]]
    # All are compared with the same draw: the other half of the variance is held, so a wide band.
    assert found[0].chance == pytest.approx((4 - 1) * (1 / 4000 + 1 / 4000))
    assert 0.3 < np.mean([one.psi for one in found]) / found[0].chance < 2.5


def test_samples_of_many_tokens_show_the_share_of_new_ones() -> None:
    before = [str(number).encode() for number in range(100_000)]
    now = [str(number).encode() for number in range(20_000, 100_000 + 20_000)]
    found = moved(before, now)
    assert found.new_token_share == pytest.approx(0.2, abs=0.01)
    assert found.vanished_token_share == pytest.approx(0.2, abs=0.01)


def test_nothing_but_missing_values_is_no_error() -> None:
    assert bins(moved([1.0, 2.0], [None, math.nan]))[-1] == ("missing", 0.0, 1.0)
    assert moved([None, None], [None, None]).psi == 0.0


def test_only_columns_of_both_and_of_one_kind_are_compared() -> None:
    before, now = of(x=[1], y=[b"a"], z=[1], t=[1]), of(x=[1], y=[1], w=[1], t=[2])
    assert list(drift(before, now, without={"t"})) == ["x"]
    assert drift(of(x=[]), before) == {}

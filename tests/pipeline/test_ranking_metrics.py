"""Ranking metrics against hand-made values and definitions written out over all orders of tied rows."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.ranking_metrics import average_precision, expected_calibration_error, ndcg, recall, reliability

SCORES = st.sampled_from([0.1, 0.5, math.nextafter(0.5, 1.0), 0.9])
ROWS = st.lists(st.tuples(st.integers(0, 1), SCORES, st.integers(0, 2)), min_size=1, max_size=6)


def mean_over_orders(labels: Sequence[int], scores: Sequence[float], gains: Sequence[float]) -> float:
    """Returns the mean of the gains that positives collect, over all orders that no score contradicts."""
    found = []
    for order in itertools.permutations(range(len(labels))):
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order)):
            found.append(sum(labels[row] * gains[place] for place, row in enumerate(order)))
    return sum(found) / len(found)


def by_definition(metric: str, rows: list[tuple[int, float, int]], k: int) -> list[float]:
    values = []
    for one in sorted({row[2] for row in rows}):
        labels = [row[0] for row in rows if row[2] == one]
        scores = [row[1] for row in rows if row[2] == one]
        if not any(labels):
            continue
        places = range(len(labels))
        worth = [(1 / math.log2(place + 2) if metric == "ndcg" else 1.0) * (place < k) for place in places]
        best = sum(worth[: sum(labels)]) if metric == "ndcg" else sum(labels)
        values.append(mean_over_orders(labels, scores, worth) / best)
    return values


@given(ROWS, st.integers(1, 4))
def test_lists_equal_their_definition_over_all_orders_of_tied_rows(rows: list[tuple[int, float, int]], k: int) -> None:
    labels, scores, lists = zip(*rows, strict=True)
    for name, metric in (("ndcg", ndcg), ("recall", recall)):
        expected = by_definition(name, rows, k)
        found = metric(labels, scores, lists=np.array(lists), k=k)
        assert found.num_lists == len(expected)
        assert found.num_left_out == len(set(lists)) - len(expected)
        assert found.value == pytest.approx(np.mean(expected) if expected else math.nan, nan_ok=True)


def test_values_by_hand() -> None:
    labels, scores, lists = [1, 0, 0, 1, 0, 0], [0.2, 0.9, 0.1, 0.9, 0.5, 0.1], list("aaabbb")
    # a: the positive is second; b: first
    assert ndcg(labels, scores, lists=lists, k=1).value == pytest.approx(0.5)
    assert ndcg(labels, scores, lists=lists, k=2).value == pytest.approx((1 / math.log2(3) + 1) / 2)
    assert recall(labels, scores, lists=lists, k=1).value == pytest.approx(0.5)
    left_out = ndcg(labels, scores, lists=lists, k=2, weights=[0, 1, 1, 1, 1, 1])
    assert (left_out.value, left_out.num_lists, left_out.num_left_out) == (1.0, 1, 1)
    nobody = ndcg([1], [0.5], lists=np.array([None]), k=1)
    assert math.isnan(nobody.value)


@given(st.lists(st.tuples(st.integers(0, 1), SCORES, st.sampled_from([0.0, 0.5, 2.0])), max_size=8))
def test_average_precision_is_the_sum_over_thresholds(rows: list[tuple[int, float, float]]) -> None:
    positives = sum(w for y, _, w in rows if y)
    value, before = 0.0, 0.0
    for threshold in sorted({score for _, score, _ in rows}, reverse=True):
        seen = sum(w for _, score, w in rows if score >= threshold)
        found = sum(w for y, score, w in rows if score >= threshold and y)
        value += (found - before) * (found / seen if seen else 0.0)
        before = found
    expected = value / positives if positives else math.nan
    labels, scores, weights = zip(*rows, strict=True) if rows else ((), (), ())
    assert average_precision(labels, scores, weights) == pytest.approx(expected, nan_ok=True)


def test_a_calibrated_model_has_no_calibration_error_and_another_its_distance() -> None:
    labels = [1, 0, 0, 0] * 50 + [1, 1, 1, 0] * 50
    assert expected_calibration_error(labels, [0.25] * 200 + [0.75] * 200) == pytest.approx(0.0)
    # half of the rows are off by 0.15, half by 0.05
    assert expected_calibration_error(labels, [0.4] * 200 + [0.8] * 200) == pytest.approx(0.1)
    assert math.isnan(expected_calibration_error([], []))


def test_bins_have_about_equal_weight_and_keep_equal_scores_together() -> None:
    scores = np.concatenate([np.linspace(0.0, 0.4, 50), np.full(50, 0.5)])
    found = reliability(np.zeros(100), scores, num_bins=10)
    assert found.weights.tolist() == [10.0] * 5 + [50.0]
    assert found.scores[-1] == pytest.approx(0.5)
    assert (np.diff(found.scores) > 0).all()
    weighted = reliability(np.zeros(4), [0.1, 0.2, 0.3, 0.4], [3.0, 1.0, 0.0, 2.0], num_bins=2)
    assert weighted.weights.tolist() == [3.0, 3.0]
    assert weighted.scores.tolist() == pytest.approx([0.1, (0.2 + 2 * 0.4) / 3])

"""Metrics against hand-made values and definitions written out pair by pair."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import metrics
from preprocessing.errors import DataError, LabelError

# Few distinct values, so that ties are common; adjacent floats, so that a tolerance would be found out.
SCORES = st.sampled_from([0.0, 0.1, 0.5, math.nextafter(0.5, 1.0), 0.9, 1.0])
ROWS = st.lists(st.tuples(st.integers(0, 1), SCORES, st.sampled_from([0.0, 0.5, 1.0, 3.0]), st.integers(0, 3)))


def auc_by_pairs(rows: Sequence[tuple[int, float, float]]) -> float:
    won = total = 0.0
    for label_i, score_i, weight_i in rows:
        for label_j, score_j, weight_j in rows:
            if label_i == 1 and label_j == 0:
                total += weight_i * weight_j
                won += weight_i * weight_j * (1.0 if score_i > score_j else 0.5 if score_i == score_j else 0.0)
    return won / total if total else math.nan


def test_auc_of_a_hand_made_case() -> None:
    # Pairs: 0.8 beats 0.1 and 0.4, 0.35 beats 0.1 only: 3 of 4.
    assert metrics.auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]) == 0.75


def test_ties_count_half() -> None:
    assert metrics.auc([0, 1, 0, 1], [0.5, 0.5, 0.5, 0.5]) == 0.5
    assert metrics.auc([0, 1, 0], [0.2, 0.2, 0.1]) == 0.75


def test_auc_weighs_pairs() -> None:
    # Positive 0.5 (weight 2) beats 0.1 (weight 3) and loses to 0.9 (weight 1): 6 of 8.
    assert metrics.auc([1, 0, 0], [0.5, 0.1, 0.9], [2, 3, 1]) == 0.75


def test_auc_depends_on_order_alone() -> None:
    scores = np.array([-30.0, 1e-9, 2e-9, 1e30])
    assert metrics.auc([0, 1, 0, 1], scores) == 0.75


@given(ROWS)
def test_auc_equals_its_definition_by_pairs(rows: list[tuple[int, float, float, int]]) -> None:
    labels, scores, weights, _ = np.array(rows, np.float64).reshape(-1, 4).T
    expected = auc_by_pairs([row[:3] for row in rows])
    assert metrics.auc(labels, scores, weights) == pytest.approx(expected, rel=1e-12, nan_ok=True)


def test_gauc_of_a_hand_made_case() -> None:
    # a: 3 rows, AUC 1/2 (won 0.9 > 0.1, lost to 0.95); b: 2 rows, AUC 1; c: only clicks; d: only non-clicks (2 rows).
    groups = np.array(["a", "b", "a", "c", "d", "b", "a", "d"])
    labels = [1, 1, 0, 1, 0, 0, 0, 0]
    scores = [0.9, 0.3, 0.1, 0.5, 0.2, 0.2, 0.95, 0.8]
    result = metrics.gauc(labels, scores, groups=groups)
    assert result.value == pytest.approx((3 * 0.5 + 2 * 1.0) / 5)
    assert (result.num_groups, result.num_left_out_groups, result.num_left_out_rows) == (2, 2, 3)


@given(ROWS)
def test_gauc_equals_the_mean_of_each_groups_auc(rows: list[tuple[int, float, float, int]]) -> None:
    labels, scores, weights, groups = np.array(rows, np.float64).reshape(-1, 4).T
    result = metrics.gauc(labels, scores, groups=groups.astype(np.int64), weights=weights)
    total = value = 0.0
    num_rows = num_groups = num_counted = 0
    for group in range(4):
        own = [row[:3] for row in rows if row[3] == group and row[2] > 0]
        num_groups += bool(own)
        own_auc = auc_by_pairs(own)
        if not math.isnan(own_auc):
            weight = sum(row[2] for row in own)
            total, value = total + weight, value + weight * own_auc
            num_rows, num_counted = num_rows + len(own), num_counted + 1
    assert result.value == pytest.approx(value / total if total else math.nan, rel=1e-12, nan_ok=True)
    assert result.num_groups == num_counted
    assert result.num_left_out_groups == num_groups - num_counted
    assert result.num_left_out_rows == len(rows) - num_rows


@pytest.mark.parametrize(
    "groups",
    [
        np.array([7, -3, 7, -3]),
        np.array([2**63 - 1, 0, 2**63 - 1, 0]),
        np.array([2**64 - 1, 2**63, 2**64 - 1, 2**63], np.uint64),
        np.array([b"a\x00", b"a", b"a\x00", b"a"], object),
        np.array(["é", "e", "é", "e"]),
        np.array([b"x", b"y", b"x", b"y"]),
        ["u1", "u2", "u1", "u2"],
    ],
)
def test_groups_may_be_integers_text_or_bytes(groups: object) -> None:
    result = metrics.gauc([1, 0, 0, 1], [0.9, 0.9, 0.1, 0.1], groups=groups)  # type: ignore[arg-type]
    assert (result.value, result.num_groups) == (0.5, 2)


def test_rows_without_a_group_are_left_out_of_gauc() -> None:
    result = metrics.gauc([1, 0, 1, 0], [0.9, 0.1, 0.1, 0.9], groups=np.array(["u", "u", None, None], object))
    assert result == metrics.GroupedAuc(value=1.0, num_groups=1, num_left_out_groups=0, num_left_out_rows=2)


def test_log_loss_of_a_hand_made_case() -> None:
    expected = -(math.log(0.8) + 3 * math.log(1 - 0.4)) / 4
    assert metrics.log_loss([1, 0], [0.8, 0.4], [1, 3]) == pytest.approx(expected, rel=1e-14)


def test_a_certain_error_costs_a_finite_loss() -> None:
    assert metrics.log_loss([1, 0], [0.0, 1.0]) == pytest.approx(-math.log(1e-7), rel=1e-6)


def test_normalised_entropy_of_the_base_rate_is_one() -> None:
    labels = np.array([1, 0, 0, 0])
    assert metrics.normalised_entropy(labels, np.full(4, 0.25)) == pytest.approx(1.0, rel=1e-14)


def test_normalised_entropy_of_a_hand_made_case() -> None:
    # Mean label 1/2: entropy log 2. Losses: -log 0.9 and -log 0.8.
    expected = -(math.log(0.9) + math.log(0.8)) / 2 / math.log(2)
    assert metrics.normalised_entropy([1, 0], [0.9, 0.2]) == pytest.approx(expected, rel=1e-14)


def test_calibration_is_predicted_over_observed() -> None:
    assert metrics.calibration_ratio([1, 0, 0], [0.5, 0.5, 0.5]) == pytest.approx(1.5)
    assert metrics.calibration_ratio([1, 0], [0.5, 0.25], [2, 4]) == pytest.approx(1.0)


def test_evaluate_names_every_metric() -> None:
    found = metrics.evaluate([1, 0, 1, 0], [0.8, 0.2, 0.3, 0.4], groups=np.array([1, 1, 2, 2]))
    assert found["auc"] == 0.75
    assert found["gauc"] == 0.5
    assert found["gauc_left_out_users"] == 0
    assert found["log_loss"] == pytest.approx(-math.log(0.8 * 0.8 * 0.3 * 0.6) / 4)
    assert found["normalised_entropy"] == pytest.approx(found["log_loss"] / math.log(2))
    assert found["calibration"] == pytest.approx(1.7 / 2)
    assert (found["num_rows"], found["positive_rate"]) == (4, 0.5)


def test_evaluate_without_groups_has_no_gauc() -> None:
    assert "gauc" not in metrics.evaluate([1, 0], [0.8, 0.2])


@pytest.mark.parametrize("labels", [[0, 0], [1, 1], []])
def test_one_class_or_no_row_makes_nan_not_a_crash(labels: list[int]) -> None:
    found = metrics.evaluate(labels, [0.5] * len(labels), groups=np.arange(len(labels)))
    assert math.isnan(found["auc"])
    assert math.isnan(found["gauc"])
    assert math.isnan(found["normalised_entropy"])


def test_both_classes_pass() -> None:
    metrics.require_both_classes([0, 1], split="train")


@pytest.mark.parametrize(
    ("labels", "weights", "message"),
    [([0, 0, 0], None, "all 3 are 0"), ([1, 1], None, "all 2 are 1"), ([], None, "none"), ([0, 1], [1, 0], "all 1 ")],
)
def test_refuses_a_split_of_one_class(labels: list[int], weights: list[int] | None, message: str) -> None:
    with pytest.raises(LabelError, match=rf"'valid'.*{message}"):
        metrics.require_both_classes(labels, split="valid", weights=weights)


@pytest.mark.parametrize(
    ("labels", "scores", "weights", "message"),
    [
        ([0, 1], [0.1], None, "one length"),
        ([0, 2], [0.1, 0.2], None, r"labels\[1\] is 2.0"),
        ([0, math.nan], [0.1, 0.2], None, r"labels\[1\] is nan"),
        ([0, 1], [0.1, math.nan], None, r"scores\[1\] is nan"),
        ([0, 1], [1.5, 0.1], None, r"scores\[0\] is 1.5"),
        ([0, 1], [0.5, 0.1], [1, -1], r"weights\[1\] is -1.0"),
        ([0, 1], [0.5, 0.1], [math.inf, 1], r"weights\[0\] is inf"),
    ],
)
def test_refuses_values_that_have_no_meaning(
    labels: list[float], scores: list[float], weights: list[float] | None, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        metrics.evaluate(labels, scores, weights=weights)


def test_refuses_groups_of_another_length() -> None:
    with pytest.raises(DataError, match="one group a row"):
        metrics.gauc([0, 1], [0.1, 0.2], groups=[1])

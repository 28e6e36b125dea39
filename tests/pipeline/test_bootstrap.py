"""Resampled metrics against metrics of rows that were really drawn, and intervals against what they promise."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pipeline import metrics
from pipeline.bootstrap import interval, lower_bound, resampled, upper_bound
from pipeline.ranking_metrics import average_precision

Rows = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]


def rows(seed: int, *, num_rows: int = 400, num_users: int = 40) -> Rows:
    """Returns labels, scores, weights and users; scores have ties and users differ in how often they click."""
    generator = np.random.default_rng(seed)
    users = generator.integers(0, num_users, num_rows)
    taste = generator.beta(1, 3, num_users)[users]
    scores = np.round(np.clip(taste + generator.normal(0, 0.2, num_rows), 0.01, 0.99), 2)
    labels = (generator.random(num_rows) < taste).astype(float)
    return labels, scores, generator.choice([0.5, 1.0, 2.0], num_rows), users


def test_a_resample_has_the_metrics_of_the_rows_of_the_drawn_users() -> None:
    labels, scores, weights, users = rows(1)
    users[:20] = -1  # of nobody: drawn one by one
    found = resampled(labels, {"m": scores}, users=users, weights=weights, num_resamples=3, seed=5)["m"]
    known = np.unique(users[users >= 0])
    first_rows = {user: int(np.flatnonzero(users == user)[0]) for user in known}
    units = sorted(known, key=lambda user: first_rows[user])  # in the order in which they come
    members = [np.flatnonzero(users == user) for user in units] + [np.array([row]) for row in range(20)]
    generator = np.random.default_rng(5)
    for resample in range(3):
        drawn = generator.integers(0, len(members), len(members))
        index = np.concatenate([members[unit] for unit in drawn])
        y, p, w = labels[index], scores[index], weights[index]
        again = np.concatenate([np.full(members[unit].size, place) for place, unit in enumerate(drawn)])
        groups = np.array([None if users[r] < 0 else int(place) for r, place in zip(index, again, strict=True)], object)
        assert found["auc"][resample] == pytest.approx(metrics.auc(y, p, w), abs=1e-12)
        assert found["pr_auc"][resample] == pytest.approx(average_precision(y, p, w), abs=1e-12)
        assert found["log_loss"][resample] == pytest.approx(metrics.log_loss(y, p, w), abs=1e-12)
        assert found["normalised_entropy"][resample] == pytest.approx(metrics.normalised_entropy(y, p, w), abs=1e-12)
        assert found["calibration"][resample] == pytest.approx(metrics.calibration_ratio(y, p, w), abs=1e-12)
        assert found["gauc"][resample] == pytest.approx(metrics.gauc(y, p, groups=groups, weights=w).value, abs=1e-12)


def test_the_bins_of_equal_size_change_no_auc_that_matters() -> None:
    generator = np.random.default_rng(3)
    scores = generator.beta(1, 10, 200_000)
    labels = (generator.random(scores.size) < scores).astype(float)
    every_row_once = resampled(labels, {"m": scores}, users=np.zeros(scores.size, int), num_resamples=1, seed=0)["m"]
    assert every_row_once["auc"][0] == pytest.approx(metrics.auc(labels, scores), abs=1e-7)
    assert every_row_once["ece"][0] < 0.01


def test_two_models_meet_the_same_draws() -> None:
    labels, scores, weights, users = rows(2)
    found = resampled(labels, {"a": scores, "b": scores.copy()}, users=users, weights=weights, num_resamples=5, seed=1)
    for metric, values in found["a"].items():
        assert np.array_equal(values, found["b"][metric])
    other = resampled(labels, {"a": scores}, users=users, weights=weights, num_resamples=5, seed=2)
    assert not np.array_equal(found["a"]["auc"], other["a"]["auc"])


@pytest.mark.slow
def test_nine_of_ten_intervals_hold_the_truth() -> None:
    """The truth is the mean over many samples of users; a bootstrap over rows would miss it far more often."""
    truth = np.mean([metrics.log_loss(*rows(seed)[:2]) for seed in range(2000)])
    held = 0
    for seed in range(3000, 3200):
        labels, scores, _, users = rows(seed)
        values = resampled(labels, {"m": scores}, users=users, num_resamples=200, seed=seed)["m"]["log_loss"]
        found = interval(values, confidence=0.9)
        assert found is not None
        held += int(found.low <= truth <= found.high)
    assert 0.82 <= held / 200 <= 0.96


def test_bounds_are_quantiles_and_an_undefined_resample_gives_none() -> None:
    values = np.arange(101.0)
    found = interval(values, confidence=0.9)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((5.0, 95.0))
    assert (lower_bound(values, confidence=0.95), upper_bound(values, confidence=0.95)) == pytest.approx((5.0, 95.0))
    values[3] = math.nan
    assert interval(values, confidence=0.9) is None
    assert math.isnan(lower_bound(values, confidence=0.9))

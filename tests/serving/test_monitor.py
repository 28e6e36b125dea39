"""Monitoring: what has moved is found, what has not is not, and limits turn it into findings."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from preprocessing.profile import Profile, profile
from serving.monitor import Monitored, monitor, oov_share
from serving.monitor_spec import MonitorSpec

TOKENS = pa.array([b"a", b"b", b"7"], pa.large_binary())
EMPTY = profile(pa.table({}), [])


def columns(num_rows: int, *, seed: int, shift: float = 0.0, missing: float = 0.0) -> Profile:
    random = np.random.default_rng(seed)
    price = random.normal(shift, 1, num_rows)
    mask = random.random(num_rows) < missing
    user = random.choice(["a", "b", "c"], num_rows)
    return profile(pa.table({"price": pa.array(price, mask=mask), "user": pa.array(user)}), [])


def scores(num_rows: int, *, seed: int, mean: float) -> Profile:
    drawn = np.random.default_rng(seed).beta(20 * mean, 20 * (1 - mean), num_rows).astype(np.float32)
    return profile(pa.table({"click": drawn}), [])


def judged(current: Profile, limits: MonitorSpec, *, now: Profile = EMPTY, oov: float = 0.0) -> Monitored:
    return monitor(
        reference=columns(5000, seed=1),
        current=current,
        reference_scores=scores(5000, seed=2, mean=0.3),
        current_scores=now,
        oov_shares={"user": oov},
        limits=limits,
    )


STRICT = MonitorSpec(max_psi=0.1, max_score_psi=0.1, max_missing_increase=0.05, max_oov_share=0.1)


def test_requests_like_the_training_data_pass_even_strict_limits() -> None:
    found = judged(columns(300, seed=3), STRICT, now=scores(300, seed=4, mean=0.3))
    assert found.all_findings() == []
    assert {one.name for one in found.columns} == {"price", "user", "click"}
    assert (found.num_rows, found.reference_rows) == (300, 5000)


def test_a_number_that_has_moved_is_found_and_first() -> None:
    found = judged(columns(1000, seed=3, shift=1.0), STRICT)
    assert found.columns[0].name == "price"
    (text,) = found.all_findings()
    assert text.startswith("column price: PSI")
    before, now = found.columns[0].means
    assert before == pytest.approx(0, abs=0.1)
    assert now == pytest.approx(1, abs=0.1)


def test_values_that_are_missing_more_often_are_found() -> None:
    found = judged(columns(1000, seed=3, missing=0.2), MonitorSpec(max_missing_increase=0.1))
    (text,) = found.all_findings()
    assert "column price" in text
    assert "missing" in text
    assert judged(columns(1000, seed=3, missing=0.05), MonitorSpec(max_missing_increase=0.1)).all_findings() == []


def test_scores_that_have_moved_are_found_by_their_own_limit() -> None:
    now = scores(1000, seed=4, mean=0.5)
    assert judged(columns(1000, seed=3), MonitorSpec(max_psi=0.1), now=now).all_findings() == []
    (text,) = judged(columns(1000, seed=3), MonitorSpec(max_score_psi=0.1), now=now).all_findings()
    assert text.startswith("score click: PSI")


def test_unknown_tokens_are_found() -> None:
    (text,) = judged(columns(1000, seed=3), STRICT, oov=0.11).all_findings()
    assert "column user: 11.0% of the values are not in the vocabulary" in text
    assert judged(columns(1000, seed=3), STRICT, oov=0.1).all_findings() == []


def test_without_limits_nothing_is_a_finding_but_too_few_rows() -> None:
    assert judged(columns(1000, seed=3, shift=5.0, missing=0.5), MonitorSpec(), oov=1.0).all_findings() == []
    (text,) = judged(columns(50, seed=3), MonitorSpec()).all_findings()
    assert "50 rows" in text


def test_a_column_that_training_does_not_have_is_shown_without_drift() -> None:
    found = judged(profile(pa.table({"new": pa.array([1.0] * 300)}), []), STRICT)
    (one,) = found.columns
    assert one.drift is None
    assert one.missing == (None, 0.0)


@pytest.mark.parametrize(
    ("values", "share"),
    [
        (pa.array([b"a", b"x", b"b", b"y"], pa.binary()), 0.5),
        (pa.array(["a", None, "x"]), 0.5),
        (pa.array([7, 8, 9, None], pa.int64()), 2 / 3),
        (pa.array([[b"a", b"x"], [], None, [b"b", None, b"a"]], pa.list_(pa.binary())), 0.25),
        (pa.array([None, None], pa.string()), 0.0),
        (pa.array([b"a", b"\xff"], pa.binary()), 0.5),
    ],
)
def test_the_share_of_unknown_values_is_of_those_that_are_there(values: pa.Array, share: float) -> None:
    assert oov_share(pa.chunked_array([values]), TOKENS) == pytest.approx(share)

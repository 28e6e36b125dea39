"""Shadow replay: differences by hand, rank correlation from its definition, logs with gaps."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from preprocessing.errors import ServingError
from serving.shadow import Replayed, Scores, compare, logged, rank_correlation, replay


def log(num_rows: int) -> pa.Table:
    scores = pa.array(np.linspace(0.1, 0.5, num_rows, dtype=np.float32))
    return pa.table(
        {
            "@time_ms": pa.array(range(num_rows)),
            "@score.click": scores,
            "user": [f"u{k}".encode() for k in range(num_rows)],
        }
    )


def test_differences_are_counted_by_hand() -> None:
    base = {"click": np.array([0.1, 0.2, 0.3, 0.4])}
    other = {"click": np.array([0.1, 0.25, 0.1, 0.4])}
    found = compare(Replayed(base, other, log(4)), tolerance=0.06, num_worst=2)["click"]
    assert found.num_rows == 4
    assert found.largest == pytest.approx(0.2)
    assert found.above == 0.25
    assert found.mean == pytest.approx(-0.15 / 4)
    assert found.quantiles["p50"] == pytest.approx(0.025)
    assert [(row.place, row.base, row.other) for row in found.worst] == [(2, 0.3, 0.1), (1, 0.2, 0.25)]
    assert found.worst[0].row == {"user": b"u2"}


def test_equal_scores_differ_in_nothing() -> None:
    scores = {"click": np.array([0.1, 0.2, 0.3])}
    found = compare(Replayed(scores, scores, log(3)), tolerance=0.0)["click"]
    assert (found.largest, found.above, found.undefined) == (0, 0, 0)
    assert found.correlation == pytest.approx(1)


def test_rows_that_one_side_cannot_score_are_counted_apart() -> None:
    base, other = {"click": np.array([np.nan, 0.2, np.nan])}, {"click": np.array([0.1, 0.2, np.nan])}
    found = compare(Replayed(base, other, log(3)), tolerance=0.0)["click"]
    assert (found.num_rows, found.undefined, found.largest) == (1, 1, 0)


def test_sides_without_a_common_output_are_refused() -> None:
    with pytest.raises(ServingError, match="a and b"):
        compare(Replayed({"a": np.zeros(1)}, {"b": np.zeros(1)}, log(1)), tolerance=0)


def test_rank_correlation_is_that_of_its_definition() -> None:
    # Without ties: 1 - 6 sum d^2 / (n (n^2 - 1)), Spearman (1904); here d = 1, 1, 0, 1, 1.
    x, y = np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.array([2.0, 1.0, 3.0, 6.0, 5.0])
    assert rank_correlation(x, y) == pytest.approx(1 - 6 * 4 / (5 * 24))
    assert rank_correlation(x, -x) == pytest.approx(-1)
    assert rank_correlation(x, np.exp(x)) == pytest.approx(1)
    assert rank_correlation(x, np.ones(5)) is None
    # Ties share their mean rank: 1.5, 1.5, 3 against 1, 2, 3.
    assert rank_correlation(np.array([7.0, 7, 9]), np.array([1.0, 2, 3])) == pytest.approx(np.sqrt(0.75))


def test_a_log_is_replayed_in_parts_in_order() -> None:
    sizes: list[int] = []
    seen: list[int] = []

    def other(rows: pa.Table) -> Scores:
        sizes.append(rows.num_rows)
        return {"click": np.array([float(text[1:]) for text in rows["user"].to_pylist()])}

    found = replay([log(5), log(3)], logged, other, batch_rows=2, observe=seen.append)
    assert sizes == [2, 2, 1, 2, 1]
    assert found.other["click"].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    np.testing.assert_allclose(found.base["click"][:5], np.linspace(0.1, 0.5, 5), atol=1e-7)
    assert seen[-1] == 8
    assert found.rows.num_rows == 8


def test_an_empty_log_is_refused() -> None:
    with pytest.raises(ServingError, match="no row"):
        replay([], logged, logged, batch_rows=2)

"""Metrics of ranked lists, and of how far probabilities can be taken at their word: exact, vectorised, float64 inside.

Shapes: `N` rows. Rows of equal score share their places: each figure is the mean over all orders of tied rows
(McSherry and Najork 2008, Computing information retrieval performance measures efficiently in the presence of tied
scores), so none depends on the order of the rows.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.metrics import checked, group_codes, order_by_group, run_starts

__all__ = [
    "ListMetric",
    "Reliability",
    "average_precision",
    "expected_calibration_error",
    "list_values",
    "ndcg",
    "recall",
    "reliability",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

NUM_BINS = 20


@dataclasses.dataclass(frozen=True)
class ListMetric:
    """A mean over lists (requests) that have a positive, how many those are, and how many are left out."""

    value: float
    num_lists: int
    num_left_out: int


@dataclasses.dataclass(frozen=True)
class Reliability:
    """Bins of about equal weight by rising score: mean score, mean label and weight of each, [bins]."""

    scores: Floats
    labels: Floats
    weights: Floats


def average_precision(labels: npt.ArrayLike, scores: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    """Returns the area under the precision-recall curve as average precision; NaN without a positive.

    AP = sum_k (R_k - R_{k-1}) P_k over the distinct scores, falling, with R_k and P_k the recall and precision of all
    rows that score at least that much. Unlike the trapezium rule it does not promise what lies between two points
    (Davis and Goadrich 2006, The relationship between precision-recall and ROC curves).

    Args:
        labels: 0 or 1, [N].
        scores: finite, any scale, [N].
        weights: at least 0, [N]; all 1 if absent.

    Raises:
        DataError: if the arrays differ in length or hold values that they may not.
    """
    y, s, w = checked(labels, scores, weights)
    order = np.argsort(-s)
    starts = run_starts(s[order])
    if starts.size == 0:
        return float("nan")
    gained = np.add.reduceat((w * y)[order], starts)
    seen = np.cumsum(np.add.reduceat(w[order], starts))
    found = np.cumsum(gained)
    if found[-1] <= 0:
        return float("nan")
    precision = np.divide(found, seen, out=np.zeros_like(found), where=seen > 0)
    return float((gained * precision).sum() / found[-1])


def reliability(
    labels: npt.ArrayLike, scores: npt.ArrayLike, weights: npt.ArrayLike | None = None, *, num_bins: int = NUM_BINS
) -> Reliability:
    """Returns mean label against mean score in bins of about equal weight; rows of one score stay together.

    Args:
        labels: 0 or 1, [N].
        scores: probabilities, [N].
        weights: at least 0, [N]; all 1 if absent.
        num_bins: at most; ties make fewer.

    Raises:
        DataError: if the arrays differ in length or hold values that they may not.
    """
    y, p, w = checked(labels, scores, weights, probabilities=True)
    order = np.argsort(p)
    starts = bin_starts(p[order], w[order], num_bins)
    if starts.size == 0:
        return Reliability(np.zeros(0), np.zeros(0), np.zeros(0))
    weight = np.add.reduceat(w[order], starts)
    kept = weight > 0
    mean_score = np.add.reduceat((w * p)[order], starts)[kept] / weight[kept]
    mean_label = np.add.reduceat((w * y)[order], starts)[kept] / weight[kept]
    return Reliability(mean_score, mean_label, weight[kept])


def expected_calibration_error(
    labels: npt.ArrayLike, scores: npt.ArrayLike, weights: npt.ArrayLike | None = None, *, num_bins: int = NUM_BINS
) -> float:
    """Returns the mean distance of mean label and mean score over bins of about equal weight; NaN without rows.

    ECE = sum_b W_b / W |mean label of b - mean score of b| (Naeini et al. 2015, equation 3), with bins of equal
    weight rather than width (Nixon et al. 2019, section 4), for click rates all fall into the first of equal width.

    Args:
        labels: 0 or 1, [N].
        scores: probabilities, [N].
        weights: at least 0, [N]; all 1 if absent.
        num_bins: at most; ties make fewer.

    Raises:
        DataError: if the arrays differ in length or hold values that they may not.
    """
    found = reliability(labels, scores, weights, num_bins=num_bins)
    total = found.weights.sum()
    if not total > 0:
        return float("nan")
    return float((found.weights * np.abs(found.labels - found.scores)).sum() / total)


def ndcg(
    labels: npt.ArrayLike, scores: npt.ArrayLike, *, lists: npt.ArrayLike, k: int, weights: npt.ArrayLike | None = None
) -> ListMetric:
    """Returns the mean NDCG of the first `k` rows of each list with a positive.

    DCG@k = sum of y_i / log2(1 + place of i) over the places up to k; NDCG is that over the best order's (Jarvelin and
    Kekalainen 2002, with the discount of Burges et al. 2005).

    Args:
        labels: 0 or 1, [N].
        scores: finite, any scale, [N].
        lists: the request of each row, [N]; see `metrics.gauc`.
        k: at least 1.
        weights: rows of weight 0 are left out; others count once.

    Raises:
        DataError: if the arrays differ in length or hold values that they may not.
    """
    return _mean(list_values("ndcg", labels, scores, lists=lists, k=k, weights=weights)[1])


def recall(
    labels: npt.ArrayLike, scores: npt.ArrayLike, *, lists: npt.ArrayLike, k: int, weights: npt.ArrayLike | None = None
) -> ListMetric:
    """Returns the mean share of each list's positives that are among its first `k` rows; arguments as of `ndcg`."""
    return _mean(list_values("recall", labels, scores, lists=lists, k=k, weights=weights)[1])


def list_values(
    metric: str,
    labels: npt.ArrayLike,
    scores: npt.ArrayLike,
    *,
    lists: npt.ArrayLike,
    k: int,
    weights: npt.ArrayLike | None = None,
) -> tuple[Integers, Floats]:
    """Returns a row of each list, [L], and the list's "ndcg" or "recall" at `k`, NaN without a positive, [L]."""
    y, s, w = checked(labels, scores, weights)
    codes = group_codes(lists, y.size)
    kept = np.flatnonzero((codes >= 0) & (w > 0))
    order = kept[order_by_group(codes[kept], -s[kept])]
    codes, s, y = codes[order], s[order], y[order]
    first = run_starts(codes)
    if first.size == 0:
        return np.zeros(0, np.int64), np.zeros(0)
    sizes = np.diff(np.append(first, order.size))
    places = np.arange(order.size) - np.repeat(first, sizes)
    gain = _gains(metric, int(sizes.max()), k)
    ties = run_starts(codes, s)
    tie_sizes = np.diff(np.append(ties, order.size))
    shared = np.add.reduceat(gain[places], ties) / tie_sizes
    reached = np.add.reduceat(y * np.repeat(shared, tie_sizes), first)
    positives = np.add.reduceat(y, first)
    best = positives if metric == "recall" else np.concatenate(([0.0], np.cumsum(gain)))[positives.astype(np.int64)]
    return order[first], np.divide(reached, best, out=np.full(first.size, np.nan), where=positives > 0)


def _gains(metric: str, longest: int, k: int) -> Floats:
    """Returns what a positive is worth at each place."""
    places = np.arange(longest)
    worth = np.ones(longest) if metric == "recall" else 1.0 / np.log2(places + 2.0)
    return np.where(places < k, worth, 0.0)


def _mean(values: Floats) -> ListMetric:
    known = ~np.isnan(values)
    mean = float(values[known].mean()) if known.any() else float("nan")
    return ListMetric(mean, int(known.sum()), int((~known).sum()))


def bin_starts(sorted_scores: npt.NDArray[Any], weights: Floats, num_bins: int) -> Integers:
    """Returns the first row of each bin of about equal weight; a bin begins where a score does."""
    starts = run_starts(sorted_scores)
    if starts.size <= 1:
        return starts
    before = np.concatenate(([0.0], np.cumsum(weights)))[starts]
    total = weights.sum()
    bins = np.minimum(np.floor(before / total * num_bins), num_bins - 1) if total > 0 else np.zeros(starts.size)
    return starts[run_starts(bins)]

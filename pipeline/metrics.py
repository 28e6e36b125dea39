"""Metrics of predicted probabilities against 0/1 labels: exact, vectorised, float64 inside.

Shapes: `N` rows. A metric that one class alone leaves undefined is NaN; `require_both_classes` refuses such a split.
Weights are at least 0 and count a row that many times; a row of weight 0 counts nowhere.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from preprocessing.errors import DataError, LabelError

__all__ = [
    "GroupedAuc",
    "auc",
    "calibration_ratio",
    "checked",
    "evaluate",
    "gauc",
    "group_codes",
    "log_loss",
    "normalised_entropy",
    "order_by_group",
    "require_both_classes",
    "run_starts",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# Probabilities are kept this far from 0 and 1 in logarithms: a float32 sigmoid that saturates says no more than that.
EPSILON = 1e-7


@dataclasses.dataclass(frozen=True)
class GroupedAuc:
    """A grouped AUC and what it rests on.

    `num_groups` counts the groups that have an AUC; those of one class, and rows without a group, are left out.
    """

    value: float
    num_groups: int
    num_left_out_groups: int
    num_left_out_rows: int


def auc(labels: npt.ArrayLike, scores: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    """Returns the area under the ROC curve, exact, or NaN if there is one class only.

    AUC = sum over pairs (i positive, j negative) of w_i w_j ([s_i > s_j] + 0.5 [s_i = s_j]) / (W_positive W_negative),
    the probability that a positive scores above a negative (Hanley and McNeil 1982). Sorting brings it to O(N log N).

    Args:
        labels: 0 or 1, [N].
        scores: finite, any scale, [N].
        weights: at least 0, [N]; all 1 if absent.

    Raises:
        DataError: if the arrays differ in length or hold values that they may not.
    """
    y, s, w = checked(labels, scores, weights)
    order = np.argsort(s)
    positive = (w * y)[order]
    negative = (w * (1.0 - y))[order]
    pairs = _pairs(positive, negative, run_starts(s[order]))
    total = positive.sum() * negative.sum()
    return float(pairs.sum() / total) if total > 0 else float("nan")


def gauc(
    labels: npt.ArrayLike, scores: npt.ArrayLike, *, groups: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> GroupedAuc:
    """Returns the mean AUC of the groups (users), weighted by their impressions.

    GAUC = sum_u n_u AUC_u / sum_u n_u over the users u whose impressions have both classes; n_u is the number of
    impressions of u (the sum of their weights, if given). Zhu et al. 2017, Optimized Cost per Click in Taobao Display
    Advertising, section 5.1.

    Args:
        labels: 0 or 1, [N].
        scores: finite, any scale, [N].
        groups: integers, text, bytes or None (no group: the row is left out), [N].
        weights: at least 0, [N]; all 1 if absent.

    Raises:
        DataError: if the arrays differ in length or hold values that they may not.
    """
    y, s, w = checked(labels, scores, weights)
    codes = group_codes(groups, y.size)
    kept = np.flatnonzero((codes >= 0) & (w > 0))
    order = kept[order_by_group(codes[kept], s[kept])]
    codes, s, positive, negative = codes[order], s[order], (w * y)[order], (w * (1.0 - y))[order]
    first = run_starts(codes)
    if first.size == 0:
        return GroupedAuc(float("nan"), 0, 0, int(y.size))
    sizes = np.diff(np.append(first, order.size))
    num_positive, num_negative = np.add.reduceat(positive, first), np.add.reduceat(negative, first)
    usable = (num_positive > 0) & (num_negative > 0)
    tie_starts = run_starts(codes, s)
    pairs = _pairs(positive, negative, tie_starts, restart=np.repeat(first, sizes)[tie_starts])
    group_pairs = np.add.reduceat(pairs, np.searchsorted(tie_starts, first))[usable]
    values = group_pairs / (num_positive[usable] * num_negative[usable])
    shares = (num_positive + num_negative)[usable]
    return GroupedAuc(
        value=float((values * shares).sum() / shares.sum()) if values.size else float("nan"),
        num_groups=int(values.size),
        num_left_out_groups=int(first.size - values.size),
        num_left_out_rows=int(y.size - sizes[usable].sum()),
    )


def log_loss(labels: npt.ArrayLike, scores: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    """Returns the mean binary cross-entropy in nats; NaN without rows.

    LL = -sum_i w_i (y_i log p_i + (1 - y_i) log(1 - p_i)) / sum_i w_i, with p kept within [1e-7, 1 - 1e-7].

    Args:
        labels: 0 or 1, [N].
        scores: probabilities, [N].
        weights: at least 0, [N]; all 1 if absent.

    Raises:
        DataError: if the arrays differ in length or hold values that they may not.
    """
    y, p, w = checked(labels, scores, weights, probabilities=True)
    clipped = np.clip(p, EPSILON, 1.0 - EPSILON)
    losses = -np.where(y > 0, np.log(clipped), np.log1p(-clipped))
    return _ratio((w * losses).sum(), w.sum())


def normalised_entropy(labels: npt.ArrayLike, scores: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    """Returns the log loss divided by that of always predicting the mean label; NaN if there is one class only.

    NE = LL / -(p log p + (1 - p) log(1 - p)), p the weighted mean label: below 1 is better than knowing the click
    rate alone. He et al. 2014, Practical Lessons from Predicting Clicks on Ads at Facebook, equation 1.

    Args:
        labels: 0 or 1, [N].
        scores: probabilities, [N].
        weights: at least 0, [N]; all 1 if absent.

    Raises:
        DataError: if the arrays differ in length or hold values that they may not.
    """
    y, p, w = checked(labels, scores, weights, probabilities=True)
    rate = _ratio((w * y).sum(), w.sum())
    if not 0.0 < rate < 1.0:
        return float("nan")
    entropy = -(rate * np.log(rate) + (1.0 - rate) * np.log1p(-rate))
    return float(log_loss(y, p, w) / entropy)


def calibration_ratio(labels: npt.ArrayLike, scores: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    """Returns predicted clicks per observed click; 1 is calibrated, NaN means that there is no positive.

    C = sum_i w_i p_i / sum_i w_i y_i. He et al. 2014, section 2.

    Args:
        labels: 0 or 1, [N].
        scores: probabilities, [N].
        weights: at least 0, [N]; all 1 if absent.

    Raises:
        DataError: if the arrays differ in length or hold values that they may not.
    """
    y, p, w = checked(labels, scores, weights, probabilities=True)
    return _ratio((w * p).sum(), (w * y).sum())


def evaluate(
    labels: npt.ArrayLike,
    scores: npt.ArrayLike,
    *,
    weights: npt.ArrayLike | None = None,
    groups: npt.ArrayLike | None = None,
) -> dict[str, float]:
    """Returns all metrics of a split by name; those of groups only if `groups` are given.

    Args:
        labels: 0 or 1, [N].
        scores: probabilities, [N].
        weights: at least 0, [N]; all 1 if absent.
        groups: the user of each row, [N]; see `gauc`.

    Raises:
        DataError: if the arrays differ in length or hold values that they may not.
    """
    y, p, w = checked(labels, scores, weights, probabilities=True)
    metrics = {
        "auc": auc(y, p, w),
        "log_loss": log_loss(y, p, w),
        "normalised_entropy": normalised_entropy(y, p, w),
        "calibration": calibration_ratio(y, p, w),
        "num_rows": float(y.size),
        "positive_rate": _ratio((w * y).sum(), w.sum()),
    }
    if groups is not None:
        grouped = gauc(y, p, groups=groups, weights=w)
        metrics |= {"gauc": grouped.value, "gauc_left_out_users": float(grouped.num_left_out_groups)}
    return metrics


def require_both_classes(labels: npt.ArrayLike, *, split: str, weights: npt.ArrayLike | None = None) -> None:
    """Passes if the rows that count (weight above 0) have both classes.

    Raises:
        LabelError: if they have one class or there are none.
        DataError: if a label is neither 0 nor 1.
    """
    y, _, w = checked(labels, np.zeros(np.shape(labels)), weights)
    counted = y[w > 0]
    num_positive = int(counted.sum())
    if 0 < num_positive < counted.size:
        return
    found = f"all {counted.size} are {int(counted[0])}" if counted.size else "there are none"
    raise LabelError(
        f"split {split!r}: labels must be both 0 and 1 among the rows of weight above 0, but {found}; "
        "check the label's definition and the bounds of the split"
    )


def _pairs(positive: Floats, negative: Floats, tie_starts: Integers, *, restart: Integers | None = None) -> Floats:
    """Returns, for each run of equal scores, the weight of (positive, negative) pairs won by its positives.

    Rows are in rising order of score. `restart` holds, for each run, the row from which negatives count: the first
    of the run's group.
    """
    if tie_starts.size == 0:
        return np.zeros(0)
    below = np.concatenate(([0.0], np.cumsum(negative)))
    lower = below[tie_starts] - (0.0 if restart is None else below[restart])
    wins = np.add.reduceat(positive, tie_starts) * (lower + 0.5 * np.add.reduceat(negative, tie_starts))
    return np.asarray(wins, np.float64)


def run_starts(*sorted_keys: npt.NDArray[Any]) -> Integers:
    """Returns the first row of each run of rows that are equal in all keys."""
    if sorted_keys[0].size == 0:
        return np.zeros(0, np.int64)
    changed = np.zeros(sorted_keys[0].size, bool)
    changed[0] = True
    for key in sorted_keys:
        changed[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(changed)


def order_by_group(codes: Integers, scores: Floats) -> Integers:
    """Returns the order of rows by (code, score): two plain sorts of numbers, half the time of `np.lexsort`.

    Codes are below the number of rows they were made from, so that code x N + rank fits int64 up to 3e9 rows.
    """
    ranks = np.empty(scores.size, np.int64)
    ranks[np.argsort(scores)] = np.arange(scores.size)
    return np.argsort(codes * scores.size + ranks)


def group_codes(groups: npt.ArrayLike, num_rows: int) -> Integers:
    """Returns an integer for each row, equal for equal groups; -1 for none."""
    values = np.asarray(groups)
    if values.shape != (num_rows,):
        raise DataError(f"groups have shape {values.shape}, labels ({num_rows},): one group a row is needed")
    encoded = pa.array(values.tolist() if values.dtype.kind == "S" else values).dictionary_encode()
    return np.asarray(encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False), np.int64)


def checked(
    labels: npt.ArrayLike, scores: npt.ArrayLike, weights: npt.ArrayLike | None, *, probabilities: bool = False
) -> tuple[Floats, Floats, Floats]:
    """Returns labels, scores and weights as float64 [N], or says which rule they break."""
    y, s = np.asarray(labels, np.float64), np.asarray(scores, np.float64)
    w = np.ones(y.shape) if weights is None else np.asarray(weights, np.float64)
    if y.ndim != 1 or s.shape != y.shape or w.shape != y.shape:
        raise DataError(
            f"labels {y.shape}, scores {s.shape} and weights {w.shape} must be one-dimensional and of one length"
        )
    _check_values("labels", y, (y == 0) | (y == 1), rule="be 0 or 1")
    _check_values("weights", w, (w >= 0) & (w < np.inf), rule="be finite and at least 0")
    if probabilities:
        _check_values("scores", s, (s >= 0) & (s <= 1), rule="be probabilities within [0, 1]")
    else:
        _check_values("scores", s, np.isfinite(s), rule="be finite")
    return y, s, w


def _check_values(name: str, values: Floats, valid: npt.NDArray[np.bool_], *, rule: str) -> None:
    if not valid.all():
        row = int(np.argmin(valid))
        raise DataError(f"{name}[{row}] is {values[row]}: {name} must {rule}; {int((~valid).sum())} rows break this")


def _ratio(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator > 0 else float("nan")

"""How far a metric could be off by the luck of which users came: the bootstrap over users.

Users are drawn with replacement, all rows of a drawn user with it, for clicks of one user are not independent (Efron
and Tibshirani 1993, An Introduction to the Bootstrap, chapter 8). Two models are resampled by the same draws, so that
the luck they share cancels in their difference.

Shapes: `N` rows, `U` users, `R` resamples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from pipeline.metrics import EPSILON, checked, group_codes, order_by_group, run_starts
from pipeline.ranking_metrics import NUM_BINS, bin_starts, list_values

__all__ = ["Interval", "interval", "lower_bound", "resampled", "upper_bound"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# Rows of neighbouring scores that are taken as tied: with so many bins of equal size AUC is off by some 1e-8.
_FINE_BINS = 1 << 16


@dataclasses.dataclass(frozen=True)
class Interval:
    """The middle part of the resampled values, between two quantiles."""

    low: float
    high: float


def interval(values: Floats, *, confidence: float) -> Interval | None:
    """Returns the percentile interval of resampled values, [R]; None if some resample leaves the metric undefined."""
    if values.size == 0 or not np.isfinite(values).all():
        return None
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high))


def lower_bound(values: Floats, *, confidence: float) -> float:
    """Returns what all but a share `1 - confidence` of the resampled values reach; NaN if one is undefined."""
    return float(np.quantile(values, 1 - confidence)) if np.isfinite(values).all() else float("nan")


def upper_bound(values: Floats, *, confidence: float) -> float:
    """Returns what all but a share `1 - confidence` of the resampled values stay within; NaN if one is undefined."""
    return float(np.quantile(values, confidence)) if np.isfinite(values).all() else float("nan")


def resampled(
    labels: npt.ArrayLike,
    models: Mapping[str, npt.ArrayLike],
    *,
    users: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    lists: npt.ArrayLike | None = None,
    top_k: int = 10,
    num_resamples: int,
    seed: int,
) -> dict[str, dict[str, Floats]]:
    """Returns each metric of each model in each resample: model -> metric -> [R].

    The metrics are auc, pr_auc, log_loss, normalised_entropy, calibration, ece, gauc, and with `lists` ndcg and recall
    at `top_k`; a list goes with the user of its first row. Scores are put into
    65,536 bins of equal size, and the bins of ece stay those of the whole.

    Args:
        labels: 0 or 1, [N].
        models: the probabilities that each model gave, [N].
        users: whose row it is, [N]; a row of nobody (None, or -1 of integers) is drawn by itself.
        weights: at least 0, [N]; all 1 if absent.
        lists: the request of each row, [N].
        top_k: places of a list that count.
        num_resamples: R.
        seed: of the draws.

    Raises:
        DataError: if the arrays differ in length or hold values that they may not.
    """
    codes, num_users, known = _units(users, np.asarray(labels).size)
    prepared = {name: _Prepared.of(labels, scores, weights, codes, known) for name, scores in models.items()}
    listed = {
        name: {}
        if lists is None
        else _list_sums(labels, scores, lists, weights=weights, codes=codes, num_units=num_users, k=top_k)
        for name, scores in models.items()
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in models}
    generator = np.random.default_rng(seed)
    for _ in range(num_resamples):
        times = np.bincount(generator.integers(0, num_users, num_users), minlength=num_users).astype(np.float64)
        for name, model in prepared.items():
            of_lists = {metric: _ratio(*(sums @ times)) for metric, sums in listed[name].items()}
            found[name].append(model.metrics(times) | of_lists)
    return {
        name: {metric: np.array([each[metric] for each in rows]) for metric in rows[0]} if rows else {}
        for name, rows in found.items()
    }


def _units(users: npt.ArrayLike, num_rows: int) -> tuple[Integers, int, npt.NDArray[np.bool_]]:
    """Returns what is drawn for each row, how many there are, and which rows are of a known user."""
    codes = group_codes(users, num_rows).copy()
    known = codes >= 0
    if np.asarray(users).dtype.kind in "iu":
        known &= np.asarray(users) >= 0
    distinct, codes[known] = np.unique(codes[known], return_inverse=True)
    num_known = distinct.size
    alone = np.flatnonzero(~known)
    codes[alone] = num_known + np.arange(alone.size)
    return codes, num_known + alone.size, known


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Rows of one class by rising score: weight and unit of each, and the first row of each fine bin, [B + 1]."""

    units: npt.NDArray[np.int32]
    weights: Floats
    edges: Integers

    def by_bin(self, times: Floats) -> Floats:
        """Returns the weight in each fine bin if each unit came so many times, [B]."""
        total = np.concatenate(([0.0], np.cumsum(times[self.units] * self.weights)))
        return np.diff(total[self.edges])


@dataclasses.dataclass(frozen=True)
class _Prepared:
    """A model's rows by rising score, with all that no draw changes.

    Attributes:
        positive: the rows of label 1.
        negative: the rows of label 0.
        scores: mean probability of each fine bin, [B].
        coarse: first fine bin of each bin of the calibration error.
        sums: weight, positives, predicted positives and loss of each unit, [4, U].
        user_auc: AUC times weight, and weight, of each unit that has an AUC, [2, U].
    """

    positive: _Rows
    negative: _Rows
    scores: Floats
    coarse: Integers
    sums: Floats
    user_auc: Floats

    @classmethod
    def of(
        cls,
        labels: npt.ArrayLike,
        scores: npt.ArrayLike,
        weights: npt.ArrayLike | None,
        codes: Integers,
        known: npt.NDArray[np.bool_],
    ) -> _Prepared:
        y, p, w = checked(labels, scores, weights, probabilities=True)
        num_units = int(codes.max(initial=-1)) + 1
        order = np.argsort(p)
        fine = bin_starts(p[order], np.ones(p.size), _FINE_BINS)
        edges = np.append(fine, p.size)
        mean_scores = np.add.reduceat(p[order], fine) / np.diff(edges)
        weight = np.add.reduceat(w[order], fine)
        return cls(
            positive=_rows_of(y[order] > 0, w[order], codes[order], edges),
            negative=_rows_of(y[order] == 0, w[order], codes[order], edges),
            scores=mean_scores,
            coarse=bin_starts(mean_scores, weight, NUM_BINS),
            sums=_unit_sums(y, p, w, codes, num_units=num_units),
            user_auc=_user_auc(y, p, w, codes, known=known, num_units=num_units),
        )

    def metrics(self, times: Floats) -> dict[str, float]:
        """Returns the metrics if each unit came so many times, [U]."""
        positive, negative = self.positive.by_bin(times), self.negative.by_bin(times)
        weight, clicks, predicted, loss = self.sums @ times
        rate = _ratio(clicks, weight)
        entropy = -(rate * np.log(rate) + (1 - rate) * np.log1p(-rate)) if 0 < rate < 1 else 0.0
        log_loss = _ratio(loss, weight)
        wins, shares = self.user_auc @ times
        return {
            "auc": _auc(positive, negative),
            "pr_auc": _average_precision(positive, negative),
            "log_loss": log_loss,
            "normalised_entropy": _ratio(log_loss, entropy),
            "calibration": _ratio(predicted, clicks),
            "ece": self._calibration_error(positive, positive + negative),
            "gauc": _ratio(wins, shares),
        }

    def _calibration_error(self, positive: Floats, weight: Floats) -> float:
        gaps = np.add.reduceat(positive - weight * self.scores, self.coarse)
        return _ratio(float(np.abs(gaps).sum()), float(weight.sum()))


def _rows_of(kept: npt.NDArray[np.bool_], weights: Floats, codes: Integers, edges: Integers) -> _Rows:
    before = np.concatenate(([0], np.cumsum(kept)))
    return _Rows(codes[kept].astype(np.int32), weights[kept], before[edges])


def _unit_sums(y: Floats, p: Floats, w: Floats, codes: Integers, *, num_units: int) -> Floats:
    clipped = np.clip(p, EPSILON, 1.0 - EPSILON)
    loss = -w * np.where(y > 0, np.log(clipped), np.log1p(-clipped))
    return np.array([np.bincount(codes, weights=values, minlength=num_units) for values in (w, w * y, w * p, loss)])


def _list_sums(
    labels: npt.ArrayLike,
    scores: npt.ArrayLike,
    lists: npt.ArrayLike,
    *,
    weights: npt.ArrayLike | None,
    codes: Integers,
    num_units: int,
    k: int,
) -> dict[str, Floats]:
    """Returns the sum and the number of a list metric's values in each unit, [2, U], by metric."""
    found = {}
    for metric in ("ndcg", "recall"):
        rows, values = list_values(metric, labels, scores, lists=lists, k=k, weights=weights)
        kept = ~np.isnan(values)
        unit = codes[rows[kept]]
        sums = [np.bincount(unit, weights=part, minlength=num_units) for part in (values[kept], np.ones(unit.size))]
        found[metric] = np.array(sums, np.float64)
    return found


def _auc(positive: Floats, negative: Floats) -> float:
    """Returns AUC from the weights of positives and negatives at each score, rising."""
    below = np.cumsum(negative) - negative
    return _ratio(float((positive * (below + 0.5 * negative)).sum()), float(positive.sum() * negative.sum()))


def _average_precision(positive: Floats, negative: Floats) -> float:
    """Returns the average precision from the weights of positives and negatives at each score, rising."""
    found = np.cumsum(positive[::-1])
    seen = found + np.cumsum(negative[::-1])
    precision = np.divide(found, seen, out=np.zeros_like(found), where=seen > 0)
    return _ratio(float((positive[::-1] * precision).sum()), float(found[-1]))


def _user_auc(
    y: Floats, p: Floats, w: Floats, codes: Integers, *, known: npt.NDArray[np.bool_], num_units: int
) -> Floats:
    """Returns AUC times weight, and weight, of each unit that has both classes, [2, U]; see `metrics.gauc`."""
    result = np.zeros((2, num_units))
    kept = np.flatnonzero(known & (w > 0))
    if kept.size == 0:
        return result
    order = kept[order_by_group(codes[kept], p[kept])]
    unit = codes[order]
    ties = run_starts(unit, p[order])
    positive = np.add.reduceat((w * y)[order], ties)
    negative = np.add.reduceat((w * (1.0 - y))[order], ties)
    first = run_starts(unit[ties])
    below = np.cumsum(negative) - negative
    below -= np.repeat(below[first], np.diff(np.append(first, ties.size)))
    pairs = np.add.reduceat(positive * (below + 0.5 * negative), first)
    num_positive, num_negative = np.add.reduceat(positive, first), np.add.reduceat(negative, first)
    both = num_positive * num_negative
    usable = both > 0
    share = (num_positive + num_negative)[usable]
    place = unit[ties][first][usable]
    result[0, place] = pairs[usable] / both[usable] * share
    result[1, place] = share
    return result


def _ratio(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator > 0 else float("nan")

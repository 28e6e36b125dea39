"""Columns of the impressions that may be results of them: a model that reads one is good in tests and useless after."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline import init_names as names
from preprocessing.guess import ColumnGuess

__all__ = ["leak_reason", "rank_auc"]

_FEW = 20  # rows: below it nothing is said of values
_CERTAIN = 0.99
_SUSPICIOUS_AUC = 0.95


def leak_reason(name: str, column: ColumnGuess, labels: npt.NDArray[np.float64] | None) -> str:
    """Returns why a column seems to be a result of the impression; empty if it does not.

    Args:
        name: of the column.
        column: as guessed, of N rows.
        labels: float64 [N] 0 or 1; None if unknown.
    """
    feedback = [word for word in names.words(name) if word in names.FEEDBACK]
    if feedback and (column.numbers is not None or column.type in ("bool", "timestamp")):
        return f"'{feedback[0]}' sounds like a result of the impression"
    return "" if labels is None or column.is_list else _by_values(column, labels)


def _by_values(column: ColumnGuess, labels: npt.NDArray[np.float64]) -> str:
    known = ~np.isnan(labels)
    rate = float(np.mean(labels[known])) if known.any() else 0.0
    if not 0.0 < rate < 0.9:
        return ""
    present = column.values.is_valid().to_numpy(zero_copy_only=False) & known
    if column.missing_share > 0.05 and present.sum() >= _FEW and np.mean(labels[present]) >= _CERTAIN:
        return f"it has a value only where the label is 1 ({np.mean(labels[present]):.0%})"
    if column.numbers is None:
        return ""
    nonzero = present & (column.numbers != 0)
    if nonzero.sum() >= _FEW and nonzero.sum() < 0.95 * len(labels) and np.mean(labels[nonzero]) >= _CERTAIN:
        return f"it is other than 0 only where the label is 1 ({np.mean(labels[nonzero]):.0%})"
    if present.sum() >= 5 * _FEW:
        auc = rank_auc(column.numbers[present], labels[present])
        if max(auc, 1.0 - auc) >= _SUSPICIOUS_AUC:
            return f"alone it tells the label (AUC {max(auc, 1.0 - auc):.3f})"
    return ""


def rank_auc(scores: npt.NDArray[np.float64], labels: npt.NDArray[np.float64]) -> float:
    """Returns the share of (positive, negative) pairs in the right order, ties half; 0.5 without such pairs.

    Mann and Whitney, 1947: U / (P * N), U from the mean ranks of equal scores.
    """
    positives = float(labels.sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return 0.5
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    mean_ranks = np.cumsum(counts) - (counts - 1) / 2
    rank_sum = float(mean_ranks[inverse] @ labels)
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)

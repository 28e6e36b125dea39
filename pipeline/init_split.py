"""Days for train, valid and test, told from the times in a sample; by content where days do not suffice."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["HASH", "propose_split"]

_DAY_MS = 86_400_000
_TRAIN, _VALID = 0.8, 0.9  # shares of the rows by the end of train and of valid
HASH = {"kind": "hash", "train": 0.8, "valid": 0.1}


def propose_split(
    times_ms: npt.NDArray[np.float64] | None, labels: npt.NDArray[np.float64] | None, *, now_ms: float
) -> tuple[dict[str, Any], str, str]:
    """Returns the split as a config declares it, the period in which rows are stored, and a comment.

    Args:
        times_ms: float64 [N] of the sampled impressions, NaN where missing; None without a clock.
        labels: float64 [N] 0 or 1, NaN where unknown; None if the sample cannot tell.
        now_ms: what happened later did not happen.
    """
    if times_ms is None or not np.any(~np.isnan(times_ms)):
        return dict(HASH), "day", "the impressions have no time, so rows are split by their content"
    known = ~np.isnan(times_ms)
    days = _without_strays(np.floor(times_ms[known] / _DAY_MS).astype(np.int64), today=now_ms / _DAY_MS)
    found, counts = np.unique(days, return_counts=True)
    span = int(found[-1] - found[0]) + 1
    period = "year" if span > 730 else "month" if span > 180 else "day"
    if len(found) < 3:
        return dict(HASH), period, f"only {len(found)} day(s) were seen, too few for a split by days"
    last_train, last_valid = _cuts(np.cumsum(counts) / counts.sum())
    days_of = np.floor(times_ms / _DAY_MS)
    if labels is not None and not _both_classes(days_of, labels, [found[last_train], found[last_valid], found[-1]]):
        return dict(HASH), period, "split by days, a part would have one class only: rows are split by their content"
    split = {
        "kind": "time",
        "train_until": _date(found[last_train]),
        "valid_until": _date(found[last_valid]),
        "test_until": _date(found[-1]),
    }
    return split, period, f"days from {_date(found[0])} to {_date(found[-1])} were seen"


def _without_strays(days: npt.NDArray[np.int64], *, today: float) -> npt.NDArray[np.int64]:
    """Returns the days without those that a broken clock wrote: in the future, or few rows far from all others."""
    past = days[days <= today]
    days = past if len(past) else days
    low, high = np.quantile(days, [0.02, 0.98])
    margin = high - low + 2
    return days[(days >= low - margin) & (days <= high + margin)]


def _cuts(shares: npt.NDArray[np.float64]) -> tuple[int, int]:
    """Returns the indices of the last days of train and of valid; each part has a day at least."""
    last = len(shares) - 1
    train = min(int(np.argmin(np.abs(shares[: last - 1] - _TRAIN))), last - 2)
    valid = min(max(train + 1, int(np.argmin(np.abs(shares[:last] - _VALID)))), last - 1)
    return train, valid


def _both_classes(days: npt.NDArray[np.float64], labels: npt.NDArray[np.float64], ends: list[np.int64]) -> bool:
    start = -np.inf
    for end in ends:
        part = labels[(days > start) & (days <= end)]
        if not np.any(part == 0) or not np.any(part == 1):
            return False
        start = float(end)
    return True


def _date(day: np.int64) -> dt.date:
    return dt.date(1970, 1, 1) + dt.timedelta(days=int(day))

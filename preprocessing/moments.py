"""Count, mean and deviation of a number's values, as states that merge."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["Moments", "merge_moments", "moments_of"]


@dataclasses.dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations from the mean."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def deviation(self) -> float:
        """Returns the population standard deviation; 0 of nothing."""
        return math.sqrt(self.squares / self.count) if self.count else 0.0


def moments_of(values: npt.NDArray[np.float64]) -> Moments:
    """Returns the moments of finite values."""
    if len(values) == 0:
        return Moments()
    mean = float(values.mean())
    return Moments(count=len(values), mean=mean, squares=float(np.square(values - mean).sum()))


def merge_moments(parts: Sequence[Moments]) -> Moments:
    """Returns the moments of all parts together, merged in the order given.

    Chan, Golub, LeVeque (1979), eq. 2.1: no cancellation where the mean is large against the deviation.
    """
    merged = Moments()
    for part in parts:
        count = merged.count + part.count
        if part.count == 0:
            continue
        delta = part.mean - merged.mean
        merged = Moments(
            count=count,
            mean=merged.mean + delta * part.count / count,
            squares=merged.squares + part.squares + delta * delta * merged.count * part.count / count,
        )
    return merged

"""How often each number of a column occurs: exactly where its distinct values are few, else by histogram bin.

A histogram bin is 1/2048 of its value wide, so that it cannot tell 20260101 from 20260102; the tokens of a column
can, as long as they are all there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from preprocessing.histogram import Histogram
from preprocessing.profile import ColumnProfile

__all__ = ["NumberCounts", "number_counts"]


@dataclasses.dataclass(frozen=True)
class NumberCounts:
    """Numbers, rising, and the count of each."""

    values: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]

    def total(self) -> int:
        """Returns the number of values counted."""
        return int(self.counts.sum())

    def before(self) -> npt.NDArray[np.int64]:
        """Returns for each number how many values are smaller."""
        return np.cumsum(self.counts) - self.counts

    def quantiles(self, shares: Sequence[float]) -> npt.NDArray[np.float64]:
        """Returns for each share q in [0, 1] the value at 0-based rank floor(q * n) of n, of which there is one."""
        total = self.total()
        ranks = np.minimum(np.floor(np.asarray(shares) * total), total - 1)
        return self.values[np.searchsorted(np.cumsum(self.counts), ranks, side="right")]


def number_counts(*columns: ColumnProfile) -> tuple[NumberCounts, ...]:
    """Returns the counts of columns of numbers, all exact or all by bin, so that they can be compared."""
    if all(column.tokens.is_exact for column in columns):
        return tuple(_exact(column) for column in columns)
    return tuple(_binned(column.values) for column in columns if column.values is not None)


def _exact(column: ColumnProfile) -> NumberCounts:
    values = column.tokens.texts.cast(pa.string()).cast(pa.float64()).to_numpy()
    order = np.argsort(values, kind="stable")
    return NumberCounts(values[order], column.tokens.counts[order])


def _binned(histogram: Histogram) -> NumberCounts:
    return NumberCounts(histogram.edges(), histogram.counts)

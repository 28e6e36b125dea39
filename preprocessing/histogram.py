"""A histogram fine enough for quantiles, whose merged state does not depend on the order of merging."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Histogram", "merge_histograms"]

# A double is 1 sign, 11 exponent and 52 mantissa bits: dropping 41 keeps 11 bits of mantissa, so that a bin is at
# most 1/2048 of its value wide, integers below 4096 are exact, and a column has some thousand bins.
_DROPPED_BITS = 41
_DROPPED_MASK = np.int64((1 << _DROPPED_BITS) - 1)
_MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF)


@dataclasses.dataclass(frozen=True)
class Histogram:
    """Counts of values by the leading bits of their binary form; independent of the order of merging.

    Attributes:
        keys: int64, rising; the top 23 bits of a double, mapped so that keys rise as values do.
        counts: int64, of each key, all above 0.
    """

    keys: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, values: npt.NDArray[np.float64]) -> Histogram:
        """Returns the histogram of finite values."""
        bits = (values + 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
        keys = _in_order(bits) >> _DROPPED_BITS
        counted = pc.value_counts(pa.array(keys))
        return _sorted(counted.field("values").to_numpy(), counted.field("counts").to_numpy())

    def total(self) -> int:
        """Returns the number of values counted."""
        return int(self.counts.sum())

    def edges(self) -> npt.NDArray[np.float64]:
        """Returns the value nearest to zero of each bin, rising."""
        bits = self.keys << _DROPPED_BITS
        return _in_order(np.where(bits < 0, bits | _DROPPED_MASK, bits)).view(np.float64)

    def quantiles(self, shares: Sequence[float]) -> npt.NDArray[np.float64]:
        """Returns for each share q in [0, 1] the edge of the bin with the value at 0-based rank floor(q * n)."""
        total = self.total()
        if total == 0:
            return np.full(len(shares), np.nan)
        ranks = np.minimum(np.floor(np.asarray(shares) * total), total - 1)
        return self.edges()[np.searchsorted(np.cumsum(self.counts), ranks, side="right")]

    def boundaries(self, num_buckets: int) -> tuple[float, ...]:
        """Returns rising boundaries that cut the values into at most `num_buckets` parts of nearly equal size.

        A value equal to a boundary lies above it. Parts that would be empty are left out.
        """
        if self.total() == 0:
            return ()
        inner = np.unique(self.quantiles([i / num_buckets for i in range(1, num_buckets)]))
        return tuple(float(edge) for edge in inner[inner > self.edges()[0]])


def _in_order(bits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Maps the bits of doubles to integers of the same order, and back: it is its own inverse."""
    return bits ^ ((bits >> 63) & _MAGNITUDE)


def _sorted(keys: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> Histogram:
    order = np.argsort(keys)
    return Histogram(keys=keys[order], counts=counts[order])


def merge_histograms(parts: Sequence[Histogram]) -> Histogram:
    """Returns the histogram of all parts together; the order of parts does not matter."""
    keys, inverse = np.unique(
        np.concatenate([np.zeros(0, np.int64), *(part.keys for part in parts)]), return_inverse=True
    )
    counts = np.zeros(len(keys), np.int64)
    np.add.at(counts, inverse, np.concatenate([np.zeros(0, np.int64), *(part.counts for part in parts)]))
    return Histogram(keys=keys, counts=counts)

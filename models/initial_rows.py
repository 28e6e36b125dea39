"""First values of table rows: a function of (seed, table, row, column), never of a shard or of the table's size.

So a table that is sharded, restored elsewhere or grown starts every row as the whole table would have. The
numbers come from a counter through the finaliser of splitmix64 (Steele, Lea and Flood 2014): no state, any order.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

__all__ = ["MAX_WIDTH", "initial_rows"]

MAX_WIDTH = 1 << 16
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def initial_rows(
    table: str, start: int, *, stop: int, width: int, scale: float, seed: int, dtype: str = "float32", step: int = 1
) -> NDArray[np.floating]:
    """Returns every `step`-th row from `start` to `stop - 1` of a new table, uniform in [-scale, scale).

    A wider table has the columns of a narrower one and more.
    """
    key = np.frombuffer(hashlib.sha256(f"{seed}/{table}".encode()).digest()[:8], dtype="<u8")[0]
    rows = np.arange(start, stop, step, dtype=np.uint64)[:, None]
    counter = rows * np.uint64(MAX_WIDTH) + np.arange(width, dtype=np.uint64)
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is the point
        bits = _mix(key + _GOLDEN * (counter + np.uint64(1)))
    unit = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return ((2.0 * unit - 1.0) * scale).astype(dtype)

"""Whether numbers and times lie in their declared range; integers are compared exactly."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.number_text import Mask
from preprocessing.spec import ColumnSpec
from preprocessing.timestamps import EARLIEST_MS, LATEST_MS

__all__ = ["out_of_range"]

_INT64 = (-(2**63), 2**63 - 1)


def out_of_range(values: pa.Array, kind: str, column: ColumnSpec) -> Mask:
    """Returns bool [rows]: where a value is below `min` or above `max`; times have bounds of their own."""
    lowest, highest = column.min, column.max
    if kind == "timestamp":
        lowest = max(EARLIEST_MS, lowest if lowest is not None else EARLIEST_MS)
        highest = min(LATEST_MS, highest if highest is not None else LATEST_MS)
    outside = np.zeros(len(values), np.bool_)
    if lowest is None and highest is None:
        return outside
    numbers = pc.fill_null(values, 0).to_numpy()
    integer = pa.types.is_integer(values.type)
    if lowest is not None:
        outside |= numbers < (_bound(math.ceil(lowest)) if integer and math.isfinite(lowest) else lowest)
    if highest is not None:
        outside |= numbers > (_bound(math.floor(highest)) if integer and math.isfinite(highest) else highest)
    return outside & values.is_valid().to_numpy(zero_copy_only=False)


def _bound(value: int) -> np.int64 | float:
    """Returns an integer bound, compared exactly; one that no int64 reaches as an infinity."""
    return np.int64(value) if _INT64[0] <= value <= _INT64[1] else math.copysign(math.inf, value)

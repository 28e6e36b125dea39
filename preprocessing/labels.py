"""Labels that are a comparison on a column."""

from __future__ import annotations

import operator as operators

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.errors import DataError

__all__ = ["compare"]

_OPERATORS = {
    "==": operators.eq,
    "!=": operators.ne,
    ">=": operators.ge,
    "<=": operators.le,
    ">": operators.gt,
    "<": operators.lt,
}
_INT64 = (-(2**63), 2**63 - 1)
_Floats = npt.NDArray[np.float32]


def compare(array: pa.Array | pa.ChunkedArray, operator: str, value: float) -> tuple[_Floats, npt.NDArray[np.bool_]]:
    """Returns float32 [rows] of 0 and 1, and bool [rows]: whether there was a value to compare.

    Integers are compared exactly with a whole number.

    Raises:
        DataError: if the column does not hold numbers.
    """
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type) or pa.types.is_boolean(array.type)):
        raise DataError(f"a label compares numbers, and the column holds {array.type}; declare it int64 or float64")
    valid = array.is_valid().to_numpy(zero_copy_only=False) if isinstance(array, pa.Array) else _valid(array)
    wide = pa.float64() if pa.types.is_floating(array.type) else pa.int64()
    numbers = pc.fill_null(array.cast(wide), 0).to_numpy()
    exact = wide == pa.int64() and float(value).is_integer() and _INT64[0] <= int(value) <= _INT64[1]
    truth = _OPERATORS[operator](numbers, np.int64(value) if exact else np.float64(value))
    valid = valid & ~np.isnan(numbers) if wide == pa.float64() else valid
    return np.where(valid, truth, False).astype(np.float32), valid


def _valid(array: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return array.is_valid().to_numpy()

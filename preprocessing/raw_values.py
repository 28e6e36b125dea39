"""Raw columns in the form that the transform takes: missing values as markers, lists padded, numbers as float32.

A request to a model server carries the same arrays, so that what is trained, judged and served is one thing.
`N` rows, `L` list length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.dictionaries import as_one_array, decoded
from preprocessing.errors import DataError
from preprocessing.schema import MISSING_FLOAT32, MISSING_INT64, MISSING_STRING, RawColumn

__all__ = [
    "column_of",
    "finite_numbers",
    "flat_values",
    "is_list",
    "list_lengths",
    "pad_lists",
    "raw_dtype",
    "raw_tensors",
    "raw_values",
]

RawDtype: TypeAlias = Literal["string", "int64", "float32"]


def raw_dtype(arrow_type: pa.DataType) -> RawDtype | None:
    """Returns "string", "int64" or "float32" for a column's (or its elements') type; None if it has no raw form."""
    if pa.types.is_dictionary(arrow_type) or is_list(arrow_type):
        return raw_dtype(arrow_type.value_type)
    if any(
        test(arrow_type)
        for test in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
    ):
        return "string"
    if pa.types.is_integer(arrow_type):
        return "int64"
    return "float32" if pa.types.is_floating(arrow_type) else None


def is_list(arrow_type: pa.DataType) -> bool:
    """Returns whether a column holds lists."""
    return pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type)


def column_of(table: pa.Table, name: str) -> pa.Array:
    """Returns a column as one array.

    Raises:
        DataError: if the table has no such column.
    """
    index = table.schema.get_field_index(name)
    if index < 0:
        raise DataError(
            f"the rows have no column {name!r} (they have {', '.join(table.column_names)}); "
            "declare it in a source, or take it out of the features"
        )
    return as_one_array(table.column(index))


def raw_values(values: pa.Array, dtype: RawDtype) -> npt.NDArray[Any]:
    """Returns [N] values as numpy array (bytes objects, int64, float32), nulls as the missing marker."""
    values = decoded(values)
    if dtype == "string":
        values = values.cast(pa.large_binary()).fill_null(MISSING_STRING)
        return values.to_numpy(zero_copy_only=False)
    if dtype == "int64":
        return values.cast(pa.int64()).fill_null(MISSING_INT64).to_numpy()
    with np.errstate(over="ignore"):
        return values.cast(pa.float64(), safe=False).fill_null(MISSING_FLOAT32).to_numpy().astype(np.float32)


def finite_numbers(values: pa.Array) -> npt.NDArray[np.float64]:
    """Returns the values that are not missing, as the transform sees them: float32 precision, held as float64."""
    if pa.types.is_integer(values.type):
        values = values.drop_null()
        numbers = values.cast(pa.int64()).to_numpy()
        return numbers[numbers != MISSING_INT64].astype(np.float32).astype(np.float64)
    numbers = raw_values(values, "float32")
    return numbers[np.isfinite(numbers)].astype(np.float64)


def list_lengths(values: pa.Array, *, max_length: int) -> npt.NDArray[np.int64]:
    """Returns [N] the number of values each list keeps when cut to `max_length`; 0 for a null list."""
    lengths = pc.list_value_length(values).fill_null(0)
    return np.minimum(lengths.to_numpy(zero_copy_only=False).astype(np.int64), max_length)


def flat_values(values: pa.Array, *, max_length: int) -> pa.Array:
    """Returns the values that lists keep when cut to `max_length`, in order."""
    return pc.list_slice(values, 0, max_length).flatten()


def raw_tensors(table: pa.Table, columns: Sequence[RawColumn]) -> dict[str, npt.NDArray[Any]]:
    """Returns raw columns of rows as a request carries them: [N], or [N, L] padded with the missing marker.

    Raises:
        DataError: if a column is absent.
    """
    return {raw.name: _raw_tensor(column_of(table, raw.name), raw) for raw in columns}


def _raw_tensor(column: pa.Array, raw: RawColumn) -> npt.NDArray[Any]:
    if raw.length is None:
        return raw_values(column, raw.dtype)
    kept = list_lengths(column, max_length=raw.length)
    values = raw_values(flat_values(column, max_length=raw.length), raw.dtype)
    return pad_lists(values, kept, length=raw.length, padding=raw.missing_marker())


_Value = TypeVar("_Value", bound=np.generic)


def pad_lists(
    values: npt.NDArray[_Value], lengths: npt.NDArray[np.int64], *, length: int, padding: bytes | float
) -> npt.NDArray[_Value]:
    """Returns [N, L]: row i holds the next `lengths[i]` of `values`, then `padding`."""
    padded = np.empty((len(lengths), length), dtype=values.dtype)
    padded.fill(padding)  # np.full would make an 'S' array of it first, which drops a trailing NUL
    padded[np.arange(length) < lengths[:, None]] = values
    return padded

"""Rows as JSON holds them to the arrays that a signature takes.

A key that is absent or None becomes the missing marker of its column; lists are padded with it and cut to the width.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from preprocessing.errors import ServingError
from preprocessing.schema import MISSING_FLOAT32, MISSING_INT64, MISSING_STRING

__all__ = ["InputColumn", "rows_to_arrays"]

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class InputColumn:
    """An input of a signature: `shape` has -1 for sizes that are open, the first being the rows."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None


def rows_to_arrays(
    rows: Sequence[Row], columns: Sequence[InputColumn], *, ignore_unknown: bool = False
) -> dict[str, NDArray[Any]]:
    """Returns an array for each column, of shape [B] or [B, length].

    Raises:
        ServingError: if a row has an unknown key (unless ignored) or a value that does not convert.
    """
    if not ignore_unknown:
        _check_keys(rows, {column.name for column in columns})
    return {column.name: _column(rows, column) for column in columns}


def _check_keys(rows: Sequence[Row], known: set[str]) -> None:
    for position, row in enumerate(rows):
        unknown = row.keys() - known
        if unknown:
            key = min(unknown)
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
            hint = f"; nearest column: {near[0]!r}" if near else ""
            raise ServingError(
                f"row {position}: the model has no column {key!r}{hint}; remove it or ignore unknown keys"
            )


def _column(rows: Sequence[Row], column: InputColumn) -> NDArray[Any]:
    if column.dtype not in _CONVERTERS:
        raise ServingError(f"column {column.name!r}: rows cannot be converted to {column.dtype}")
    rank = 1 if column.shape is None else len(column.shape)
    if rank not in {1, 2}:
        raise ServingError(f"column {column.name!r} has shape {column.shape}: rows hold values and flat lists only")
    values = [row.get(column.name) for row in rows]
    dtype = _CONVERTERS[column.dtype][0]
    if rank == 1:
        return _array(_convert(values, column), dtype)
    lists = [_as_list(value, column, position) for position, value in enumerate(values)]
    length = column.shape[1] if column.shape else -1
    if length < 0:
        length = max(map(len, lists), default=0)
    flat = [value for items in lists for value in _fitted(items, length)]
    return _array(_convert(flat, column), dtype).reshape(len(lists), length)


def _as_list(value: Any, column: InputColumn, position: int) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, list | tuple | np.ndarray):
        return list(value)
    raise ServingError(f"row {position}, column {column.name!r}: a list was expected, got {value!r}")


def _fitted(items: list[Any], length: int) -> list[Any]:
    return items[:length] + [None] * (length - len(items))


def _array(values: list[Any], dtype: type[np.generic]) -> NDArray[Any]:
    result: NDArray[Any] = np.empty(len(values), dtype=dtype)
    result[:] = values
    return result


def _convert(values: Iterable[Any], column: InputColumn) -> list[Any]:
    _, marker, convert = _CONVERTERS[column.dtype]
    result = []
    for position, value in enumerate(values):
        if value is None:
            if marker is None:
                raise ServingError(f"column {column.name!r} of type {column.dtype} needs a value in every row")
            result.append(marker)
            continue
        try:
            result.append(convert(value))
        except (TypeError, ValueError, OverflowError) as error:
            text = f"value {position} of column {column.name!r}: {value!r} is no {column.dtype}"
            raise ServingError(f"{text} ({error})") from error
    return result


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, bool | float) or not isinstance(value, int | np.integer):
        # 5.0 could mean the token "5" or "5.0": guessing would change the answer silently.
        raise TypeError("give text, or an integer that is meant as its digits")
    return str(value).encode("ascii")


def _to_int64(value: Any) -> int:
    if isinstance(value, float | np.floating) and math.isnan(value):
        return MISSING_INT64
    number = int(value)
    if isinstance(value, float | np.floating) and number != value:
        raise ValueError("it has a fraction")
    if not -(2**63) <= number < 2**63:
        raise OverflowError("beyond 64 bits")
    return number


def _to_int32(value: Any) -> int:
    number = _to_int64(value)
    if not -(2**31) <= number < 2**31:
        raise OverflowError("beyond 32 bits")
    return number


def _to_bool(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError("give true or false")
    return bool(value)


_CONVERTERS: dict[str, tuple[type[np.generic], Any, Callable[[Any], Any]]] = {
    "DT_STRING": (np.object_, MISSING_STRING, _to_bytes),
    "DT_INT64": (np.int64, MISSING_INT64, _to_int64),
    "DT_FLOAT": (np.float32, MISSING_FLOAT32, float),
    "DT_DOUBLE": (np.float64, MISSING_FLOAT32, float),
    "DT_INT32": (np.int32, None, _to_int32),
    "DT_BOOL": (np.bool_, None, _to_bool),
}

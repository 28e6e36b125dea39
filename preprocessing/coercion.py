"""One column from what a file holds to its declared type: missing values, conversion, range.

NaN and infinities are missing, in every numeric type. Strings stay the bytes that they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.list_cells import make_lists, to_lists
from preprocessing.number_text import Converted, Mask, bool_from_text, float64_from_text, int64_from_text, put_null
from preprocessing.spec import ColumnSpec
from preprocessing.timestamps import EARLIEST_MS, LATEST_MS, is_time, ms_from, ms_from_arrow

__all__ = ["Coerced", "arrow_type", "coerce"]

_TYPES = {
    "string": pa.binary(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.int64(),
    "timestamp": pa.int64(),
    "list<string>": pa.list_(pa.binary()),
    "list<int64>": pa.list_(pa.int64()),
    "list<float64>": pa.list_(pa.float64()),
}
_ELEMENT = {"list<string>": "string", "list<int64>": "int64", "list<float64>": "float64"}
_INT64 = (-(2**63), 2**63 - 1)
_OUT_OF_RANGE = "out_of_range"


@dataclass(frozen=True)
class Coerced:
    """A column of its declared type.

    Attributes:
        values: the column; null where missing, and where at fault.
        faults: reason codes with bool [rows] of where they hold, in the order of the checks.
    """

    values: pa.Array
    faults: tuple[tuple[str, Mask], ...]


def arrow_type(column: ColumnSpec) -> pa.DataType:
    """Returns the type of a column after cleaning; it follows from the declaration alone."""
    return _TYPES[column.type]


def coerce(values: pa.Array, column: ColumnSpec, *, empty_is_missing: bool) -> Coerced:
    """Returns a column in its declared type.

    Args:
        values: the column as a reader gives it.
        column: its declaration.
        empty_is_missing: whether an empty string means missing; for other types than string it always does.
    """
    if column.type in _ELEMENT:
        return _coerce_list(_plain(values), column, empty_is_missing=empty_is_missing)
    return _coerce_scalar(_plain(values), column.type, column, empty_is_missing=empty_is_missing)


def _plain(values: pa.Array) -> pa.Array:
    """Returns the array without dictionary, all text as binary, and decimals and the like as text."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _plain(values.dictionary_decode())
    if pa.types.is_binary(kind):
        return values
    if pa.types.is_null(kind):
        return pa.nulls(len(values), pa.binary())
    text = (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary_view(kind)
    )
    if text:
        return values.cast(pa.binary())
    if pa.types.is_decimal(kind):
        return values.cast(pa.string()).cast(pa.binary())
    return values.cast(pa.float32()) if pa.types.is_float16(kind) else values


def _coerce_scalar(values: pa.Array, kind: str, column: ColumnSpec, *, empty_is_missing: bool) -> Coerced:
    if pa.types.is_binary(values.type):
        values = put_null(values, _missing_text(values, column, empty=empty_is_missing or kind != "string"))
    converted, invalid = _convert(values, kind, column)
    faults = [(f"invalid_{kind}", invalid)]
    converted = put_null(converted, invalid)
    if kind != "string":
        converted = put_null(converted, _missing_number(converted, column))
        outside = _out_of_range(converted, kind, column)
        faults.append((_OUT_OF_RANGE, outside))
        converted = put_null(converted, outside)
    return Coerced(converted, tuple((reason, mask) for reason, mask in faults if mask.any()))


def _missing_text(values: pa.Array, column: ColumnSpec, *, empty: bool) -> Mask:
    marks = [str(value).encode() for value in column.missing]
    if not marks and not empty:
        return np.zeros(len(values), np.bool_)
    if not marks:
        return pc.fill_null(pc.equal(pc.binary_length(values), 0), False).to_numpy(zero_copy_only=False)
    wanted = pa.array([*marks, b""] if empty else marks, pa.binary())
    return pc.is_in(values, value_set=wanted).to_numpy(zero_copy_only=False)


def _missing_number(values: pa.Array, column: ColumnSpec) -> Mask:
    """Returns where a number is a sentinel or not finite, so that `-124` is found in a file that says -124.0."""
    mask = np.zeros(len(values), np.bool_)
    numbers = values.to_numpy(zero_copy_only=False) if pa.types.is_floating(values.type) else None
    if numbers is not None:
        mask |= values.is_valid().to_numpy(zero_copy_only=False) & ~np.isfinite(numbers)
    for mark in column.missing:
        try:
            sentinel = pa.scalar(float(mark) if numbers is not None else int(mark), values.type)
        except (ValueError, OverflowError, pa.ArrowException):
            continue
        if numbers is None and isinstance(mark, float) and not mark.is_integer():
            continue
        mask |= pc.fill_null(pc.equal(values, sentinel), False).to_numpy(zero_copy_only=False)
    return mask


def _convert(values: pa.Array, kind: str, column: ColumnSpec) -> Converted:
    if kind == "timestamp":
        return ms_from(values, column.unit)
    if pa.types.is_nested(values.type) or pa.types.is_time(values.type) or pa.types.is_duration(values.type):
        return pa.nulls(len(values), _TYPES[kind]), values.is_valid().to_numpy(zero_copy_only=False)
    if kind == "string":
        return _to_text(values), np.zeros(len(values), np.bool_)
    if pa.types.is_binary(values.type):
        from_text = {"int64": int64_from_text, "float64": float64_from_text, "bool": bool_from_text}
        return from_text[kind](values)
    if is_time(values.type):
        values, _ = ms_from_arrow(values)
    if kind == "float64":
        numbers = values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values
        return numbers.cast(pa.float64(), safe=False), np.zeros(len(values), np.bool_)
    numbers, invalid = _to_int64(values)
    if kind == "bool":
        invalid |= ~pc.is_in(numbers, value_set=pa.array([0, 1, None], pa.int64())).to_numpy(zero_copy_only=False)
    return numbers, invalid


def _to_text(values: pa.Array) -> pa.Array:
    if pa.types.is_binary(values.type):
        return values
    if pa.types.is_floating(values.type):
        numbers = pc.fill_null(values, 0.0).to_numpy()
        values = put_null(values, ~np.isfinite(numbers))
    return values.cast(pa.string()).cast(pa.binary())


def _to_int64(values: pa.Array) -> Converted:
    if pa.types.is_floating(values.type):
        return _whole_floats(values)
    if pa.types.is_uint64(values.type):
        large = pc.fill_null(pc.greater(values, pa.scalar(_INT64[1], pa.uint64())), False).to_numpy(
            zero_copy_only=False
        )
        return put_null(values, large).cast(pa.int64()), large
    return values.cast(pa.int64()), np.zeros(len(values), np.bool_)


def _whole_floats(values: pa.Array) -> Converted:
    numbers = pc.fill_null(values.cast(pa.float64()), np.nan).to_numpy()
    finite = np.isfinite(numbers)
    known = np.where(finite, numbers, 0.0)
    whole = (np.floor(known) == known) & (known >= -(2.0**63)) & (known < 2.0**63)
    integers = pa.array(np.where(whole, known, 0.0).astype(np.int64))
    return put_null(integers, ~finite), finite & ~whole


def _out_of_range(values: pa.Array, kind: str, column: ColumnSpec) -> Mask:
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


def _coerce_list(values: pa.Array, column: ColumnSpec, *, empty_is_missing: bool) -> Coerced:
    """Converts the elements; a missing element is left out, an element at fault makes the whole cell one."""
    split = pa.types.is_binary(values.type)
    if split:
        values = put_null(values, _missing_text(values, column, empty=True))
    lists, invalid = to_lists(values, column.delimiter)
    null = lists.is_null().to_numpy(zero_copy_only=False)
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    rows = np.repeat(np.arange(len(lists)), sizes)
    elements = _coerce_scalar(
        _plain(lists.flatten()), _ELEMENT[column.type], column, empty_is_missing=empty_is_missing or split
    )
    faults = [("invalid_list", invalid)]
    for reason, mask in elements.faults:
        cells = np.zeros(len(lists), np.bool_)
        cells[rows[mask]] = True
        faults.append((reason, cells))
    known = elements.values.is_valid().to_numpy(zero_copy_only=False)
    at_fault = np.logical_or.reduce([mask for _, mask in faults])
    known &= ~at_fault[rows]
    result = make_lists(elements.values.filter(pa.array(known)), rows[known], null | at_fault)
    return Coerced(result, tuple((reason, mask) for reason, mask in faults if mask.any()))

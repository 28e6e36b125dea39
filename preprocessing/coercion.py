"""One column from what a file holds to its declared type: missing values, conversion, range.

NaN and infinities are missing, in every numeric type. Strings stay the bytes that they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.list_cells import make_lists, to_lists
from preprocessing.number_text import Converted, Mask, bool_from_text, float64_from_text, int64_from_text, put_null
from preprocessing.plain_arrays import plain
from preprocessing.spec import ColumnSpec
from preprocessing.timestamps import is_time, ms_from, ms_from_arrow
from preprocessing.value_range import out_of_range

__all__ = ["DICTIONARY", "Coerced", "arrow_type", "coerce"]

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
DICTIONARY = pa.dictionary(pa.int32(), pa.binary())
_LARGEST = 2**63 - 1
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


def arrow_type(column: ColumnSpec, *, dictionaries: bool = False) -> pa.DataType:
    """Returns the type of a column after cleaning; it follows from the declaration alone."""
    return DICTIONARY if dictionaries and column.type == "string" else _TYPES[column.type]


def coerce(
    values: pa.Array,
    column: ColumnSpec,
    *,
    empty_is_missing: bool,
    keep_places: bool = False,
    dictionaries: bool = False,
) -> Coerced:
    """Returns a column in its declared type.

    Args:
        values: the column as a reader gives it.
        column: its declaration.
        empty_is_missing: whether an empty string means missing; for other types than string it always does.
        keep_places: whether a missing element of a list stays as a null, so that lists keep their lengths; an element
            at fault then is one of the row only where the declaration says reject.
        dictionaries: whether a string column comes out dictionary-encoded.
    """
    options = {"empty_is_missing": empty_is_missing, "keep_places": keep_places}
    if pa.types.is_dictionary(values.type):
        distinct = coerce(values.dictionary, column, **options)
        return _spread(distinct, values.indices, dictionary=dictionaries and column.type == "string")
    if column.type in _ELEMENT:
        return _coerce_list(plain(values), column, **options)
    coerced = _coerce_scalar(plain(values), column.type, column, empty_is_missing=empty_is_missing)
    if dictionaries and column.type == "string":
        return Coerced(coerced.values.dictionary_encode(), coerced.faults)
    return coerced


def _spread(distinct: Coerced, indices: pa.Array, *, dictionary: bool) -> Coerced:
    """Returns a column from its distinct values, converted once each, and their places."""
    found = tuple((reason, _rows_with(mask, indices)) for reason, mask in distinct.faults)
    found = tuple((reason, rows) for reason, rows in found if rows.any())
    if not dictionary:
        return Coerced(distinct.values.take(indices), found)
    return Coerced(_with_codes(indices, distinct.values), found)


def _rows_with(mask: Mask, indices: pa.Array) -> Mask:
    rows = indices.is_valid().to_numpy(zero_copy_only=False).copy()
    rows[rows] = mask[indices.drop_null().to_numpy()]
    return rows


def _with_codes(indices: pa.Array, values: pa.Array) -> pa.Array:
    """Returns a dictionary array whose nulls are in its codes, never among its values."""
    codes = indices.cast(pa.int32())
    if not values.null_count:
        return pa.DictionaryArray.from_arrays(codes, values)
    kept = values.is_valid().to_numpy(zero_copy_only=False)
    renumbered = pa.array(np.cumsum(kept, dtype=np.int32) - np.int32(1), pa.int32(), mask=~kept)
    return pa.DictionaryArray.from_arrays(renumbered.take(codes), values.drop_null())


def _coerce_scalar(values: pa.Array, kind: str, column: ColumnSpec, *, empty_is_missing: bool) -> Coerced:
    if pa.types.is_binary(values.type):
        values = put_null(values, _missing_text(values, column, empty=empty_is_missing or kind != "string"))
    converted, invalid = _convert(values, kind, column)
    faults = [(f"invalid_{kind}", invalid)]
    converted = put_null(converted, invalid)
    if kind != "string":
        converted = put_null(converted, _missing_number(converted, column))
        outside = out_of_range(converted, kind, column)
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
        large = pc.fill_null(pc.greater(values, pa.scalar(_LARGEST, pa.uint64())), False).to_numpy(zero_copy_only=False)
        return put_null(values, large).cast(pa.int64()), large
    return values.cast(pa.int64()), np.zeros(len(values), np.bool_)


def _whole_floats(values: pa.Array) -> Converted:
    numbers = pc.fill_null(values.cast(pa.float64()), np.nan).to_numpy()
    finite = np.isfinite(numbers)
    known = np.where(finite, numbers, 0.0)
    whole = (np.floor(known) == known) & (known >= -(2.0**63)) & (known < 2.0**63)
    integers = pa.array(np.where(whole, known, 0.0).astype(np.int64))
    return put_null(integers, ~finite), finite & ~whole


def _coerce_list(values: pa.Array, column: ColumnSpec, *, empty_is_missing: bool, keep_places: bool) -> Coerced:
    """Converts the elements; a missing element is left out, an element at fault makes the whole cell one."""
    split = pa.types.is_binary(values.type)
    if split:
        values = put_null(values, _missing_text(values, column, empty=True))
    lists, invalid = to_lists(values, column.delimiter)
    elements = _coerce_scalar(
        plain(lists.flatten()), _ELEMENT[column.type], column, empty_is_missing=empty_is_missing or split
    )
    null = lists.is_null().to_numpy(zero_copy_only=False)
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    rows = np.repeat(np.arange(len(lists)), sizes)
    faults = [("invalid_list", invalid)]
    if not keep_places or column.on_invalid == "reject":
        faults += [(reason, _cells_with(rows[mask], len(lists))) for reason, mask in elements.faults]
    at_fault = np.logical_or.reduce([mask for _, mask in faults])
    known = ~at_fault[rows]
    if not keep_places:
        known &= elements.values.is_valid().to_numpy(zero_copy_only=False)
    result = make_lists(elements.values.filter(pa.array(known)), rows[known], null | at_fault)
    return Coerced(result, tuple((reason, mask) for reason, mask in faults if mask.any()))


def _cells_with(rows: npt.NDArray[np.int64], num_cells: int) -> Mask:
    cells = np.zeros(num_cells, np.bool_)
    cells[rows] = True
    return cells

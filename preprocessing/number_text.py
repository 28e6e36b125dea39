"""Numbers, truth values and times written as text, converted without a loop where they are well written.

A column that Arrow converts whole is done. Otherwise cells in plain form are converted by mask, and only what is left
is parsed by Python, each distinct text once. Integers never pass through floats.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["bool_from_text", "float64_from_text", "int64_from_text", "put_null", "us_from_iso_text"]

Mask = npt.NDArray[np.bool_]
Converted = tuple[pa.Array, Mask]

_INT = r"^-?[0-9]{1,18}(\.0*)?$"
_FLOAT = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_ZONED = r"[T ][0-9:.]+(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(rb"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_TRUE, _FALSE = (b"true", b"1", b"yes", b"1.0"), (b"false", b"0", b"no", b"0.0")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def int64_from_text(text: pa.Array) -> Converted:
    """Returns int64 [rows] of a binary array, and where a cell is no integer; "12.0" and "1e3" are integers."""
    string = text.view(pa.string())
    whole = None if _has_hexadecimal(text) else _cast(string, pa.int64())
    if whole is not None:
        return whole, np.zeros(len(text), np.bool_)
    plain = pc.fill_null(pc.match_substring_regex(string, _INT), False)
    digits = pc.replace_substring_regex(_only(string, plain), r"\.0*$", "")
    return _parse_rest(text, digits.cast(pa.int64()), plain, _parse_int)


def float64_from_text(text: pa.Array) -> Converted:
    """Returns float64 [rows] of a binary array, and where a cell is no number; it may hold NaN and infinities."""
    string = text.view(pa.string())
    whole = _cast(string, pa.float64())
    if whole is not None:
        return whole, np.zeros(len(text), np.bool_)
    plain = pc.fill_null(pc.match_substring_regex(string, _FLOAT), False)
    return _parse_rest(text, _only(string, plain).cast(pa.float64()), plain, _parse_float)


def bool_from_text(text: pa.Array) -> Converted:
    """Returns int64 [rows] of 0 and 1 of a binary array, and where a cell is none of true/false, 1/0, yes/no."""
    lower = pc.ascii_lower(pc.ascii_trim_whitespace(text.view(pa.string()))).view(pa.binary())
    place = pc.index_in(lower, value_set=pa.array([*_TRUE, *_FALSE], pa.binary()), skip_nulls=True)
    invalid = pc.and_(place.is_null(), text.is_valid()).to_numpy(zero_copy_only=False)
    return pc.less(place, len(_TRUE)).cast(pa.int64()), invalid


def us_from_iso_text(text: pa.Array) -> Converted:
    """Returns int64 [rows], microseconds since 1970, of ISO 8601 text, and where it is none.

    Without an offset a time is UTC.
    """
    string = text.view(pa.string())
    zoned = pc.fill_null(pc.match_substring_regex(string, _ZONED), False)
    naive = _cast(_only(string, pc.invert(zoned)), pa.timestamp("us"))
    aware = _cast(_only(string, zoned), pa.timestamp("us", "UTC"))
    if naive is not None and aware is not None:
        return pc.coalesce(naive.cast(pa.int64()), aware.cast(pa.int64())), np.zeros(len(text), np.bool_)
    done = naive if naive is not None else aware
    if done is None:
        done = pa.nulls(len(text), pa.int64())
    return _parse_rest(text, done.cast(pa.int64()), done.is_valid(), _parse_iso)


def put_null(array: pa.Array, mask: Mask) -> pa.Array:
    """Returns the array with null where `mask` is set."""
    if not mask.any():
        return array
    return pc.if_else(pa.array(mask), pa.scalar(None, array.type), array)


def _only(string: pa.Array, mask: pa.Array) -> pa.Array:
    return pc.if_else(mask, string, pa.scalar(None, string.type))


def _cast(string: pa.Array, kind: pa.DataType) -> pa.Array | None:
    try:
        return string.cast(kind)
    except pa.ArrowInvalid:
        return None


def _has_hexadecimal(text: pa.Array) -> bool:
    """Returns whether a cell may be hexadecimal, which Arrow takes for an integer and Rankmill does not."""
    content = text.buffers()[2]
    if content is None or not len(text):
        return False
    offsets = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1]
    letters = np.frombuffer(content, np.uint8)[offsets[0] : offsets[-1]]
    return bool(((letters == ord("x")) | (letters == ord("X"))).any())


def _parse_rest(text: pa.Array, values: pa.Array, done: pa.Array, parse: Callable[[bytes], Any]) -> Converted:
    """Returns `values` with the cells that are not done parsed one by one; `parse` gives None for missing."""
    rest = pc.and_(pc.invert(done), text.is_valid())
    cells = text.filter(rest).dictionary_encode()
    parsed: list[Any] = []
    wrong = np.zeros(len(cells.dictionary), np.bool_)
    for index, cell in enumerate(cells.dictionary.to_pylist()):
        try:
            parsed.append(parse(cell.strip()))
        except (ValueError, OverflowError):
            parsed.append(None)
            wrong[index] = True
    filled = pc.replace_with_mask(values, rest, pa.array(parsed, values.type).take(cells.indices))
    invalid = np.zeros(len(text), np.bool_)
    invalid[rest.to_numpy(zero_copy_only=False)] = wrong[cells.indices.to_numpy()]
    return filled, invalid


def _parse_int(cell: bytes) -> int | None:
    if not cell or _NOT_FINITE.fullmatch(cell):
        return None
    if not _NUMBER.fullmatch(cell):
        raise ValueError("not a number")
    number = decimal.Decimal(cell.decode())
    if number.adjusted() > 18 or number != number.to_integral_value():
        raise ValueError("not an integer of 64 bits")
    value = int(number)
    if not -(2**63) <= value < 2**63:
        raise ValueError("not an integer of 64 bits")
    return value


def _parse_float(cell: bytes) -> float | None:
    if not cell or _NOT_FINITE.fullmatch(cell):
        return None
    if not _NUMBER.fullmatch(cell):
        raise ValueError("not a number")
    return float(cell)


def _parse_iso(cell: bytes) -> int | None:
    if not cell:
        return None
    moment = dt.datetime.fromisoformat(cell.decode("ascii"))
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return (aware - _EPOCH) // dt.timedelta(microseconds=1)

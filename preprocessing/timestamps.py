"""Times as int64 milliseconds since 1970 UTC, from text, numbers or Arrow's own types."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.number_text import Converted, float64_from_text, int64_from_text, put_null, us_from_iso_text

__all__ = ["EARLIEST_MS", "LATEST_MS", "is_time", "ms_from", "ms_from_arrow"]

# From 0001-01-03 to the end of 9999-12-29: what calendars can hold in every time zone.
EARLIEST_MS, LATEST_MS = -62_135_424_000_000, 253_402_127_999_999

_PER_S = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_OUT = LATEST_MS + 1  # stands for a time too far away to be scaled; the range check finds it


def is_time(kind: pa.DataType) -> bool:
    """Returns whether Arrow itself knows values of this type as points in time."""
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)


def ms_from(values: pa.Array, unit: str) -> Converted:
    """Returns int64 [rows] in milliseconds and where a value is no time; it may lie out of the valid range.

    Args:
        values: binary, a number type, or a time type (whose own unit counts).
        unit: s, ms, us, or iso for text by ISO 8601.
    """
    if is_time(values.type):
        return ms_from_arrow(values)
    if pa.types.is_binary(values.type):
        return _from_iso(values) if unit == "iso" else _from_text(values, _PER_S[unit])
    right = np.zeros(len(values), np.bool_)
    if unit != "iso" and pa.types.is_floating(values.type):
        return _from_floats(values, _PER_S[unit]), right
    if unit != "iso" and pa.types.is_integer(values.type):
        if pa.types.is_uint64(values.type):
            values = pc.min_element_wise(values, pa.scalar(2**63 - 1, pa.uint64()), skip_nulls=False)
        return _scale(values.cast(pa.int64()), _PER_S[unit]), right
    return pa.nulls(len(values), pa.int64()), values.is_valid().to_numpy(zero_copy_only=False)


def ms_from_arrow(values: pa.Array) -> Converted:
    """Returns int64 [rows] in milliseconds of timestamps or dates; without a zone they are UTC."""
    kind = values.type
    unit = kind.unit if pa.types.is_timestamp(kind) else "ms"
    if pa.types.is_date32(kind):
        days = pc.multiply(values.cast(pa.int32()).cast(pa.int64()), 86_400)
        return _scale(days, _PER_S["s"]), np.zeros(len(values), np.bool_)
    return _scale(values.cast(pa.int64()), _PER_S[unit]), np.zeros(len(values), np.bool_)


def _from_iso(text: pa.Array) -> Converted:
    microseconds, invalid = us_from_iso_text(text)
    return _scale(microseconds, _PER_S["us"]), invalid


def _from_text(text: pa.Array, per_s: int) -> Converted:
    whole, invalid = int64_from_text(text)
    times = _scale(whole, per_s)
    if not invalid.any():
        return times, invalid
    rest = pa.array(invalid)
    floats, wrong = float64_from_text(text.filter(rest))  # seconds with a fraction
    times = pc.replace_with_mask(times, rest, _from_floats(floats, per_s))
    invalid[invalid] = wrong
    return times, invalid


def _scale(times: pa.Array, per_s: int) -> pa.Array:
    """Returns times in milliseconds, rounded down; those far out of range as one value that is out of range."""
    if per_s == _PER_S["ms"]:
        return times
    numbers = pc.fill_null(times, 0).to_numpy()
    if per_s > _PER_S["ms"]:
        scaled = numbers // (per_s // _PER_S["ms"])
    else:
        far = (numbers > LATEST_MS) | (numbers < EARLIEST_MS)
        scaled = np.where(far, _OUT, np.where(far, 0, numbers) * (_PER_S["ms"] // per_s))
    return put_null(pa.array(scaled), times.is_null().to_numpy(zero_copy_only=False))


def _from_floats(times: pa.Array, per_s: int) -> pa.Array:
    """Returns times in whole milliseconds, rounded; NaN and infinities as null."""
    numbers = pc.fill_null(times.cast(pa.float64()), np.nan).to_numpy()
    finite = np.isfinite(numbers)
    scaled = np.where(finite, numbers, 0.0) * (_PER_S["ms"] / per_s)
    far = np.abs(scaled) > float(LATEST_MS)
    whole = np.where(far, _OUT, np.rint(np.where(far, 0.0, scaled)).astype(np.int64))
    return put_null(pa.array(whole), ~finite)

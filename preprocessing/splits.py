"""Calendar days of a time zone, and the split of each row."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.columnar import hash_rows
from preprocessing.hashing import mix
from preprocessing.spec import ColumnSplit, HashSplit, Period, SplitSpec, TimeSplit

__all__ = ["NO_DAY", "assign", "day_of", "period_name", "period_of"]

NO_DAY = np.iinfo(np.int32).min  # the day of a row without a time; it is in no split by time

_DAY_S = 86_400
_DAY_MS = _DAY_S * 1000
_UNITS: dict[Period, Literal["D", "M", "Y"]] = {"day": "D", "month": "M", "year": "Y"}
_EPOCH = dt.date(1970, 1, 1)
# Days that Python's calendar can hold in every zone, from 0001-01-03 to 9999-12-29.
_FIRST_DAY, _LAST_DAY = -719_160, 2_932_894
_SALT = np.uint64(0x7370_6C69_7400_0001)  # a split is independent of the partition that the same hash names
_TRAIN, _VALID, _TEST, _OUT = 0, 1, 2, -1


def day_of(times_ms: npt.NDArray[np.int64], *, time_zone: str) -> npt.NDArray[np.int32]:
    """Returns int32 [rows]: the day since 1970-01-01 in the zone, by its rules at that time.

    Args:
        times_ms: int64 [rows], milliseconds since 1970 UTC.
        time_zone: a name of the IANA data base.
    """
    days = np.clip(np.unique(times_ms // _DAY_MS), _FIRST_DAY, _LAST_DAY)
    starts, offsets = _segments(np.unique(days), zoneinfo.ZoneInfo(time_zone))
    place = np.maximum(np.searchsorted(starts, times_ms // 1000, side="right") - 1, 0)
    return (((offsets[place] * 1000 + times_ms) // _DAY_MS) if len(starts) else times_ms).astype(np.int32)


def _segments(
    days: npt.NDArray[np.int64], zone: zoneinfo.ZoneInfo
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns where the offset from UTC may change on these UTC days, and the offset from there on, in seconds."""
    starts: list[int] = []
    offsets: list[int] = []
    for day in days.tolist():
        begin, end = day * _DAY_S, (day + 1) * _DAY_S
        before, after = _offset(begin, zone), _offset(end, zone)
        starts.append(begin)
        offsets.append(before)
        if before != after:
            starts.append(_transition(begin, end, zone))
            offsets.append(after)
    return np.array(starts, np.int64), np.array(offsets, np.int64)


def _transition(begin: int, end: int, zone: zoneinfo.ZoneInfo) -> int:
    """Returns the first second in (begin, end] with the offset of `end`, by bisection."""
    after = _offset(end, zone)
    while end - begin > 1:
        middle = (begin + end) // 2
        if _offset(middle, zone) == after:
            end = middle
        else:
            begin = middle
    return end


def _offset(time_s: int, zone: zoneinfo.ZoneInfo) -> int:
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=time_s)
    offset = moment.astimezone(zone).utcoffset() or dt.timedelta(0)
    return round(offset.total_seconds())


def period_of(days: npt.NDArray[np.int32], period: Period) -> npt.NDArray[np.int64]:
    """Returns int64 [rows]: the days themselves, or months or years since 1970, of days since 1970."""
    return days.astype("datetime64[D]").astype(f"datetime64[{_UNITS[period]}]").astype(np.int64)


def period_name(number: int, period: Period) -> str:
    """Returns 2026-11-30, 2026-11 or 2026."""
    return str(np.datetime64(number, _UNITS[period]))


def assign(table: pa.Table, spec: SplitSpec, *, days: npt.NDArray[np.int32] | None) -> npt.NDArray[np.int8]:
    """Returns int8 [rows]: 0 train, 1 valid, 2 test, -1 left out.

    Args:
        table: the rows, with the columns that the split names.
        spec: how to split.
        days: int32 [rows] of `day_of`, `NO_DAY` without a time; needed by a split by time.
    """
    if isinstance(spec, HashSplit):
        return _by_hash(table, spec)
    if isinstance(spec, ColumnSplit):
        return _by_column(table.column(spec.column), spec)
    if days is None:
        raise ValueError("a split by time needs the day of each row")
    return _by_day(days, spec)


def _by_day(days: npt.NDArray[np.int32], spec: TimeSplit) -> npt.NDArray[np.int8]:
    last = [(date - _EPOCH).days for date in (spec.train_until, spec.valid_until)]
    result = np.searchsorted(last, days, side="left").astype(np.int8)
    out = days == NO_DAY
    if spec.train_from is not None:
        out |= days < (spec.train_from - _EPOCH).days
    if spec.test_until is not None:
        out |= days > (spec.test_until - _EPOCH).days
    result[out] = _OUT
    return result


def _by_hash(table: pa.Table, spec: HashSplit) -> npt.NDArray[np.int8]:
    """Splits by hash; without a key, columns that preprocessing has added (`__...`) do not take part."""
    names = spec.key or sorted(name for name in table.column_names if not name.startswith("__"))
    hashes = mix(hash_rows(table, names) ^ _SALT)
    share = (hashes >> np.uint64(11)).astype(np.float64) / 2.0**53
    result = np.full(table.num_rows, _TEST, np.int8)
    result[share < spec.train + spec.valid] = _VALID
    result[share < spec.train] = _TRAIN
    return result


def _by_column(column: pa.ChunkedArray, spec: ColumnSplit) -> npt.NDArray[np.int8]:
    text = column if pa.types.is_binary(column.type) else column.cast(pa.string()).cast(pa.binary())
    result = np.full(len(column), _OUT, np.int8)
    for split, names in ((_TEST, spec.test), (_VALID, spec.valid), (_TRAIN, spec.train)):
        wanted = pa.array([name.encode() for name in names], pa.binary())
        result[pc.is_in(text, value_set=wanted).to_numpy()] = split
    return result

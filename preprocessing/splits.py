"""Calendar days of a time zone, and the split of each row."""

from __future__ import annotations

import datetime as dt
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.columnar import hash_rows
from preprocessing.dictionaries import decoded
from preprocessing.hashing import mix
from preprocessing.spec import ColumnSplit, HashSplit, Period, RollingSplit, SplitSpec, TimeSplit
from preprocessing.time_zones import zone_offsets

__all__ = ["NO_DAY", "assign", "day_of", "period_name", "period_of"]

NO_DAY = np.iinfo(np.int32).min  # the day of a row without a time; it is in no split by time

_DAY_MS = 86_400_000
_UNITS: dict[Period, Literal["D", "M", "Y"]] = {"day": "D", "month": "M", "year": "Y"}
_EPOCH = dt.date(1970, 1, 1)
_SALT = np.uint64(0x7370_6C69_7400_0001)  # a split is independent of the partition that the same hash names
_TRAIN, _VALID, _TEST, _OUT = 0, 1, 2, -1


def day_of(times_ms: npt.NDArray[np.int64], *, time_zone: str) -> npt.NDArray[np.int32]:
    """Returns int32 [rows]: the day since 1970-01-01 in the zone, by the same offsets as hour and weekday features.

    Args:
        times_ms: int64 [rows], milliseconds since 1970 UTC, of years 1 to 9999.
        time_zone: a name of the IANA data base.
    """
    zone = zone_offsets(time_zone)
    place = np.searchsorted(np.array(zone.transitions_ms, np.int64), times_ms, side="right")
    return ((times_ms + np.array(zone.offsets_ms, np.int64)[place]) // _DAY_MS).astype(np.int32)


def period_of(days: npt.NDArray[np.int32], period: Period) -> npt.NDArray[np.int64]:
    """Returns int64 [rows]: the days themselves, or months or years since 1970, of days since 1970."""
    return days.astype("datetime64[D]").astype(f"datetime64[{_UNITS[period]}]").astype(np.int64)


def period_name(number: int, period: Period) -> str:
    """Returns 2026-11-30, 2026-11 or 2026."""
    return str(np.datetime64(int(number), _UNITS[period]))


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
    return _by_day(days, spec.days() if isinstance(spec, RollingSplit) else spec)


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
    text = decoded(column)
    if not pa.types.is_binary(text.type):
        text = text.cast(pa.string()).cast(pa.binary())
    result = np.full(len(column), _OUT, np.int8)
    for split, names in ((_TEST, spec.test), (_VALID, spec.valid), (_TRAIN, spec.train)):
        wanted = pa.array([name.encode() for name in names], pa.binary())
        result[pc.is_in(text, value_set=wanted).to_numpy()] = split
    return result

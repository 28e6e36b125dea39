"""The offsets of a time zone as two arrays: for whole columns of times, and for a TensorFlow graph."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import zoneinfo

from preprocessing.errors import ConfigError

__all__ = ["ZoneOffsets", "zone_offsets"]

# Offsets before and after are those of the first and last instant. Transitions are found by comparing days:
# no zone of the database has changed twice within one.
_FIRST_YEAR, _LAST_YEAR = 1800, 2100
_DAY_S = 86_400
_SECOND = dt.timedelta(seconds=1)


@dataclasses.dataclass(frozen=True)
class ZoneOffsets:
    """`offsets_ms[i]` is added to UTC from `transitions_ms[i - 1]` (inclusive) to `transitions_ms[i]` (exclusive)."""

    transitions_ms: tuple[int, ...]
    offsets_ms: tuple[int, ...]


@functools.lru_cache(maxsize=8)
def zone_offsets(time_zone: str) -> ZoneOffsets:
    """Returns the offsets of an IANA zone from 1800 to 2100.

    Raises:
        ConfigError: if there is no such zone.
    """
    try:
        zone = zoneinfo.ZoneInfo(time_zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(
            f"data.time_zone: no such time zone: {time_zone!r}; give one such as 'Europe/Berlin'"
        ) from error
    first, last = (_seconds(dt.datetime(year, 1, 1, tzinfo=dt.UTC)) for year in (_FIRST_YEAR, _LAST_YEAR))
    transitions: list[int] = []
    offsets = [_offset_s(zone, first)]
    for day in range(first, last, _DAY_S):
        offset = _offset_s(zone, day + _DAY_S)
        if offset != offsets[-1]:
            transitions.append(_transition(zone, before=day, after=day + _DAY_S))
            offsets.append(offset)
    return ZoneOffsets(
        transitions_ms=tuple(second * 1000 for second in transitions),
        offsets_ms=tuple(offset * 1000 for offset in offsets),
    )


def _seconds(instant: dt.datetime) -> int:
    return int(instant.timestamp())


def _offset_s(zone: zoneinfo.ZoneInfo, second: int) -> int:
    offset = dt.datetime.fromtimestamp(second, zone).utcoffset()
    return 0 if offset is None else offset // _SECOND


def _transition(zone: zoneinfo.ZoneInfo, *, before: int, after: int) -> int:
    """Returns the first second with the offset of `after`, by bisection."""
    new = _offset_s(zone, after)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset_s(zone, middle) == new:
            after = middle
        else:
            before = middle
    return after

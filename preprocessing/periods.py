"""Where a period of stored rows begins, in the declared zone."""

from __future__ import annotations

from typing import Literal

import numpy as np

from preprocessing.spec import Period
from preprocessing.time_zones import zone_offsets

__all__ = ["WITHOUT_PERIOD", "period_start_ms"]

WITHOUT_PERIOD = 0  # the one period of rows that have no time

_UNITS: dict[Period, Literal["D", "M", "Y"]] = {"day": "D", "month": "M", "year": "Y"}
_DAY_MS = 86_400_000


def period_start_ms(number: int, period: Period, *, time_zone: str) -> int:
    """Returns the first instant, in ms since 1970 UTC, at which the calendar of the zone shows this period.

    Midnight may not exist (clocks that go forward then), or come twice (clocks that go back over it): the first counts.

    Args:
        number: days, months or years since 1970, as of `splits.period_of`.
        period: the unit of `number`.
        time_zone: a name of the IANA data base.
    """
    midnight = int(np.datetime64(number, _UNITS[period]).astype("datetime64[D]").astype(np.int64)) * _DAY_MS
    zone = zone_offsets(time_zone)
    begins = [-(2**62), *zone.transitions_ms]
    ends = [*zone.transitions_ms, 2**62]
    shown = (max(begin, midnight - offset) for begin, offset in zip(begins, zone.offsets_ms, strict=True))
    return min(first for first, end in zip(shown, ends, strict=True) if first < end)

import datetime as dt
import zoneinfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.errors import ConfigError
from preprocessing.time_zones import zone_offsets

ZONES = ("UTC", "Asia/Shanghai", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia")


def offset_ms(zone: str, time_ms: int) -> int:
    found = zone_offsets(zone)
    return found.offsets_ms[int(np.searchsorted(found.transitions_ms, time_ms, side="right"))]


@settings(deadline=None)  # the first look at a zone takes some 0.1 s
@given(st.sampled_from(ZONES), st.integers(-2_200_000_000, 4_100_000_000))
def test_offsets_are_those_of_the_time_zone_database(zone: str, time_s: int) -> None:
    instant = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=time_s)
    expected = instant.astimezone(zoneinfo.ZoneInfo(zone)).utcoffset()
    assert expected is not None
    assert offset_ms(zone, time_s * 1000) == expected // dt.timedelta(milliseconds=1)


def test_summer_time_begins_to_the_millisecond() -> None:
    begin = int(dt.datetime(2026, 3, 29, 1, tzinfo=dt.UTC).timestamp()) * 1000
    assert offset_ms("Europe/Berlin", begin - 1) == 3_600_000
    assert offset_ms("Europe/Berlin", begin) == 7_200_000


def test_utc_has_one_offset() -> None:
    assert zone_offsets("UTC").transitions_ms == ()
    assert zone_offsets("UTC").offsets_ms == (0,)


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc/passwd", "Europe"])
def test_an_unknown_zone_is_a_config_error(name: str) -> None:
    with pytest.raises(ConfigError, match=r"data\.time_zone"):
        zone_offsets(name)

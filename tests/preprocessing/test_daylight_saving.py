"""Days, hours and weekdays around every kind of clock change, each row against the time zone database."""

import datetime as dt
import zoneinfo
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from preprocessing.feature_graphs import feature_graph
from preprocessing.spec import DayOfWeekFeature, HourOfDayFeature, TimeSplit
from preprocessing.splits import assign, day_of, period_name
from preprocessing.transform_plan import FeaturePlan
from preprocessing.vocabulary import PERIOD_OFFSET

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
QUARTER_MS, HOUR_MS = 900_000, 3_600_000

# Zone, a local date on or next to the change, and the hours that this date lasts.
CHANGES = [
    ("Europe/Berlin", "2026-03-29", 23),
    ("Europe/Berlin", "2026-10-25", 25),
    ("America/New_York", "2026-03-08", 23),
    ("America/New_York", "2026-11-01", 25),
    ("America/Sao_Paulo", "2018-11-04", 23),  # 00:00 does not exist: the day begins at 01:00
    ("America/Sao_Paulo", "2019-02-16", 25),  # its last hour comes twice
    ("Asia/Shanghai", "1986-05-04", 23),
    ("Asia/Shanghai", "1986-09-14", 25),
    ("Asia/Shanghai", "1991-04-14", 23),
    ("Asia/Shanghai", "1991-09-15", 25),
    ("Asia/Shanghai", "1992-04-12", 24),  # no summer time any more
    ("Australia/Lord_Howe", "2026-04-05", 24.5),
]
CHANGE_IDS = [f"{zone}-{date}" for zone, date, _ in CHANGES]


def moment_ms(moment: dt.datetime) -> int:
    return (moment - EPOCH) // dt.timedelta(milliseconds=1)


def around(date: str) -> np.ndarray:
    """Returns each quarter of an hour of three days, and the milliseconds before and after."""
    noon = moment_ms(dt.datetime.fromisoformat(date).replace(hour=12, tzinfo=dt.UTC))
    quarters = np.arange(noon - 36 * HOUR_MS, noon + 36 * HOUR_MS, QUARTER_MS)
    return np.sort(np.concatenate([quarters - 1, quarters, quarters + 1]))


def local(times_ms: np.ndarray, zone: str) -> list[dt.datetime]:
    place = zoneinfo.ZoneInfo(zone)
    return [(EPOCH + dt.timedelta(milliseconds=int(time))).astimezone(place) for time in times_ms]


@pytest.mark.parametrize(("zone", "date", "hours"), CHANGES, ids=CHANGE_IDS)
def test_every_row_around_a_change_has_the_day_of_its_clock(zone: str, date: str, hours: float) -> None:
    times = around(date)
    days = day_of(times, time_zone=zone)
    assert [period_name(day, "day") for day in days] == [f"{clock:%Y-%m-%d}" for clock in local(times, zone)]
    assert (np.diff(days) >= 0).all()


@pytest.mark.parametrize(("zone", "date", "hours"), CHANGES, ids=CHANGE_IDS)
def test_a_day_of_a_change_is_as_long_as_its_clock_makes_it(zone: str, date: str, hours: float) -> None:
    noon = moment_ms(dt.datetime.fromisoformat(date).replace(hour=12, tzinfo=dt.UTC))
    minutes = np.arange(noon - 40 * HOUR_MS, noon + 40 * HOUR_MS, 60_000)
    number = (dt.date.fromisoformat(date) - dt.date(1970, 1, 1)).days
    assert (day_of(minutes, time_zone=zone) == number).sum() == hours * 60


@pytest.mark.parametrize(("zone", "date", "hours"), CHANGES, ids=CHANGE_IDS)
def test_hours_and_weekdays_are_those_of_the_clock(zone: str, date: str, hours: float) -> None:
    times = around(date)
    clocks = local(times, zone)
    kinds: list[tuple[Any, list[int]]] = [
        (HourOfDayFeature(kind="hour_of_day", name="t"), [clock.hour for clock in clocks]),
        (DayOfWeekFeature(kind="day_of_week", name="t"), [clock.weekday() for clock in clocks]),
    ]
    for feature, expected in kinds:
        graph = feature_graph(FeaturePlan(feature), tables={}, time_zone=zone)
        found = graph(tf.constant(times)).numpy() - PERIOD_OFFSET
        assert found.tolist() == expected


def test_a_split_by_day_takes_the_day_of_25_hours_whole() -> None:
    # Berlin 2026-10-25 runs from 22:00 UTC of the day before to 23:00 UTC.
    first = moment_ms(dt.datetime(2026, 10, 24, 22, tzinfo=dt.UTC))
    times = np.array([first - 1, first, first + 25 * HOUR_MS - 1, first + 25 * HOUR_MS])
    split = TimeSplit(kind="time", train_until=dt.date(2026, 10, 24), valid_until=dt.date(2026, 10, 25))
    days = day_of(times, time_zone="Europe/Berlin")
    assert assign(None, split, days=days).tolist() == [0, 1, 1, 2]


def test_a_day_whose_midnight_does_not_exist_begins_an_hour_later() -> None:
    # Sao Paulo 2018-11-04: at 03:00 UTC clocks went from 00:00 to 01:00.
    first = moment_ms(dt.datetime(2018, 11, 4, 3, tzinfo=dt.UTC))
    assert [f"{clock:%d %H:%M}" for clock in local(np.array([first - 1, first]), "America/Sao_Paulo")] == [
        "03 23:59",
        "04 01:00",
    ]
    days = day_of(np.array([first - 1, first]), time_zone="America/Sao_Paulo")
    assert [period_name(day, "day") for day in days] == ["2018-11-03", "2018-11-04"]

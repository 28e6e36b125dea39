import datetime as dt
import zoneinfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.spec import ColumnSplit, HashSplit, TimeSplit
from preprocessing.splits import NO_DAY, assign, day_of, period_name, period_of

LIMITS = settings(deadline=None, max_examples=60)  # machines under test are busy

ZONES = [
    "UTC",
    "Asia/Shanghai",
    "America/New_York",
    "America/Sao_Paulo",  # changes at midnight
    "Pacific/Apia",  # left out 2011-12-30
    "Europe/Amsterdam",  # +0:19:32 until 1937
    "America/St_Johns",  # changed at 00:01
    "Australia/Lord_Howe",  # half an hour of summer time
    "Africa/Monrovia",  # seconds in its offset until 1972
]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def slow_day(time_ms: int, zone: str) -> int:
    moment = (EPOCH + dt.timedelta(milliseconds=time_ms)).astimezone(zoneinfo.ZoneInfo(zone))
    return moment.date().toordinal() - dt.date(1970, 1, 1).toordinal()


@LIMITS
@given(st.lists(st.integers(-4_000_000_000_000, 4_200_000_000_000), min_size=1, max_size=30), st.sampled_from(ZONES))
def test_days_are_those_of_the_calendar(times: list[int], zone: str) -> None:
    assert day_of(np.array(times), time_zone=zone).tolist() == [slow_day(time, zone) for time in times]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("year", [1918, 1937, 1945, 1987, 2011, 2026])
def test_days_around_every_quarter_of_an_hour_of_a_year(zone: str, year: int) -> None:
    start = (dt.datetime(year, 1, 1, tzinfo=dt.UTC) - EPOCH) // dt.timedelta(milliseconds=1)
    near = np.concatenate([np.arange(start, start + 366 * 86_400_000, 1_800_000) + shift for shift in (-1, 0, 60_000)])
    moments = near[np.random.default_rng(year).permutation(len(near))[:300]]
    assert day_of(moments, time_zone=zone).tolist() == [slow_day(int(time), zone) for time in moments]


def test_a_summer_time_change_moves_midnight() -> None:
    # New York 2026-03-08: clocks go forward, so the day has 23 hours; midnight is 05:00 UTC, the next 04:00 UTC.
    hour = 3_600_000
    first = (dt.datetime(2026, 3, 8, 5, tzinfo=dt.UTC) - EPOCH) // dt.timedelta(milliseconds=1)
    days = day_of(np.array([first - 1, first, first + 23 * hour - 1, first + 23 * hour]), time_zone="America/New_York")
    assert [period_name(day, "day") for day in days] == ["2026-03-07", "2026-03-08", "2026-03-08", "2026-03-09"]


def test_no_times_have_no_days() -> None:
    assert day_of(np.zeros(0, np.int64), time_zone="Asia/Tokyo").tolist() == []


def test_the_ends_of_the_calendar_have_days() -> None:
    days = day_of(np.array([-62_135_424_000_000, 253_402_127_999_999]), time_zone="America/New_York")
    assert [period_name(day, "day") for day in days] == ["0001-01-02", "9999-12-29"]


def test_days_name_dates() -> None:
    assert period_name(0, "day") == "1970-01-01"
    assert period_name(-1, "day") == "1969-12-31"
    assert period_name(20_787, "day") == "2026-11-30"


def days(*dates: str) -> np.ndarray:
    return np.array([(dt.date.fromisoformat(date) - dt.date(1970, 1, 1)).days for date in dates], np.int32)


def test_split_by_time_takes_whole_days_last_days_included() -> None:
    spec = TimeSplit(kind="time", train_until=dt.date(2022, 5, 5), valid_until=dt.date(2022, 5, 6))
    rows = days("2022-04-24", "2022-05-05", "2022-05-06", "2022-05-07", "2023-01-01")
    table = pa.table({"x": range(5)})
    assert assign(table, spec, days=rows).tolist() == [0, 0, 1, 2, 2]
    bounded = spec.model_copy(update={"train_from": dt.date(2022, 4, 25), "test_until": dt.date(2022, 5, 7)})
    assert assign(table, bounded, days=rows).tolist() == [-1, 0, 1, 2, -1]


def test_a_row_without_a_time_is_in_no_split() -> None:
    spec = TimeSplit(kind="time", train_until=dt.date(2022, 5, 5), valid_until=dt.date(2022, 5, 6))
    assert assign(pa.table({"x": [1]}), spec, days=np.array([NO_DAY], np.int32)).tolist() == [-1]


def test_split_by_hash_follows_the_key_whatever_the_order_of_rows() -> None:
    users = np.arange(20_000) % 5_000
    table = pa.table({"user": users, "n": np.arange(20_000)})
    spec = HashSplit(kind="hash", key=("user",), train=0.8, valid=0.1)
    splits = assign(table, spec, days=None)
    order = np.random.default_rng(1).permutation(20_000)
    assert assign(table.take(pa.array(order)), spec, days=None).tolist() == splits[order].tolist()
    assert (splits.reshape(4, 5_000) == splits[:5_000]).all()
    shares = np.bincount(splits[:5_000], minlength=3) / 5_000
    assert np.abs(shares - [0.8, 0.1, 0.1]).max() < 0.02


def test_split_by_hash_of_the_row_ignores_the_order_of_columns_and_added_ones() -> None:
    table = pa.table({"a": np.arange(500), "b": np.arange(500) % 7})
    spec = HashSplit(kind="hash")
    splits = assign(table, spec, days=None).tolist()
    assert assign(table.select(["b", "a"]), spec, days=None).tolist() == splits
    assert assign(table.append_column("__label_click", pa.array(np.ones(500))), spec, days=None).tolist() == splits
    assert assign(table.set_column(1, "b", pa.array(np.arange(500) % 5)), spec, days=None).tolist() != splits


def test_split_by_a_column_takes_its_text() -> None:
    spec = ColumnSplit(kind="column", column="part", train=("a", "b"), valid=("1",), test=("t",))
    part = pa.array([b"a", b"b", b"1", b"t", b"A", None], pa.binary())
    assert assign(pa.table({"part": part}), spec, days=None).tolist() == [0, 0, 1, 2, -1, -1]
    assert assign(pa.table({"part": [1, 2]}), spec, days=None).tolist() == [1, -1]


def test_months_and_years_hold_their_days() -> None:
    days = np.array([-1, 0, 30, 31, 20_787], np.int32)  # 1969-12-31, 1970-01-01, 01-31, 02-01, 2026-11-30
    assert [period_name(number, "month") for number in period_of(days, "month")] == [
        "1969-12", "1970-01", "1970-01", "1970-02", "2026-11",
    ]  # fmt: skip
    assert [period_name(number, "year") for number in period_of(days, "year")] == ["1969", *["1970"] * 3, "2026"]
    assert period_of(days, "day").tolist() == days.tolist()

"""One day of the simulated shop: requests, what they show, and which of it is clicked when."""

from __future__ import annotations

import dataclasses
import datetime as dt
import zoneinfo

import numpy as np
import numpy.typing as npt

from preprocessing.simulate_shop import HOUR_MS, Sizes, generator
from preprocessing.simulate_truth import (
    DEVICES,
    HOUR_TRAFFIC,
    IMPRESSIONS_PER_REQUEST,
    Shown,
    Truth,
    examination,
    exposures,
)

__all__ = ["DAY_MS", "Clicks", "DayEvents", "day_start_ms", "simulate_day"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

DAY_MS = 24 * HOUR_MS
SLOT_MS = HOUR_MS // 4


@dataclasses.dataclass(frozen=True)
class Clicks:
    """Clicks on the impressions of a day, by row of the impression."""

    row: Integers
    clicked_ms: Integers
    received_ms: Integers


@dataclasses.dataclass(frozen=True)
class DayEvents:
    """The impressions of a day in order of time, their true click probabilities, and the clicks that follow."""

    date: dt.date
    end_ms: int
    shown: Shown
    request: Integers
    timestamp_ms: Integers
    received_ms: Integers
    click_probability: Floats
    examined_click_probability: Floats
    clicks: Clicks


def day_start_ms(date: dt.date, *, zone: zoneinfo.ZoneInfo) -> int:
    """Returns the first instant of a local day in milliseconds since 1970 UTC."""
    return int(dt.datetime(date.year, date.month, date.day, tzinfo=zone).timestamp()) * 1000


def simulate_day(
    truth: Truth, sizes: Sizes, *, seed: int, day: int, date: dt.date, zone: zoneinfo.ZoneInfo, num_rows: int
) -> DayEvents:
    """Returns the events of day number `day`, the local day `date`; a function of its arguments alone."""
    rng = generator(seed, "events", day)
    end_ms = day_start_ms(date + dt.timedelta(days=1), zone=zone)
    num_requests = -(-num_rows // IMPRESSIONS_PER_REQUEST)
    request_ms, request_hour = _request_times(rng, num_requests, date=date, zone=zone)
    request_user = _draw(rng, truth.users.activity[: sizes.users_on(day)], (num_requests,))
    usual = truth.users.device[request_user]
    request_device = np.where(rng.random(num_requests) < 0.8, usual, rng.integers(0, len(DEVICES), num_requests))
    item = _distinct_items(rng, exposures(truth.items, day=day)[: sizes.items_on(day)], num_requests)[:num_rows]
    request = np.repeat(np.arange(num_requests), IMPRESSIONS_PER_REQUEST)[:num_rows]
    discount = np.where(rng.random(num_rows) < 0.2, rng.choice([0.9, 0.8, 0.7], size=num_rows), 1.0)
    shown = Shown(
        user=request_user[request],
        item=item,
        device=request_device[request],
        hour=request_hour[request],
        position=np.tile(np.arange(1, IMPRESSIONS_PER_REQUEST + 1), num_requests)[:num_rows],
        price_cents=np.round(truth.items.price_cents[item] * discount).astype(np.int64),
    )
    examined = truth.examined_click_probability(shown, day=day)
    probability = examined * examination(shown.position)
    timestamp_ms = request_ms[request]
    return DayEvents(
        date=date,
        end_ms=end_ms,
        shown=shown,
        request=request,
        timestamp_ms=timestamp_ms,
        received_ms=timestamp_ms + _network_delays_ms(rng, num_requests)[request],
        click_probability=probability,
        examined_click_probability=examined,
        clicks=_clicks(rng, probability, timestamp_ms),
    )


def _request_times(
    rng: np.random.Generator, num_requests: int, *, date: dt.date, zone: zoneinfo.ZoneInfo
) -> tuple[Integers, Integers]:
    """Returns rising times in ms, and their local hours; a day of 23 or 25 hours is what its zone says."""
    start_ms, end_ms = day_start_ms(date, zone=zone), day_start_ms(date + dt.timedelta(days=1), zone=zone)
    slots_ms = np.arange(start_ms, end_ms, SLOT_MS)
    hours = np.array([dt.datetime.fromtimestamp(int(ms) // 1000, zone).hour for ms in slots_ms])
    slot = _draw(rng, HOUR_TRAFFIC[hours], (num_requests,))
    times_ms = slots_ms[slot] + rng.integers(0, SLOT_MS, num_requests)
    order = np.argsort(times_ms, kind="stable")
    return times_ms[order], hours[slot][order]


def _draw(rng: np.random.Generator, weights: Floats, shape: tuple[int, ...]) -> Integers:
    """Returns numbers drawn in proportion to their weights."""
    bounds = np.cumsum(weights)
    drawn = np.searchsorted(bounds, rng.random(shape) * bounds[-1], side="right")
    return np.minimum(drawn, weights.size - 1)


def _distinct_items(rng: np.random.Generator, weights: Floats, num_requests: int) -> Integers:
    """Returns the items of each request in a row, [requests x impressions]; none twice in one request."""
    items = _draw(rng, weights, (num_requests, IMPRESSIONS_PER_REQUEST))
    pending = np.arange(num_requests)
    while pending.size:
        ranked = np.sort(items[pending], axis=1)
        pending = pending[(ranked[:, 1:] == ranked[:, :-1]).any(axis=1)]
        items[pending] = _draw(rng, weights, (pending.size, IMPRESSIONS_PER_REQUEST))
    return items.reshape(-1)


def _clicks(rng: np.random.Generator, probability: Floats, timestamp_ms: Integers) -> Clicks:
    """Returns who clicked, and when: most within minutes, a quarter after hours, all within a day."""
    row = np.flatnonzero(rng.random(probability.size) < probability)
    pondered = rng.random(row.size) < 0.25
    log_delay_s = np.where(pondered, np.log(7200.0), np.log(60.0)) + rng.normal(0.0, 1.1, row.size)
    delay_ms = (1000 * np.exp(log_delay_s)).astype(np.int64)
    clicked_ms = timestamp_ms[row] + np.clip(delay_ms, 1000, DAY_MS - 60_000)
    return Clicks(row=row, clicked_ms=clicked_ms, received_ms=clicked_ms + _network_delays_ms(rng, row.size))


def _network_delays_ms(rng: np.random.Generator, size: int) -> Integers:
    return (300 * np.exp(rng.normal(0.0, 1.0, size))).astype(np.int64)

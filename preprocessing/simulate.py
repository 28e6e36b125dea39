"""Simulated behaviour logs of a shop whose true click probabilities are known.

<out>/impressions/dt=YYYY-MM-DD.csv   one file a local day, in order of arrival
<out>/clicks/dt=YYYY-MM-DD.csv        seconds to hours after the impression, so partly in the next day's file
<out>/items.jsonl, users.parquet      side tables
<out>/truth/dt=YYYY-MM-DD.parquet     impression_id, click_probability, examined_click_probability (at position 1)
<out>/simulation.json                 what was asked, what was made, the best possible AUC; written last

What reaches the logs after the last day (clicks, late lines) stands in files of the day that follows it. The shop's
size follows from `rows_per_day`; the files of a day do not depend on how many days follow.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import json
import os
import shutil
import zoneinfo
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.errors import ArtefactError, ConfigError
from preprocessing.manifest import sync_folder, write_json
from preprocessing.simulate_day import DayEvents, day_start_ms, simulate_day
from preprocessing.simulate_logs import (
    CLICK_COLUMNS,
    IMPRESSION_COLUMNS,
    NO_LINES,
    Lines,
    click_lines,
    impression_ids,
    impression_lines,
    write_lines,
)
from preprocessing.simulate_shop import Sizes, generator, sizes_for, write_items, write_users
from preprocessing.simulate_truth import build_truth, expected_auc

__all__ = ["SUMMARY_FILE", "SimulationSummary", "simulate"]

SUMMARY_FILE = "simulation.json"
VERSION = 1
MIN_ROWS_PER_DAY = 100  # a shop of which anything can be said, even in much dirt
Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class SimulationSummary:
    """What a simulation made. `best_auc` and `popularity_auc` are of the last day, in expectation over clicks.

    `best_auc` is what the true probabilities reach, `popularity_auc` what an item's mean true probability reaches.
    `dirt` counts spoilt lines by log and kind, as `impressions/late`.
    """

    folder: Path
    num_days: int
    num_users: int
    num_items: int
    num_impressions: int
    num_clicks: int
    best_auc: float
    popularity_auc: float
    dirt: dict[str, int]

    @property
    def click_rate(self) -> float:
        """Returns clicks per impression."""
        return self.num_clicks / self.num_impressions


@dataclasses.dataclass
class _Tally:
    """What is known of the days so far."""

    waiting_impressions: Lines
    waiting_clicks: Lines
    item_probability: npt.NDArray[np.float64]
    item_rows: npt.NDArray[np.float64]
    dirt: collections.Counter[str]
    num_clicks: int = 0


def simulate(
    out: Path,
    *,
    days: int,
    rows_per_day: int,
    seed: int,
    start: dt.date,
    dirt: float = 0.0,
    time_zone: str = "UTC",
    progress: Progress | None = None,
) -> SimulationSummary:
    """Writes the logs of a simulated shop to the folder `out` and returns a summary.

    The same arguments give the same bytes. A folder that holds just these logs is left as it is.

    Args:
        out: the folder to make; its parent is made if need be.
        days: number of local days.
        rows_per_day: impressions on each of them, at least 100.
        seed: decides the shop and everything in it.
        start: the first day.
        dirt: share of log lines to spoil, 0 to 0.5; see `simulate_logs`.
        time_zone: IANA name of the zone of the days.
        progress: called with (days done, days) after each day.

    Raises:
        ConfigError: if an argument breaks its rule.
        ArtefactError: if `out` holds something else.
    """
    zone = _checked_zone(days=days, rows_per_day=rows_per_day, dirt=dirt, time_zone=time_zone)
    asked: dict[str, Any] = {"version": VERSION, "days": days, "rows_per_day": rows_per_day, "seed": seed}
    asked |= {"dirt": dirt, "start": start.isoformat(), "time_zone": time_zone}
    if _already_made(out, asked):
        return _read_summary(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        made = _write(temporary, asked=asked, start=start, zone=zone, progress=progress or (lambda _done, _of: None))
        write_json(temporary / SUMMARY_FILE, {"asked": asked, "made": made})
        sync_folder(temporary)
        temporary.rename(out)
        sync_folder(out.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return _read_summary(out)


def _write(
    folder: Path, *, asked: dict[str, Any], start: dt.date, zone: zoneinfo.ZoneInfo, progress: Progress
) -> dict[str, Any]:
    """Writes all but the summary into `folder` and returns what it says."""
    for name in ("impressions", "clicks", "truth"):
        (folder / name).mkdir(parents=True)
    days, seed, dirt, num_rows = asked["days"], asked["seed"], asked["dirt"], asked["rows_per_day"]
    sizes = sizes_for(num_rows)
    truth = build_truth(sizes, seed=seed, days=days)
    num_items = sizes.items_on(days - 1)
    tally = _Tally(NO_LINES, NO_LINES, np.zeros(num_items), np.zeros(num_items), collections.Counter())
    dates = [start + dt.timedelta(days=day) for day in range(days)]
    for day, date in enumerate(dates):
        events = simulate_day(truth, sizes, seed=seed, day=day, date=date, zone=zone, num_rows=num_rows)
        kept = _write_day(folder, events, tally, dirt=dirt, rng=generator(seed, "dirt", day))
        progress(day + 1, days)
    _write_rest(folder, tally, date=start + dt.timedelta(days=days))
    starts_ms = np.array([day_start_ms(date, zone=zone) for date in dates])
    write_users(folder / "users.parquet", truth.users, day_starts_ms=starts_ms)
    write_items(folder / "items.jsonl", truth.items, day_starts_ms=starts_ms)
    return _summary(sizes, tally, events, kept, days=days)


def _summary(sizes: Sizes, tally: _Tally, last: DayEvents, kept: npt.NDArray[np.bool_], *, days: int) -> dict[str, Any]:
    popularity = tally.item_probability / np.maximum(tally.item_rows, 1.0)
    probability = last.click_probability[kept]
    return {
        "num_days": days,
        "num_users": sizes.users_on(days - 1),
        "num_items": sizes.items_on(days - 1),
        "num_impressions": int(tally.item_rows.sum()),
        "num_clicks": tally.num_clicks,
        "best_auc": expected_auc(probability, probability),
        "popularity_auc": expected_auc(probability, popularity[last.shown.item[kept]]),
        "dirt": dict(sorted(tally.dirt.items())),
    }


def _write_day(
    folder: Path, events: DayEvents, tally: _Tally, *, dirt: float, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """Writes the files of a day and returns which of its impressions are not lost in dirt."""
    impressions, lost, impression_dirt = impression_lines(events, dirt=dirt, rng=rng)
    clicks, click_dirt = click_lines(events, dirt=dirt, rng=rng)
    arrived, tally.waiting_impressions = tally.waiting_impressions.plus(impressions).split(events.end_ms)
    write_lines(folder / "impressions" / f"dt={events.date}.csv", IMPRESSION_COLUMNS, arrived)
    arrived, tally.waiting_clicks = tally.waiting_clicks.plus(clicks).split(events.end_ms)
    write_lines(folder / "clicks" / f"dt={events.date}.csv", CLICK_COLUMNS, arrived)
    for log, counts in (("impressions", impression_dirt), ("clicks", click_dirt)):
        tally.dirt.update({f"{log}/{kind}": count for kind, count in counts.items()})
    size = tally.item_rows.size
    tally.item_probability += np.bincount(events.shown.item, events.click_probability, minlength=size)
    tally.item_rows += np.bincount(events.shown.item, minlength=size)
    tally.num_clicks += events.clicks.row.size
    _write_truth(folder / "truth" / f"dt={events.date}.parquet", events, ~lost)
    return ~lost


def _write_rest(folder: Path, tally: _Tally, *, date: dt.date) -> None:
    """Writes what reaches the logs only after the last day."""
    rest = (
        ("impressions", IMPRESSION_COLUMNS, tally.waiting_impressions),
        ("clicks", CLICK_COLUMNS, tally.waiting_clicks),
    )
    for log, columns, lines in rest:
        if len(lines.text):
            write_lines(folder / log / f"dt={date}.csv", columns, lines)


def _write_truth(path: Path, events: DayEvents, kept: npt.NDArray[np.bool_]) -> None:
    table = pa.table(
        {
            "impression_id": impression_ids(events),
            "click_probability": events.click_probability,
            "examined_click_probability": events.examined_click_probability,
        }
    )
    pq.write_table(table.filter(pa.array(kept)), path)


def _checked_zone(*, days: int, rows_per_day: int, dirt: float, time_zone: str) -> zoneinfo.ZoneInfo:
    if days < 1:
        raise ConfigError(f"days must be at least 1, not {days}")
    if rows_per_day < MIN_ROWS_PER_DAY:
        raise ConfigError(f"rows_per_day must be at least {MIN_ROWS_PER_DAY}, not {rows_per_day}")
    if not 0.0 <= dirt <= 0.5:
        raise ConfigError(f"dirt must be a share from 0 to 0.5, not {dirt}")
    try:
        return zoneinfo.ZoneInfo(time_zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(f"time_zone must be an IANA name such as 'Europe/Berlin', not {time_zone!r}") from error


def _already_made(out: Path, asked: dict[str, Any]) -> bool:
    if not out.exists():
        return False
    if out.is_dir() and not any(out.iterdir()):
        return False
    try:
        found = json.loads((out / SUMMARY_FILE).read_text(encoding="utf-8"))["asked"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(f"{out} exists and holds no simulated logs; remove it or name another folder") from error
    if found != asked:
        raise ArtefactError(f"{out} holds the logs of another simulation ({found}); remove it or name another folder")
    return True


def _read_summary(out: Path) -> SimulationSummary:
    made = json.loads((out / SUMMARY_FILE).read_text(encoding="utf-8"))["made"]
    return SimulationSummary(folder=out, **made)

"""Nothing from the future, over the whole line; labels, weights and clocks of several logs together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.preprocessing.tiny_logs import DAY, DERIVED, HOUR, T0, Built, build, many_rows, tree, write_logs

DERIVED_NAMES = ("clicked", "ages", "views", "user_clicks", "ctr", "ctr_2d")


def seen_before(built: Built, until: int) -> dict[str, dict[str, Any]]:
    """Returns the point-in-time columns of the rows at or before a time."""
    rows = {name: row for name, row in built.by_id().items() if row["at"] <= until}
    return {name: {column: row[column] for column in DERIVED_NAMES} for name, row in rows.items()}


@pytest.mark.parametrize(
    ("freshness", "seed"),
    [("event", 1), pytest.param("day", 2, marks=pytest.mark.slow), pytest.param("event", 3, marks=pytest.mark.slow)],
)
def test_what_happens_later_changes_no_column_of_earlier_rows(tmp_path: Path, freshness: str, seed: int) -> None:
    logs, clicks = many_rows(4, seed=seed, rows_per_day=60)
    until = T0 + 2 * DAY + 9 * HOUR
    spec = tree(derived=DERIVED, freshness=freshness)
    write_logs(tmp_path / "whole", logs, clicks)
    whole = seen_before(build(tmp_path / "whole", tmp_path / "work", spec), until)
    # Later impressions get another user and item, every second of them and of the later clicks is not there.
    changed = {
        name: [row if row[3] <= until else (row[0], "u9", "i9", row[3], 9) for i, row in enumerate(rows)
               if row[3] <= until or i % 2]
        for name, rows in logs.items()
    }  # fmt: skip
    fewer = [click for i, click in enumerate(clicks) if click[1] <= until or i % 2]
    write_logs(tmp_path / "changed", changed, fewer)
    other = seen_before(build(tmp_path / "changed", tmp_path / "other", spec), until)
    assert len(whole) > 100
    assert other == whole


def jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_labels_of_several_logs_each_by_its_own_key_touch_and_clock(tmp_path: Path) -> None:
    at = [T0 + DAY - HOUR, T0 + DAY + HOUR, T0 + 2 * DAY, T0 + 3 * DAY]  # the first two around midnight
    shown = [{"id": f"r{i}", "user": "u", "item": "i", "at": t, "in": t + 60_000} for i, t in enumerate(at)]
    shown += [{"id": "late", "user": "v", "item": "i", "at": at[0], "in": at[0] + 3 * DAY}]  # beyond the lateness
    jsonl(tmp_path / "shown.jsonl", shown)
    # One purchase within reach of both impressions around midnight, one that nobody was shown.
    buys = [("u", "i", at[1] + HOUR, 2.5), ("x", "i", at[1], 9.0)]
    jsonl(tmp_path / "buys.jsonl", [{"user": u, "item": i, "t": t, "price": p} for u, i, t, p in buys])
    jsonl(tmp_path / "clicks.jsonl", [{"id": "r2", "t": at[2] + 1000}, {"id": "r0", "t": at[0] + 1000}])
    prices = {"item": ["i", "i"], "since": [0, at[2]], "price_now": [1.0, 2.0]}
    pq.write_table(pa.table(prices), tmp_path / "prices.parquet")
    action = {"source": "buys", "key": ["user", "item"], "window_s": 4 * 3600}
    spec: dict[str, Any] = {
        "sources": {
            "shown": {
                "paths": "shown.jsonl",
                "columns": {"id": "string", "user": "string", "item": "string", "at": "timestamp", "in": "timestamp"},
            },
            "buys": {
                "paths": "buys.jsonl",
                "event_time": "t",
                "columns": {"user": "string", "item": "string", "t": "timestamp", "price": "float64"},
            },
            "clicks": {"paths": "clicks.jsonl", "event_time": "t", "columns": {"id": "string", "t": "timestamp"}},
            "prices": {
                "paths": "prices.parquet",
                "columns": {"item": "string", "since": "timestamp", "price_now": "float64"},
            },
        },
        "impressions": "shown",
        "joins": [{"source": "prices", "key": "item", "valid_from": "since"}],
        "roles": {"event_time": "at", "arrival_time": "in", "user": "user", "item": "item"},
        "labels": [
            {"name": "buy", "action": action},
            {"name": "first_buy", "action": {**action, "touch": "first"}},
            {"name": "click", "action": {"source": "clicks", "key": "id", "window_s": 60}},
        ],
        "weight": {**action, "value": "price", "default": 0.5},
        "allowed_lateness_s": 86400,
        "split": {"kind": "time", "train_until": "2026-01-06", "valid_until": "2026-01-07", "test_until": "2026-01-08"},
    }
    built = build(tmp_path, tmp_path / "work", spec)
    rows = built.by_id()
    names = ("__label_buy", "__label_first_buy", "__label_click", "__weight", "price_now")
    assert {name: tuple(row[column] for column in names) for name, row in rows.items()} == {
        "r0": (0.0, 1.0, 1.0, 0.5, 1.0),
        "r1": (1.0, 0.0, 0.0, 2.5, 1.0),
        "r2": (0.0, 0.0, 1.0, 0.5, 1.0),  # the new price holds from this very millisecond: it is not seen
        "r3": (0.0, 0.0, 0.0, 0.5, 2.0),
    }
    # A label is known once the action and the impression have arrived.
    assert (rows["r1"]["__known_buy"], rows["r2"]["__known_click"]) == (at[1] + HOUR, at[2] + 60_000)
    assert built.summary.sources["shown"]["too_late"] == 1
    orphans = {name: built.summary.counts.get(f"orphans_{name}", 0) for name in ("buy", "first_buy", "click")}
    assert orphans == {"buy": 1, "first_buy": 1, "click": 0}


@pytest.mark.parametrize("period", ["month", pytest.param("year", marks=pytest.mark.slow)])
def test_longer_periods_hold_the_same_rows(tmp_path: Path, period: str) -> None:
    write_logs(tmp_path, *many_rows(4, rows_per_day=40))
    spec = tree(derived=DERIVED)
    days = build(tmp_path, tmp_path / "days", spec)
    longer = build(tmp_path, tmp_path / "longer", {**spec, "period": period})
    assert [one.name for one in longer.periods] == [{"month": "2026-01", "year": "2026"}[period]]
    assert longer.by_id() == days.by_id()


def test_days_out_of_range_are_not_labelled_and_a_gap_is_no_end(tmp_path: Path) -> None:
    logs, clicks = many_rows(5, rows_per_day=40)
    del logs["day2"]
    write_logs(tmp_path, logs, clicks)
    split = {"kind": "time", "train_until": "2026-01-06", "valid_until": "2026-01-08", "test_until": "2026-01-09"}
    spec = tree(derived=DERIVED, split=split, days={"first": "2026-01-06"})
    built = build(tmp_path, tmp_path / "work", spec)
    assert [period.name for period in built.periods] == ["2026-01-06", "2026-01-08", "2026-01-09"]
    clicked = [row["user_clicks"] for row in built.by_id().values() if row["at"] >= T0 + 3 * DAY]
    assert min(clicked) > 0  # what was known on the 6th is known on the 8th


def test_a_hash_split_takes_the_same_rows_with_their_derived_columns(tmp_path: Path) -> None:
    logs, clicks = many_rows(3, rows_per_day=60)
    write_logs(tmp_path, logs, clicks)
    by_hash = tree(derived=DERIVED, split={"kind": "hash", "key": ["id"], "train": 0.5, "valid": 0.25})
    rows = build(tmp_path, tmp_path / "hash", by_hash).by_id()
    by_day = build(tmp_path, tmp_path / "day", tree(derived=DERIVED)).by_id()
    assert {name: {**row, "split": ""} for name, row in rows.items()} == {
        name: {**row, "split": ""} for name, row in by_day.items()
    }
    assert {row["split"] for row in rows.values()} == {"train", "valid", "test"}

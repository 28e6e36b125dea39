"""Joining one shard, against values worked out by hand."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa

from preprocessing.joining import ALL, KNOWN_PREFIX, OTHERS, WEIGHT_FOUND, Found, Joined, join_shard
from preprocessing.log_sources import HASH_COLUMN
from preprocessing.spec import DataSpec

HOUR = 3_600_000
DAY = 24 * HOUR
T0 = int(dt.datetime(2026, 1, 5, tzinfo=dt.UTC).timestamp() * 1000)


def spec_with(**changes: Any) -> DataSpec:
    tree: dict[str, Any] = {
        "sources": {
            "shown": {
                "paths": "x.csv",
                "columns": {
                    "id": "string",
                    "item": "string",
                    "at": "timestamp",
                    "got": "timestamp",
                    "w": "float64",
                    "rating": "float64",
                },
            },
            "clicks": {
                "paths": "c.csv",
                "event_time": "at",
                "columns": {"id": "string", "at": "timestamp", "s": "float64"},
            },
            "items": {"paths": "i.csv", "columns": {"item": "string", "price": "float64"}},
        },
        "impressions": "shown",
        "roles": {"event_time": "at"},
        "labels": [{"name": "click", "action": {"source": "clicks", "key": "id", "window_s": 3600}}],
        "split": {"kind": "time", "train_until": "2026-01-05", "valid_until": "2026-01-06", "test_until": "2026-01-07"},
    }
    return DataSpec.model_validate({**tree, **changes})


def shown(
    rows: list[tuple[str, str, int]], weights: list[float | None] | None = None, *, delays_ms: int = 0
) -> pa.Table:
    ids, items, times = zip(*rows, strict=True)
    return pa.table(
        {
            "id": pa.array([i.encode() for i in ids], pa.binary()),
            "item": pa.array([i.encode() for i in items], pa.binary()),
            "at": pa.array(times, pa.int64()),
            "got": pa.array([at + delays_ms for at in times], pa.int64()),
            "w": pa.array(weights or [1.0] * len(rows), pa.float64()),
            "rating": pa.array([None if i == "?" else 4.0 for i in items], pa.float64()),
            HASH_COLUMN: pa.array(range(len(rows)), pa.uint64()),
        }
    )


def at_places(name: str, places: list[int], values: pa.Array) -> Found:
    return {name: (np.array(places, np.int64), values)}


def join(
    impressions: pa.Table,
    spec: DataSpec,
    found: Found | None = None,
    *,
    side: pa.Table | None = None,
    as_of_ms: int = T0 + 30 * DAY,
) -> Joined:
    sides = {} if side is None else {"items": side}
    return join_shard(impressions, spec=spec, sides=sides, found=found or {}, as_of_ms=as_of_ms)


def by_id(table: pa.Table, column: str) -> dict[str, Any]:
    names = [value.decode() for value in table["id"].to_pylist()]
    return dict(zip(names, table[column].to_pylist(), strict=True))


def test_a_row_that_an_action_was_found_for_is_positive_and_the_others_are_negative() -> None:
    found = at_places(KNOWN_PREFIX + "click", [1], pa.array([T0 + 5], pa.int64()))
    rows = join(shown([("a", "x", T0), ("b", "x", T0)]), spec_with(), found).parts[ALL]
    assert by_id(rows, "__label_click") == {"a": 0.0, "b": 1.0}
    assert by_id(rows, KNOWN_PREFIX + "click") == {"a": None, "b": T0 + 5}


def test_a_label_is_known_once_both_the_action_and_its_impression_have_arrived() -> None:
    spec = spec_with(roles={"event_time": "at", "arrival_time": "got"})
    times = pa.array([T0 + 9, T0 + 10, T0 + 11], pa.int64())
    shard = shown([("a", "x", T0), ("b", "x", T0), ("c", "x", T0), ("d", "x", T0)], delays_ms=10)
    rows = join(shard, spec, at_places(KNOWN_PREFIX + "click", [0, 1, 2], times)).parts[ALL]
    assert by_id(rows, KNOWN_PREFIX + "click") == {"a": T0 + 10, "b": T0 + 10, "c": T0 + 11, "d": None}
    assert by_id(rows, "__label_click") == {"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.0}


def test_rows_whose_window_is_open_are_held_back_and_counted() -> None:
    rows = [("open", "x", T0 + 1), ("closed", "x", T0)]
    joined = join(shown(rows), spec_with(), as_of_ms=T0 + HOUR)
    assert set(by_id(joined.parts[ALL], "item")) == {"closed"}
    assert set(by_id(joined.parts[OTHERS], "item")) == {"open"}
    assert joined.counts["held_back"] == 1


def test_side_columns_come_by_key_and_unmatched_rows_are_counted() -> None:
    side = pa.table({"item": pa.array([b"x", b"y", b"x"], pa.binary()), "price": [1.0, 2.0, 3.0]})
    spec = spec_with(joins=[{"source": "items", "key": "item"}])
    joined = join(shown([("a", "x", T0), ("b", "y", T0), ("c", "z", T0)]), spec, side=side)
    assert by_id(joined.parts[ALL], "price") == {"a": 3.0, "b": 2.0, "c": None}  # of equal keys the last row wins
    assert joined.counts["unmatched_items"] == 1


def test_an_empty_side_table_gives_missing_values() -> None:
    side = pa.table({"item": pa.array([], pa.binary()), "price": pa.array([], pa.float64())})
    joined = join(shown([("a", "x", T0)]), spec_with(joins=[{"source": "items", "key": "item"}]), side=side)
    assert by_id(joined.parts[ALL], "price") == {"a": None}


def test_a_missing_label_column_leaves_the_row_out() -> None:
    spec = spec_with(labels=[{"name": "liked", "when": "rating >= 4"}])
    joined = join(shown([("a", "x", T0), ("b", "?", T0)]), spec)
    assert by_id(joined.parts[ALL], "__label_liked") == {"a": 1.0}
    assert (joined.counts["missing_label"], joined.counts["outside_splits"]) == (1, 0)


def test_a_missing_weight_counts_as_one() -> None:
    spec = spec_with(roles={"event_time": "at", "weight": "w"})
    joined = join(shown([("a", "x", T0), ("b", "x", T0)], [0.25, None]), spec)
    assert by_id(joined.parts[ALL], "__weight") == {"a": 0.25, "b": 1.0}


def test_a_row_without_weighing_actions_has_the_default_weight() -> None:
    weight = {"source": "clicks", "key": "id", "value": "s", "default": 0.5}
    found = at_places(WEIGHT_FOUND, [1], pa.array([0.0], pa.float64()))
    joined = join(shown([("a", "x", T0), ("b", "x", T0)]), spec_with(weight=weight), found)
    assert by_id(joined.parts[ALL], "__weight") == {"a": 0.5, "b": 0.0}

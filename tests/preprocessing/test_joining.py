"""Joining one partition, against values worked out by hand."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from preprocessing.joining import Joined, join_partition
from preprocessing.spec import DataSpec

HOUR = 3_600_000
DAY = 24 * HOUR
T0 = int(dt.datetime(2026, 1, 5, tzinfo=dt.UTC).timestamp() * 1000)


def spec_with(**changes: Any) -> DataSpec:
    tree: dict[str, Any] = {
        "sources": {
            "shown": {
                "paths": "x.csv",
                "columns": {"id": "string", "item": "string", "at": "timestamp", "w": "float64", "rating": "float64"},
            },
            "clicks": {"paths": "c.csv", "event_time": "at", "columns": {"id": "string", "at": "timestamp"}},
            "items": {"paths": "i.csv", "columns": {"item": "string", "price": "float64"}},
        },
        "impressions": "shown",
        "roles": {"event_time": "at"},
        "labels": [{"name": "click", "action": {"source": "clicks", "key": "id", "window_s": 3600}}],
        "split": {"kind": "time", "train_until": "2026-01-05", "valid_until": "2026-01-06", "test_until": "2026-01-07"},
    }
    return DataSpec.model_validate({**tree, **changes})


def shown(rows: list[tuple[str, str, int]], weights: list[float | None] | None = None) -> pa.Table:
    ids, items, times = zip(*rows, strict=True)
    return pa.table(
        {
            "id": pa.array([i.encode() for i in ids], pa.binary()),
            "item": pa.array([i.encode() for i in items], pa.binary()),
            "at": pa.array(times, pa.int64()),
            "w": pa.array(weights or [1.0] * len(rows), pa.float64()),
            "rating": pa.array([None if i == "?" else 4.0 for i in items], pa.float64()),
        }
    )


def clicks(rows: list[tuple[str, int]]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([i.encode() for i, _ in rows], pa.binary()),
            "at": pa.array([t for _, t in rows], pa.int64()),
        }
    )


def join(
    impressions: pa.Table, spec: DataSpec, actions: pa.Table | None = None, side: pa.Table | None = None
) -> Joined:
    return join_partition(
        impressions,
        spec=spec,
        actions={"clicks": clicks([]) if actions is None else actions},
        sides=[] if side is None else [side],
    )


def by_id(table: pa.Table, column: str) -> dict[str, Any]:
    names = [value.decode() for value in table["id"].to_pylist()]
    return dict(zip(names, table[column].to_pylist(), strict=True))


def test_a_click_counts_from_the_impression_to_the_end_of_its_window() -> None:
    rows = [("before", "a", T0), ("same", "a", T0), ("end", "a", T0), ("late", "a", T0), ("none", "a", T0)]
    actions = clicks([("before", T0 - 1), ("same", T0), ("end", T0 + HOUR), ("late", T0 + HOUR + 1), ("other", T0)])
    joined = join(shown(rows), spec_with(), actions)
    expected = {"before": 0.0, "same": 1.0, "end": 1.0, "late": 0.0, "none": 0.0}
    assert by_id(joined.rows["train"], "__label_click") == expected


def test_rows_fall_into_splits_by_day_and_the_rest_is_counted() -> None:
    rows = [
        ("a", "x", T0),
        ("b", "x", T0 + DAY),
        ("c", "x", T0 + 2 * DAY),
        ("d", "x", T0 + 3 * DAY),
        ("e", "x", T0 - DAY),
    ]
    joined = join(shown(rows), spec_with())
    assert {name: set(by_id(table, "item")) for name, table in joined.rows.items()} == {
        "train": {"a", "e"},
        "valid": {"b"},
        "test": {"c"},
    }
    assert joined.counts["outside_splits"] == 1


def test_exact_duplicates_leave_one_row() -> None:
    joined = join(shown([("a", "x", T0), ("a", "x", T0), ("a", "y", T0)]), spec_with())
    assert sorted(value.decode() for value in joined.rows["train"]["item"].to_pylist()) == ["x", "y"]
    assert joined.counts["duplicates"] == 1


def test_side_columns_come_by_key_and_unmatched_rows_are_counted() -> None:
    side = pa.table({"item": pa.array([b"x", b"y", b"x"], pa.binary()), "price": [1.0, 2.0, 3.0]})
    spec = spec_with(joins=[{"source": "items", "key": "item"}])
    joined = join(shown([("a", "x", T0), ("b", "y", T0), ("c", "z", T0)]), spec, side=side)
    assert by_id(joined.rows["train"], "price") == {"a": 3.0, "b": 2.0, "c": None}  # of equal keys the last row wins
    assert joined.counts["unmatched_items"] == 1


def test_an_empty_side_table_gives_missing_values() -> None:
    side = pa.table({"item": pa.array([], pa.binary()), "price": pa.array([], pa.float64())})
    joined = join(shown([("a", "x", T0)]), spec_with(joins=[{"source": "items", "key": "item"}]), side=side)
    assert by_id(joined.rows["train"], "price") == {"a": None}


def test_a_missing_label_column_leaves_the_row_out() -> None:
    spec = spec_with(labels=[{"name": "liked", "when": "rating >= 4"}])
    joined = join(shown([("a", "x", T0), ("b", "?", T0)]), spec)
    assert by_id(joined.rows["train"], "__label_liked") == {"a": 1.0}
    assert (joined.counts["missing_label"], joined.counts["outside_splits"]) == (1, 0)


def test_a_missing_weight_counts_as_one() -> None:
    joined = join(
        shown([("a", "x", T0), ("b", "x", T0)], [0.25, None]), spec_with(roles={"event_time": "at", "weight": "w"})
    )
    assert by_id(joined.rows["train"], "__weight") == {"a": 0.25, "b": 1.0}


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_rows_follows_from_their_content_alone(seed: int) -> None:
    table = shown([(f"r{i}", f"i{i % 7}", T0 + i) for i in range(50)])
    shuffled = table.take(pa.array(np.random.default_rng(seed).permutation(50)))
    assert join(shuffled, spec_with()).rows["train"].equals(join(table, spec_with()).rows["train"])

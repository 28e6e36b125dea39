"""From small hand-made logs to labelled periods: files in, rows out, whatever the runner does between."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest

from preprocessing.runner import RecordBatchCoder
from tests.preprocessing.tiny_logs import (
    CLICKS,
    DAY,
    DERIVED,
    HOUR,
    NOW,
    T0,
    Built,
    Row,
    build,
    many_rows,
    small_days,
    tree,
    write_clicks,
    write_csv,
    write_logs,
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    root = tmp_path_factory.mktemp("logs")
    write_logs(root, small_days(), CLICKS)
    with (root / "shown" / "day1.csv").open("a") as file:
        file.write("ragged,u0\n")
    return build(root, root / "work")


def test_a_click_counts_within_its_window_across_midnight_and_not_before_or_after(built: Built) -> None:
    labels = {name: row["__label_click"] for name, row in built.by_id().items()}
    assert labels == {
        **{f"c{n}": 1.0 for n in range(4)},
        **{f"n{n}": 0.0 for n in range(4)},
        "midnight": 1.0,
        "too-late": 0.0,
        "unknown": 0.0,
        "twice": 0.0,
        "early-click": 0.0,
    }


def test_a_click_that_belongs_to_no_impression_is_counted_on_its_own_day(built: Built) -> None:
    orphans = {period.name: period.counts.get("orphans_click", 0) for period in built.periods}
    assert orphans == {"2026-01-05": 0, "2026-01-06": 3, "2026-01-07": 0, "2026-01-08": 0}


def test_side_tables_are_joined_the_last_row_of_a_key_and_missing_where_there_is_none(built: Built) -> None:
    rows = built.by_id()
    assert (rows["c0"]["age"], rows["c0"]["cost"], rows["c0"]["tags"]) == (31, 5, [b"a", b"b"])
    assert (rows["n0"]["age"], rows["n0"]["tags"]) == (None, [])
    assert rows["midnight"]["tags"] is None
    assert (rows["unknown"]["age"], rows["unknown"]["cost"]) == (None, None)
    assert built.summary.counts["unmatched_items"] == 1
    assert built.summary.counts["unmatched_users"] == 1


def test_of_rows_with_one_key_the_earliest_stays_even_across_days(built: Built) -> None:
    assert built.by_id()["twice"]["at"] == T0 + 5 * HOUR
    assert built.summary.counts["duplicates"] == 1


def test_days_are_the_splits_and_each_is_a_file_of_its_own(built: Built) -> None:
    rows = built.by_id()
    assert [rows[f"c{n}"]["split"] for n in range(4)] == ["train", "train", "valid", "test"]
    assert [(period.name, period.files) for period in built.periods] == [
        ("2026-01-05", [("all", "rows/all-00000.parquet", 6)]),
        ("2026-01-06", [("all", "rows/all-00000.parquet", 3)]),
        ("2026-01-07", [("all", "rows/all-00000.parquet", 2)]),
        ("2026-01-08", [("all", "rows/all-00000.parquet", 2)]),
    ]


def test_rejects_keep_row_file_place_and_reason(built: Built) -> None:
    rejects = [row for row in built.rejects() if row["source"] == "shown"]
    found = {(row["raw"].split(b",")[0].decode(), row["reason"], row["column"], row["position"]) for row in rejects}
    assert found == {
        ("future", "future_time", "at", 6),
        ("ancient", "out_of_range", "at", 7),
        ("cheap", "out_of_range", "price", 8),
        ("", "missing_required", "id", 9),
        ("ragged", "malformed_row", "", 10),
    }
    assert {Path(row["file"]).name for row in rejects} == {"day1.csv"}
    shown = built.summary.sources["shown"]
    assert shown["reasons"] == {
        "future_time": 1,
        "malformed_row": 1,
        "missing_required": 1,
        "out_of_range": 2,
    }
    assert (shown["rows"], shown["kept"], shown["rejected"]) == (19, 14, 5)


def test_every_row_read_is_written_or_counted(built: Built) -> None:
    written = sum(rows for period in built.periods for _, _, rows in period.files)
    left_out = sum(built.summary.counts[name] for name in ("duplicates", "missing_label", "outside_splits"))
    assert built.summary.sources["shown"]["kept"] == written + left_out


def test_the_same_bytes_however_many_workers_and_in_whatever_order_the_files_come(tmp_path: Path) -> None:
    logs, clicks = many_rows(4)
    write_logs(tmp_path / "a", logs, clicks)
    write_logs(tmp_path / "b", {f"x{10 - i}": rows[::-1] for i, rows in enumerate(logs.values())}, clicks[::-1])
    spec = tree(derived=DERIVED)
    one = build(tmp_path / "a", tmp_path / "one", spec, rows_per_shard=100)
    two = build(tmp_path / "b", tmp_path / "two", spec, rows_per_shard=100, workers=2)
    assert len([name for name in one.files() if "/rows/" in name]) == 12  # three shards a day
    assert len([name for name in one.files() if "/state/" in name]) == 12  # three keys a day
    assert two.files() == one.files()
    assert two.summary.counts == one.summary.counts


@pytest.mark.slow
def test_the_same_bytes_from_worker_processes(tmp_path: Path) -> None:
    write_logs(tmp_path, *many_rows(4))
    spec = tree(derived=DERIVED)
    one = build(tmp_path, tmp_path / "one", spec, rows_per_shard=100)
    two = build(tmp_path, tmp_path / "two", spec, rows_per_shard=100, workers=2, mode="multi_processing")
    assert two.files() == one.files()


@pytest.mark.parametrize("freshness", ["event", "day"])
def test_days_that_arrive_one_by_one_come_to_the_same_bytes_as_all_at_once(tmp_path: Path, freshness: str) -> None:
    # Three days: a window of two days forgets the first, a state goes on twice, a day is made anew for late clicks.
    logs, clicks = many_rows(3, rows_per_day=80)
    split = {"kind": "time", "train_until": "2026-01-05", "valid_until": "2026-01-06", "test_until": "2026-01-07"}
    derived = DERIVED if freshness == "event" else [one for one in DERIVED if isinstance(one["key"], str)]
    spec = tree(derived=derived, freshness=freshness, split=split)
    write_logs(tmp_path, {}, [])
    made: list[set[str]] = []
    for n, (name, rows) in enumerate(logs.items()):
        write_csv(tmp_path / "shown" / f"{name}.csv", rows)
        until = T0 + (n + 1) * DAY
        write_clicks(tmp_path / f"clicks-{n}.jsonl", [(i, at) for i, at in clicks if until - DAY <= at < until])
        built = build(tmp_path, tmp_path / "daily", spec, rows_per_shard=50, as_of_ms=until)
        made.append({period.key for period in built.periods})
    last = build(tmp_path, tmp_path / "daily", spec, rows_per_shard=50, as_of_ms=NOW)
    whole = build(tmp_path, tmp_path / "whole", spec, rows_per_shard=50, as_of_ms=NOW)
    assert last.files() == whole.files()
    assert [period.key for period in last.periods] == [period.key for period in whole.periods]
    # The day before, whose last clicks came now, is made anew, and the new one.
    assert [len(earlier & later) for earlier, later in itertools.pairwise(made)] == [0, 1]


def test_labels_whose_window_is_open_are_held_back_and_picked_up_later(tmp_path: Path) -> None:
    write_logs(tmp_path, small_days(), CLICKS)
    early = build(tmp_path, tmp_path / "work", as_of_ms=T0 + DAY)  # an hour into the windows of two rows of day 0
    assert early.summary.held_back == early.summary.counts["held_back"] == 2
    assert "midnight" not in early.by_id()
    assert early.summary.counts["not_yet_arrived"] == 8
    later = build(tmp_path, tmp_path / "work", as_of_ms=NOW)
    assert later.summary.held_back == 0
    assert later.by_id()["midnight"]["__label_click"] == 1.0
    assert later.files() == build(tmp_path, tmp_path / "fresh", as_of_ms=NOW).files()


def test_a_late_row_changes_its_own_day_and_what_follows_from_it_only(tmp_path: Path) -> None:
    logs, clicks = many_rows(4, rows_per_day=60)
    write_logs(tmp_path, logs, clicks)
    plain, derived = tree(), tree(derived=DERIVED)
    for spec in (plain, derived):
        spec["sources"]["shown"]["duplicates"] = "row"
    before = [build(tmp_path, tmp_path / "work", spec) for spec in (plain, derived)]
    write_csv(tmp_path / "shown" / "late.csv", [("late", "u0", "i0", T0 + DAY + 12 * HOUR, 1)])
    after = [build(tmp_path, tmp_path / "work", spec) for spec in (plain, derived)]
    same = [
        [old.key == new.key for old, new in zip(one.periods, two.periods, strict=True)]
        for one, two in zip(before, after, strict=True)
    ]
    # The windows of the days before and after reach into the changed one; point-in-time columns go on from there.
    assert same == [[False, False, False, True], [False] * 4]
    assert after[1].files() == build(tmp_path, tmp_path / "fresh", derived).files()


def test_equal_rows_are_one_row_by_default_and_all_are_kept_on_demand(tmp_path: Path) -> None:
    logs = small_days()
    logs["day0"] += [logs["day0"][0]] * 2
    write_logs(tmp_path, logs, CLICKS)
    spec = tree()
    spec["sources"]["shown"]["duplicates"] = "row"
    once = build(tmp_path, tmp_path / "once", spec)
    spec["sources"]["shown"]["duplicates"] = "keep"
    thrice = build(tmp_path, tmp_path / "thrice", spec)
    assert (once.summary.counts["duplicates"], once.summary.counts["train_rows"]) == (2, 10)
    assert [row["id"] for row in thrice.rows("train")].count(b"c0") == 3
    assert thrice.summary.counts["train_rows"] == 12


def test_a_hash_split_keeps_users_apart_and_needs_no_clock(tmp_path: Path) -> None:
    rows: dict[str, list[Row]] = {"all": [(f"r{k}", f"u{k % 100}", "i0", T0, k % 2) for k in range(1000)]}
    write_logs(tmp_path, rows, CLICKS)
    spec = tree(
        roles={"user": "user"},
        labels=[{"name": "dear", "when": "price >= 1"}],
        split={"kind": "hash", "key": ["user"], "train": 0.6, "valid": 0.2},
    )
    built = build(tmp_path, tmp_path / "out", spec, rows_per_shard=100)
    users = [{row["user"] for row in built.rows(split)} for split in ("train", "valid", "test")]
    assert sum(map(len, users)) == len(set.union(*users)) == 100
    assert [period.name for period in built.periods] == ["all"]
    assert all(row["__label_dear"] == row["price"] for row in built.rows("train"))


def test_a_column_split_takes_its_own_words_and_counts_the_rest(tmp_path: Path) -> None:
    rows: dict[str, list[Row]] = {
        "all": [(f"r{k}", "u0", ("tr", "va", "te", "?")[k % 4], T0, k // 4 % 2) for k in range(40)]
    }
    write_logs(tmp_path, rows, CLICKS)
    split = {"kind": "column", "column": "item", "train": ["tr"], "valid": ["va"], "test": ["te"]}
    built = build(tmp_path, tmp_path / "out", tree(labels=[{"name": "dear", "column": "price"}], split=split))
    assert [built.summary.counts[f"{name}_rows"] for name in ("train", "valid", "test")] == [10, 10, 10]
    assert built.summary.counts["outside_splits"] == 10


@pytest.mark.parametrize("duplicates", ["row", ["id"]])
def test_rows_never_cross_a_stage_as_encoded_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, duplicates: object
) -> None:
    def refuse(_coder: RecordBatchCoder, _batch: pa.RecordBatch) -> bytes:
        raise AssertionError("a batch was encoded between stages")

    monkeypatch.setattr(RecordBatchCoder, "encode", refuse)
    write_logs(tmp_path, *many_rows(4))
    spec = tree(derived=DERIVED)
    spec["sources"]["shown"]["duplicates"] = duplicates
    assert build(tmp_path, tmp_path / "out", spec, workers=2).summary.counts["rows"] == 1200

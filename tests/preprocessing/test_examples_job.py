"""The examples job on small hand-made logs: files in, labelled rows out, whatever the runner does between."""

from __future__ import annotations

import dataclasses
import datetime as dt
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preprocessing.errors import DataError, LabelError, RejectBudgetError, SourceError
from preprocessing.examples_job import build_examples
from preprocessing.examples_summary import ExamplesSummary, check_summary
from preprocessing.runner import RecordBatchCoder, local_pipeline
from preprocessing.shuffle import Carrier
from preprocessing.spec import DataSpec

HOUR = 3_600_000
DAY = 24 * HOUR
T0 = int(dt.datetime(2026, 1, 5, tzinfo=dt.UTC).timestamp() * 1000)
NOW = T0 + 30 * DAY
BY_DAY = {"kind": "time", "train_until": "2026-01-06", "valid_until": "2026-01-07", "test_until": "2026-01-08"}


def tree(**changes: Any) -> dict[str, Any]:
    """Impressions as CSV by day, clicks as JSON lines, items as Parquet, users as gzipped TSV."""
    base: dict[str, Any] = {
        "sources": {
            "shown": {
                "paths": "shown/*.csv",
                "duplicates": ["id"],
                "columns": {
                    "id": {"type": "string", "required": True},
                    "user": "string",
                    "item": "string",
                    "at": "timestamp",
                    "price": {"type": "float64", "min": 0},
                },
            },
            "clicks": {"paths": "clicks.jsonl", "event_time": "at", "columns": {"id": "string", "at": "timestamp"}},
            "items": {"paths": "items.parquet", "columns": {"item": "string", "tags": "list<string>", "cost": "int64"}},
            "users": {"paths": "users.tsv.gz", "columns": {"user": "string", "age": "int64"}},
        },
        "impressions": "shown",
        "joins": [{"source": "items", "key": "item"}, {"source": "users", "key": "user"}],
        "roles": {"event_time": "at", "user": "user"},
        "labels": [{"name": "click", "action": {"source": "clicks", "key": "id", "window_s": 7200}}],
        "split": BY_DAY,
        "max_reject_share": 0.5,
    }
    return {**base, **changes}


Row = tuple[str, str, str, int, object]


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join(str(cell) for cell in row) for row in rows]
    path.write_text("\n".join(["id,user,item,at,price", *lines]) + "\n", encoding="utf-8")


def write_logs(root: Path, days: Mapping[str, Sequence[Row]], clicks: Sequence[tuple[str, int]]) -> None:
    for name, rows in days.items():
        write_csv(root / "shown" / f"{name}.csv", rows)
    root.joinpath("clicks.jsonl").write_text("".join(json.dumps({"id": i, "at": at}) + "\n" for i, at in clicks))
    items = {"item": ["i0", "i1", "i2"], "tags": [["a", "b"], [], None], "cost": [5, 6, 7]}
    pq.write_table(pa.table(items), root / "items.parquet")
    with gzip.open(root / "users.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("user\tage\nu0\t30\nu1\t\nu0\t31\n")


def build(
    root: Path,
    out: Path,
    spec: dict[str, Any] | None = None,
    *,
    carrier: Carrier = "files",
    workers: int = 1,
    mode: Literal["multi_threading", "multi_processing"] = "multi_threading",
    rows_per_shard: int = 1000,
) -> ExamplesSummary:
    data = DataSpec.model_validate(spec or tree())
    files = {
        name: sorted(str(path) for pattern in source.paths for path in root.glob(pattern))
        for name, source in data.sources.items()
    }
    out.mkdir(parents=True)
    return build_examples(
        data,
        files,
        folder=out,
        rows_per_shard=rows_per_shard,
        as_of_ms=NOW,
        pipeline=lambda: local_pipeline(workers=workers, mode=mode),
        carrier=carrier,
    )


def rows_of(out: Path, split: str) -> list[dict[str, Any]]:
    tables = [pq.read_table(path) for path in sorted((out / "rows" / split).glob("*.parquet"))]
    return [] if not tables else pa.concat_tables(tables).to_pylist()


def by_id(out: Path) -> dict[str, dict[str, Any]]:
    rows = [{**row, "split": split} for split in ("train", "valid", "test") for row in rows_of(out, split)]
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"].decode(): row for row in rows}


def row_files(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted((out / "rows").rglob("*.parquet"))}


def small_days() -> dict[str, list[Row]]:
    """Four days, a clicked and an unclicked row on each; the rest is about one thing each."""
    days: dict[str, list[Row]] = {
        f"day{n}": [
            (f"c{n}", "u0", "i0", T0 + n * DAY + HOUR, 1.5),
            (f"n{n}", "u1", "i1", T0 + n * DAY + 2 * HOUR, ""),
        ]
        for n in range(4)
    }
    days["day0"] += [
        ("midnight", "u0", "i2", T0 + DAY - HOUR, 1),  # clicked on the next day, within the window
        ("too-late", "u0", "i2", T0 + DAY - HOUR, 2),  # clicked after the window
        ("unknown", "u9", "i9", T0 + 3 * HOUR, 3),  # in no side table
        ("twice", "u0", "i0", T0 + 5 * HOUR, 4),
    ]
    days["day1"] += [
        ("twice", "u0", "i0", T0 + DAY + 5 * HOUR, 4),  # the same key a day later
        ("early-click", "u0", "i0", T0 + DAY + 6 * HOUR, 5),  # clicked before it was shown
        ("future", "u0", "i0", NOW + 2 * DAY, 5),
        ("ancient", "u0", "i0", -1, 5),
        ("cheap", "u0", "i0", T0 + DAY, -3),  # below the declared minimum
        ("", "u0", "i0", T0 + DAY, 3),  # no key
    ]
    return days


CLICKS = [
    *((f"c{n}", T0 + n * DAY + HOUR + 1000) for n in range(4)),
    ("midnight", T0 + DAY + HOUR),
    ("too-late", T0 + DAY + HOUR + 1),
    ("early-click", T0 + DAY + 6 * HOUR - 1),
    ("nobody", T0 + DAY),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, ExamplesSummary]]:
    root = tmp_path_factory.mktemp("logs")
    write_logs(root, small_days(), CLICKS)
    with (root / "shown" / "day1.csv").open("a") as file:
        file.write("ragged,u0\n")
    out = root / "out"
    yield out, build(root, out)


Built = tuple[Path, ExamplesSummary]


def test_a_click_counts_within_its_window_across_midnight_and_not_before_or_after(built: Built) -> None:
    labels = {name: row["__label_click"] for name, row in by_id(built[0]).items()}
    assert labels == {
        **{f"c{n}": 1.0 for n in range(4)},
        **{f"n{n}": 0.0 for n in range(4)},
        "midnight": 1.0,
        "too-late": 0.0,
        "unknown": 0.0,
        "twice": 0.0,
        "early-click": 0.0,
    }


def test_side_tables_are_joined_the_last_row_of_a_key_and_missing_where_there_is_none(built: Built) -> None:
    rows = by_id(built[0])
    assert (rows["c0"]["age"], rows["c0"]["cost"], rows["c0"]["tags"]) == (31, 5, [b"a", b"b"])
    assert (rows["n0"]["age"], rows["n0"]["tags"]) == (None, [])
    assert rows["midnight"]["tags"] is None
    assert (rows["unknown"]["age"], rows["unknown"]["cost"]) == (None, None)
    assert built[1].counts["unmatched_items"] == 1
    assert built[1].counts["unmatched_users"] == 1


def test_of_rows_with_one_key_the_earliest_stays_even_across_days(built: Built) -> None:
    assert by_id(built[0])["twice"]["at"] == T0 + 5 * HOUR
    assert built[1].counts["duplicates"] == 1


def test_days_are_the_splits_and_each_is_a_file_of_its_own(built: Built) -> None:
    rows = by_id(built[0])
    assert [rows[f"c{n}"]["split"] for n in range(4)] == ["train", "train", "valid", "test"]
    assert built[1].shards == {
        "train": [
            ("2026-01-05", "rows/train/2026-01-05-00000.parquet", 6),
            ("2026-01-06", "rows/train/2026-01-06-00000.parquet", 3),
        ],
        "valid": [("2026-01-07", "rows/valid/2026-01-07-00000.parquet", 2)],
        "test": [("2026-01-08", "rows/test/2026-01-08-00000.parquet", 2)],
    }
    assert set(row_files(built[0])) == {path for shards in built[1].shards.values() for _, path, _ in shards}


def test_rejects_keep_row_file_place_and_reason(built: Built) -> None:
    out, summary = built
    rejects = [
        row for path in sorted((out / "rejects").glob("shown-*.parquet")) for row in pq.read_table(path).to_pylist()
    ]
    found = {(row["raw"].split(b",")[0].decode(), row["reason"], row["column"], row["position"]) for row in rejects}
    assert found == {
        ("future", "out_of_range", "at", 6),
        ("ancient", "out_of_range", "at", 7),
        ("cheap", "out_of_range", "price", 8),
        ("", "missing_required", "id", 9),
        ("ragged", "malformed_row", "", 10),
    }
    assert {Path(row["file"]).name for row in rejects} == {"day1.csv"}
    assert summary.sources["shown"]["reasons"] == {"out_of_range": 3, "missing_required": 1, "malformed_row": 1}
    assert (summary.sources["shown"]["rows"], summary.sources["shown"]["rejected"]) == (19, 5)
    assert summary.sources["clicks"] == {"files": 1, "rows": 8, "rejected": 0, "reasons": {}}


def test_every_row_read_is_written_or_counted(built: Built) -> None:
    _, summary = built
    written = sum(count for shards in summary.shards.values() for _, _, count in shards)
    left_out = sum(summary.counts[name] for name in ("duplicates", "missing_label", "outside_splits"))
    assert summary.sources["shown"]["rows"] - summary.sources["shown"]["rejected"] == written + left_out


def many_rows(
    days: int, *, seed: int = 1, rows_per_day: int = 300
) -> tuple[dict[str, list[Row]], list[tuple[str, int]]]:
    rng = np.random.default_rng(seed)
    logs: dict[str, list[Row]] = {}
    clicks = []
    for n in range(days):
        at = T0 + n * DAY + rng.integers(0, DAY, rows_per_day)
        logs[f"day{n}"] = [
            (f"r{n}-{k}", f"u{rng.integers(3)}", f"i{rng.integers(4)}", int(at[k]), round(float(rng.random()), 3))
            for k in range(rows_per_day)
        ]
        clicks += [(f"r{n}-{k}", int(at[k]) + int(rng.integers(0, 3 * HOUR))) for k in range(0, rows_per_day, 3)]
    return logs, clicks


def test_the_same_bytes_whatever_carries_the_rows_and_however_many_workers(tmp_path: Path) -> None:
    write_logs(tmp_path, *many_rows(4))
    build(tmp_path, tmp_path / "one", rows_per_shard=100)
    expected = row_files(tmp_path / "one")
    assert len(expected) == 12  # three shards a day
    build(tmp_path, tmp_path / "bytes", rows_per_shard=100, workers=2, carrier="bytes")
    assert row_files(tmp_path / "bytes") == expected


@pytest.mark.slow
def test_the_same_bytes_from_worker_processes(tmp_path: Path) -> None:
    write_logs(tmp_path, *many_rows(4))
    one = build(tmp_path, tmp_path / "one", rows_per_shard=100)
    two = build(tmp_path, tmp_path / "two", rows_per_shard=100, workers=2, mode="multi_processing")
    assert row_files(tmp_path / "two") == row_files(tmp_path / "one")
    assert two == one


def test_another_day_or_order_of_the_log_leaves_the_files_of_the_other_days_as_they_are(tmp_path: Path) -> None:
    logs, clicks = many_rows(5, rows_per_day=120)
    spec = {**tree(), "split": {**BY_DAY, "test_until": "2026-01-09"}}
    write_logs(tmp_path / "a", {name: rows for name, rows in logs.items() if name != "day4"}, clicks)
    write_logs(tmp_path / "b", {name: rows[::-1] for name, rows in logs.items()}, clicks[::-1])
    build(tmp_path / "a", tmp_path / "a" / "out", spec, rows_per_shard=50)
    build(tmp_path / "b", tmp_path / "b" / "out", spec, rows_per_shard=50)
    before, after = row_files(tmp_path / "a" / "out"), row_files(tmp_path / "b" / "out")
    assert {name: content for name, content in after.items() if "2026-01-09" not in name} == before
    assert len(after) == len(before) + 3


def test_equal_rows_are_one_row_by_default_and_all_are_kept_on_demand(tmp_path: Path) -> None:
    logs = small_days()
    logs["day0"] += [logs["day0"][0]] * 2
    write_logs(tmp_path, logs, CLICKS)
    spec = tree()
    spec["sources"]["shown"]["duplicates"] = "row"
    once = build(tmp_path, tmp_path / "once", spec)
    spec["sources"]["shown"]["duplicates"] = "keep"
    thrice = build(tmp_path, tmp_path / "thrice", spec)
    assert (once.counts["duplicates"], once.counts["train_rows"]) == (2, 10)
    assert [row["id"] for row in rows_of(tmp_path / "thrice", "train")].count(b"c0") == 3
    assert thrice.counts["train_rows"] == 12


def test_a_hash_split_keeps_users_apart_and_needs_no_clock(tmp_path: Path) -> None:
    rows: dict[str, list[Row]] = {"all": [(f"r{k}", f"u{k % 100}", "i0", T0, k % 2) for k in range(1000)]}
    write_logs(tmp_path, rows, [])
    spec = tree(
        roles={"user": "user"},
        labels=[{"name": "dear", "when": "price >= 1"}],
        split={"kind": "hash", "key": ["user"], "train": 0.6, "valid": 0.2},
    )
    summary = build(tmp_path, tmp_path / "out", spec, rows_per_shard=100)
    users = [{row["user"] for row in rows_of(tmp_path / "out", split)} for split in ("train", "valid", "test")]
    assert sum(map(len, users)) == len(set.union(*users)) == 100
    assert {period for shards in summary.shards.values() for period, _, _ in shards} == {"all"}
    assert all(row["__label_dear"] == row["price"] for row in rows_of(tmp_path / "out", "train"))


def test_a_column_split_takes_its_own_words_and_counts_the_rest(tmp_path: Path) -> None:
    rows: dict[str, list[Row]] = {
        "all": [(f"r{k}", "u0", ("tr", "va", "te", "?")[k % 4], T0, k // 4 % 2) for k in range(40)]
    }
    write_logs(tmp_path, rows, [])
    split = {"kind": "column", "column": "item", "train": ["tr"], "valid": ["va"], "test": ["te"]}
    summary = build(tmp_path, tmp_path / "out", tree(labels=[{"name": "dear", "column": "price"}], split=split))
    assert [summary.counts[f"{name}_rows"] for name in ("train", "valid", "test")] == [10, 10, 10]
    assert summary.counts["outside_splits"] == 10


def check(summary: ExamplesSummary, spec: DataSpec | None = None) -> None:
    check_summary(summary, spec or DataSpec.model_validate(tree()), rejects=Path("out/rejects"))


def test_too_many_rejects_are_an_error_that_says_why(built: Built) -> None:
    check(built[1])
    with pytest.raises(RejectBudgetError, match=r"shown: 5 of 19 rows rejected \(26\.32%.*out_of_range 3; see out/rej"):
        check(built[1], DataSpec.model_validate(tree(max_reject_share=0.26)))
    all_bad = {**built[1].sources["shown"], "rejected": 19}
    with pytest.raises(RejectBudgetError, match="19 of 19 rows rejected"):  # whatever the budget
        check(
            dataclasses.replace(built[1], sources={"shown": all_bad}),
            DataSpec.model_validate(tree(max_reject_share=1.0)),
        )


def test_a_split_without_rows_or_with_one_class_is_an_error(built: Built) -> None:
    counts = built[1].counts
    with pytest.raises(DataError, match="split 'test' has no rows"):
        check(dataclasses.replace(built[1], counts={**counts, "test_rows": 0}))
    with pytest.raises(LabelError, match="label 'click' is 0 in all 2 rows of split 'valid'"):
        check(dataclasses.replace(built[1], counts={**counts, "valid_positive_click": 0}))
    with pytest.raises(LabelError, match="label 'click' is 1 in all 9 rows of split 'train'"):
        check(dataclasses.replace(built[1], counts={**counts, "train_positive_click": 9}))


def test_a_row_lost_on_the_way_to_the_join_is_an_error(built: Built) -> None:
    counts = built[1].counts
    with pytest.raises(DataError, match="shown: 14 rows were read and kept, 13 reached the join"):
        check(dataclasses.replace(built[1], counts={**counts, "rows": counts["rows"] - 1}))


def test_nothing_in_a_source_is_an_error_that_names_it(tmp_path: Path) -> None:
    write_logs(tmp_path, small_days(), CLICKS)
    (tmp_path / "clicks.jsonl").write_bytes(b"")
    with pytest.raises(SourceError, match=r"data\.sources\.clicks: 1 file.* hold no row"):
        build(tmp_path, tmp_path / "empty")


@pytest.mark.slow
def test_logs_with_nothing_but_headers_or_rejects_are_errors(tmp_path: Path) -> None:
    write_logs(tmp_path, {"day0": []}, CLICKS)
    with pytest.raises(SourceError, match=r"data\.sources\.shown: 1 file"):
        build(tmp_path, tmp_path / "header")
    write_logs(tmp_path, {"day0": [(i, u, item, -5, price) for i, u, item, _, price in small_days()["day0"]]}, CLICKS)
    with pytest.raises(RejectBudgetError, match="6 of 6 rows rejected"):
        build(tmp_path, tmp_path / "rejects", tree(max_reject_share=1.0))


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("items.parquet", lambda content: content[:-100], r"items\.parquet cannot be read as Parquet"),
        pytest.param(
            "items.parquet", lambda _: b"", r"items\.parquet cannot be read as Parquet", marks=pytest.mark.slow
        ),
        ("users.tsv.gz", lambda content: content[:-12], r"users\.tsv\.gz cannot be read to its end"),
        pytest.param(
            "users.tsv.gz", lambda _: b"user\tage\n", r"users\.tsv\.gz cannot be read", marks=pytest.mark.slow
        ),
        pytest.param(
            "shown/day1.csv",
            lambda content: content.replace(b"id,user", b"id,used"),
            r"day1\.csv.*'user'.*used",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, name: str, spoil: Any, message: str) -> None:
    write_logs(tmp_path, small_days(), CLICKS)
    path = tmp_path / name
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(SourceError, match=message):
        build(tmp_path, tmp_path / "out")


@pytest.mark.slow
def test_an_error_of_a_worker_process_comes_back_as_itself(tmp_path: Path) -> None:
    write_logs(tmp_path, small_days(), CLICKS)
    (tmp_path / "items.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(SourceError, match=r"items\.parquet cannot be read as Parquet"):
        build(tmp_path, tmp_path / "out", workers=2, mode="multi_processing")


@pytest.mark.parametrize("duplicates", ["row", ["id"]])
def test_rows_never_cross_a_stage_as_encoded_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, duplicates: object
) -> None:
    def refuse(_coder: RecordBatchCoder, _batch: pa.RecordBatch) -> bytes:
        raise AssertionError("a batch was encoded between stages")

    monkeypatch.setattr(RecordBatchCoder, "encode", refuse)
    write_logs(tmp_path, *many_rows(4))
    spec = tree()
    spec["sources"]["shown"]["duplicates"] = duplicates
    assert build(tmp_path, tmp_path / "out", spec, workers=2).counts["rows"] == 1200

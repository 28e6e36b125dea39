"""Small hand-made logs of a shop, and one call from files to labelled periods."""

from __future__ import annotations

import dataclasses
import datetime as dt
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.example_days import Period, make_examples
from preprocessing.examples_summary import ExamplesSummary, check_sources, split_files, summarise
from preprocessing.inventory import Log
from preprocessing.log_sources import SourceFile
from preprocessing.runner import local_pipeline
from preprocessing.sources import fingerprint, match
from preprocessing.spec import DataSpec

HOUR = 3_600_000
DAY = 24 * HOUR
T0 = int(dt.datetime(2026, 1, 5, tzinfo=dt.UTC).timestamp() * 1000)
NOW = T0 + 30 * DAY
BY_DAY = {"kind": "time", "train_until": "2026-01-06", "valid_until": "2026-01-07", "test_until": "2026-01-08"}

Row = tuple[str, str, str, int, object]


@dataclasses.dataclass(frozen=True)
class Built:
    """What `build` made."""

    work: Path
    periods: list[Period]
    logs: dict[str, Log]
    summary: ExamplesSummary
    spec: DataSpec

    def rows(self, split: str) -> list[dict[str, Any]]:
        """Returns the labelled rows of a split, in order."""
        files = split_files(self.spec, self.periods)[split]
        return [row for file in files for row in pq.read_table(self.work / file.path).to_pylist()]

    def by_id(self) -> dict[str, dict[str, Any]]:
        """Returns all labelled rows with their split, by id."""
        rows = [{**row, "split": split} for split in ("train", "valid", "test") for row in self.rows(split)]
        assert len({row["id"] for row in rows}) == len(rows)
        return {row["id"].decode(): row for row in rows}

    def rejects(self) -> list[dict[str, Any]]:
        """Returns all dead letters."""
        paths = sorted((self.work / "ingest").glob("*/rejects.parquet"))
        return [row for path in paths for row in pq.read_table(path).to_pylist()]

    def files(self) -> dict[str, bytes]:
        """Returns every file of the finished periods, rows and states, by period."""
        found = {}
        for period in self.periods:
            for path in sorted((self.work / period.folder).rglob("*.parquet")):
                found[f"{period.name}/{path.relative_to(self.work / period.folder)}"] = path.read_bytes()
        return found


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
            "clicks": {"paths": "clicks*.jsonl", "event_time": "at", "columns": {"id": "string", "at": "timestamp"}},
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


DERIVED: list[dict[str, Any]] = [
    {
        "kind": "history",
        "name": "clicked",
        "key": "user",
        "value": "item",
        "label": "click",
        "length": 3,
        "ages": "ages",
    },
    {"kind": "count", "name": "views", "key": "user", "window_s": 7200},
    {"kind": "count", "name": "user_clicks", "key": "user", "label": "click"},
    {"kind": "rate", "name": "ctr", "key": ["item", "age"], "label": "click", "prior": 0.3, "strength": 2},
    {
        "kind": "rate",
        "name": "ctr_2d",
        "key": "item",
        "label": "click",
        "window_s": 172800,
        "prior": 0.3,
        "strength": 2,
    },
]


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Writes impressions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join(str(cell) for cell in row) for row in rows]
    path.write_text("\n".join(["id,user,item,at,price", *lines]) + "\n", encoding="utf-8")


def write_clicks(path: Path, clicks: Sequence[tuple[str, int]]) -> None:
    """Writes clicks."""
    path.write_text("".join(json.dumps({"id": i, "at": at}) + "\n" for i, at in clicks), encoding="utf-8")


def write_logs(root: Path, days: Mapping[str, Sequence[Row]], clicks: Sequence[tuple[str, int]]) -> None:
    """Writes impressions by day, clicks in one file, and both side tables."""
    for name, rows in days.items():
        write_csv(root / "shown" / f"{name}.csv", rows)
    write_clicks(root / "clicks.jsonl", clicks)
    items = {"item": ["i0", "i1", "i2"], "tags": [["a", "b"], [], None], "cost": [5, 6, 7]}
    pq.write_table(pa.table(items), root / "items.parquet")
    with gzip.GzipFile(root / "users.tsv.gz", "wb", mtime=0) as file:
        file.write(b"user\tage\nu0\t30\nu1\t\nu0\t31\n")


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


def many_rows(
    days: int, *, seed: int = 1, rows_per_day: int = 300
) -> tuple[dict[str, list[Row]], list[tuple[str, int]]]:
    """Returns random impressions by day, and clicks of a third of them."""
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


def build(
    root: Path,
    work: Path,
    spec: dict[str, Any] | None = None,
    *,
    workers: int = 1,
    mode: Literal["multi_threading", "multi_processing"] = "multi_threading",
    rows_per_shard: int = 1000,
    as_of_ms: int = NOW,
    now_ms: int = NOW,
    split_bytes: int = 1 << 28,
) -> Built:
    """Makes the labelled periods of the logs in `root`."""
    data = DataSpec.model_validate(spec or tree())
    files = {
        name: [SourceFile(path, fingerprint(path)["sha256"]) for path in match(source.paths, root=str(root))]
        for name, source in data.sources.items()
    }
    periods, logs = make_examples(
        data,
        files,
        work=work,
        rows_per_shard=rows_per_shard,
        split_bytes=split_bytes,
        as_of_ms=as_of_ms,
        now_ms=now_ms,
        pipeline=lambda: local_pipeline(workers=workers, mode=mode),
        check=lambda logs, _: check_sources(data, logs, rejects="the rejects", repaired={}),
    )
    return Built(work, periods, logs, summarise(data, periods, logs), data)

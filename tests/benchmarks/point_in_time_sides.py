"""The sides of the point-in-time benchmark, each run as a process: `ours`, `duckdb` and `polars`.

Each reads the files of `point_in_time_data` and writes Parquet files with the columns of `NAMES`. CPU seconds are of
the whole process and its children, imports included. The peers are written as their manuals would have it done fast:
as-of joins for labels and for what was known, range windows (DuckDB) or `rolling` (polars) for counts.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.measure import print_result
from tests.benchmarks.point_in_time_data import DAYS, FIRST_DAY, MS_PER_DAY, WINDOW_MS

WINDOWS_MS = {"hour": 3_600_000, "day": 86_400_000, "all": None}
KEYS = ("user_id", "item_id")
LENGTH, PRIOR, STRENGTH = 20, 0.1, 20.0
LOGGED = ["impression_id", "request_id", "user_id", "item_id", "shown_ms", "category"]
COUNTS = [f"{key}_{window}" for key in KEYS for window in WINDOWS_MS]
HISTORY, RATE, LABEL = "clicked", "user_category_ctr", "__label_click"
NAMES = [*LOGGED, LABEL, *COUNTS, HISTORY, RATE]


def config() -> dict[str, Any]:
    """Returns our job, as the data section of a config."""
    counts = [
        {"kind": "count", "name": f"{key}_{name}", "key": key, "window_s": None if ms is None else ms / 1000}
        for key in KEYS
        for name, ms in WINDOWS_MS.items()
    ]
    history = {"kind": "history", "name": HISTORY, "key": "user_id", "value": "item_id", "label": "click"}
    rate = {"kind": "rate", "name": RATE, "key": ["user_id", "category"], "label": "click"}
    texts = {name: "string" for name in LOGGED[:4]}
    return {
        "sources": {
            "impressions": {
                "paths": "impressions-*.parquet",
                "columns": {**texts, "shown_ms": "timestamp"},
                "duplicates": "keep",
            },
            "clicks": {
                "paths": "clicks.parquet",
                "columns": {"user_id": "string", "item_id": "string", "clicked_ms": "timestamp"},
                "event_time": "clicked_ms",
                "duplicates": "keep",
            },
            "items": {
                "paths": "items.parquet",
                "columns": {"item_id": "string", "category": "string"},
                "duplicates": "keep",
            },
        },
        "impressions": "impressions",
        "joins": [{"source": "items", "key": "item_id"}],
        "roles": {"event_time": "shown_ms", "user": "user_id", "item": "item_id", "row_id": "impression_id"},
        "labels": [
            {"name": "click", "action": {"source": "clicks", "key": list(KEYS), "window_s": WINDOW_MS / 1000}},
        ],
        "derived": [*counts, {**history, "length": LENGTH}, {**rate, "prior": PRIOR, "strength": STRENGTH}],
        "split": {"kind": "time", "train_until": "2026-01-05", "valid_until": "2026-01-06"},
    }


def ours(data: Path, work: Path) -> list[Path]:
    """Runs the jobs from files to labelled examples; besides the rows they keep the state after each day."""
    from preprocessing.example_days import make_examples
    from preprocessing.log_sources import SourceFile
    from preprocessing.runner import local_pipeline
    from preprocessing.sources import fingerprint, match
    from preprocessing.spec import DataSpec

    spec = DataSpec.model_validate(config())
    files = {
        name: [SourceFile(path, fingerprint(path)["sha256"]) for path in match(source.paths, root=str(data))]
        for name, source in spec.sources.items()
    }
    afterwards_ms = (FIRST_DAY + DAYS + 7) * MS_PER_DAY
    periods, _ = make_examples(
        spec,
        files,
        work=work,
        rows_per_shard=200_000,
        split_bytes=256 << 20,
        as_of_ms=afterwards_ms,
        now_ms=afterwards_ms,
        pipeline=local_pipeline,
    )
    return [work / period.folder / name for period in periods for _, name, _ in period.files]


def duckdb(data: Path, work: Path) -> list[Path]:
    """Runs the job as one SQL statement, into one file."""
    import duckdb as db

    counts = [
        f"count(*) OVER (PARTITION BY {key} ORDER BY shown_ms RANGE BETWEEN "
        f"{'UNBOUNDED' if ms is None else ms} PRECEDING AND 1 PRECEDING) AS {key}_{name}"
        for key in KEYS
        for name, ms in WINDOWS_MS.items()
    ]
    target = work / "rows.parquet"
    connection = db.connect()
    connection.execute("SET enable_progress_bar = false; SET preserve_insertion_order = false")
    connection.execute(f"SET temp_directory = '{work}/spill'")
    connection.execute(f"""
        COPY (
            WITH shown AS (
                SELECT i.*, category FROM read_parquet('{data}/impressions-*.parquet') i
                LEFT JOIN read_parquet('{data}/items.parquet') USING (item_id)
            ), known AS (
                SELECT impression_id, min(clicked_ms) AS known_ms
                FROM read_parquet('{data}/clicks.parquet') c ASOF JOIN shown s
                    ON c.user_id = s.user_id AND c.item_id = s.item_id AND c.clicked_ms >= s.shown_ms
                WHERE clicked_ms <= shown_ms + {WINDOW_MS} GROUP BY impression_id
            ), labelled AS (
                SELECT shown.*, known_ms FROM shown LEFT JOIN known USING (impression_id)
            ), positives AS (
                SELECT user_id, category, known_ms,
                    list(item_id) OVER (PARTITION BY user_id ORDER BY known_ms
                        ROWS BETWEEN {LENGTH - 1} PRECEDING AND CURRENT ROW) AS items,
                    count(*) OVER (PARTITION BY user_id, category ORDER BY known_ms) AS clicks
                FROM labelled WHERE known_ms IS NOT NULL
            ), counted AS (
                SELECT *, {", ".join(counts)}, count(*) OVER (PARTITION BY user_id, category ORDER BY shown_ms
                    RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS views
                FROM labelled
            )
            SELECT {", ".join(f"counted.{name}" for name in [*LOGGED, *COUNTS])},
                (counted.known_ms IS NOT NULL)::float AS {LABEL},
                coalesce(list_reverse(h.items), []) AS {HISTORY},
                (coalesce(r.clicks, 0) + {PRIOR * STRENGTH}) / (views + {STRENGTH}) AS {RATE}
            FROM counted
            ASOF LEFT JOIN positives h ON counted.user_id = h.user_id AND counted.shown_ms > h.known_ms
            ASOF LEFT JOIN positives r ON counted.user_id = r.user_id AND counted.category = r.category
                AND counted.shown_ms > r.known_ms
        ) TO '{target}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1)
    """)
    return [target]


def polars(data: Path, work: Path) -> list[Path]:
    """Runs the job as data frames in memory, into one file."""
    import polars as pl

    rows = pl.read_parquet(data / "impressions-*.parquet").with_row_index("row")
    rows = rows.join(pl.read_parquet(data / "items.parquet"), on="item_id", how="left").sort("shown_ms")
    clicks = pl.read_parquet(data / "clicks.parquet").sort("clicked_ms")
    owners = clicks.join_asof(
        rows.select(*KEYS, "shown_ms", "row"), left_on="clicked_ms", right_on="shown_ms", by=KEYS, tolerance=WINDOW_MS
    )
    known = owners.drop_nulls("row").group_by("row").agg(pl.col("clicked_ms").min().alias("known_ms"))
    rows = rows.join(known, on="row", how="left").sort("shown_ms")
    for key in KEYS:
        rows = _polars_counts(rows, key)
    pair = ["user_id", "category"]
    before = (pl.col("shown_ms").rank("min").over(pair) - 1).alias("views")
    clicked = rows.drop_nulls("known_ms").sort("known_ms")
    lists = pl.concat_list([pl.col("item_id").shift(i).over("user_id") for i in range(LENGTH)]).list.drop_nulls()
    clicked = clicked.select(
        *pair, "known_ms", lists.alias(HISTORY), pl.col("known_ms").cum_count().over(pair).alias("clicks")
    )
    rows = rows.with_columns(before, (pl.col("known_ms").is_not_null()).cast(pl.Float32).alias(LABEL)).drop("known_ms")
    rows = _polars_latest(rows, clicked.drop("clicks", "category"), ["user_id"])
    rows = _polars_latest(rows, clicked.drop(HISTORY), pair)
    rate = (pl.col("clicks").fill_null(0) + PRIOR * STRENGTH) / (pl.col("views") + STRENGTH)
    rows = rows.with_columns(rate.alias(RATE), pl.col(HISTORY).fill_null([]))
    target = work / "rows.parquet"
    rows.select(NAMES).write_parquet(target, compression="zstd", compression_level=1)
    return [target]


def _polars_counts(rows: Any, key: str) -> Any:
    """Adds the counts of one key; keeps the order of time."""
    import polars as pl

    ordered = rows.select(key, "shown_ms", "row").sort(key, "shown_ms", "row")
    found = ordered.select("row", (pl.col("shown_ms").rank("min").over(key) - 1).alias(f"{key}_all"))
    for name, ms in WINDOWS_MS.items():
        if ms is not None:
            windows = ordered.rolling("shown_ms", period=f"{ms}i", closed="left", group_by=key)
            counted = windows.agg(pl.len().alias(f"{key}_{name}")).select(f"{key}_{name}")
            found = pl.concat([found, counted], how="horizontal")
    return rows.join(found, on="row", how="left").sort("shown_ms")


def _polars_latest(rows: Any, known: Any, by: list[str]) -> Any:
    """Adds the last of `known` strictly before each row."""
    found = rows.join_asof(known, left_on="shown_ms", right_on="known_ms", by=by, allow_exact_matches=False)
    return found.drop("known_ms").sort("shown_ms")


def main() -> None:
    """Runs the side named first on the folder named second, into the folder named third; prints what it took."""
    sides: dict[str, Callable[[Path, Path], list[Path]]] = {"ours": ours, "duckdb": duckdb, "polars": polars}
    start = time.perf_counter()
    files = sides[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    written = sum(os.path.getsize(file) for file in files)
    result = {"files": [str(file) for file in files], "wall_s": time.perf_counter() - start, "size_bytes": written}
    # Memory is that of this one process, so children that work are an error of the benchmark.
    if used[1].ru_utime > 1:
        raise RuntimeError(f"{sys.argv[1]} worked for {used[1].ru_utime} s in processes of its own")
    print_result({**result, "cpu_s": sum(one.ru_utime + one.ru_stime for one in used)})


if __name__ == "__main__":
    main()

"""The sides of the point-in-time benchmark, each run as a process: `ours`, `duckdb` and `polars`.

Each takes the same Arrow table and returns, in the order of its rows, the columns of `NAMES`. CPU time counts from
after the imports and the reading of the file. The peers are written as their manuals would have it done fast: range
windows and an as-of join on running lists, of DuckDB as SQL, of polars by `rolling` and `join_asof`.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.benchmarks.measure import print_result

WINDOWS_MS = {"hour": 3_600_000, "day": 86_400_000, "all": None}
KEYS = ("user_id", "item_id")
LENGTH = 20
HISTORY = "clicked"
NAMES = [f"{key}_{window}" for key in KEYS for window in WINDOWS_MS] + [HISTORY]
SAMPLE_ROWS = 20_000


def ours(table: pa.Table) -> pa.Table:
    """Returns the columns by `point_in_time.derive`, one call for each key."""
    from preprocessing.point_in_time import derive
    from preprocessing.spec import CountColumn, HistoryColumn

    times = table["time_ms"]
    rows = table.select([*KEYS]).append_column("__known_click", table["click_known_ms"])
    for name in ("__time", "__visible", "__cutoff"):
        rows = rows.append_column(name, times)
    rows = rows.append_column("__query", pa.array(np.ones(len(times), np.bool_)))
    rows = rows.append_column("__order", pa.array(np.arange(len(times), dtype=np.uint64)))
    columns: dict[str, Any] = {}
    for key in KEYS:
        specs: list[CountColumn | HistoryColumn] = [
            CountColumn(kind="count", name=f"{key}_{name}", key=(key,), window_s=None if ms is None else ms / 1000)
            for name, ms in WINDOWS_MS.items()
        ]
        if key == "user_id":
            specs.append(
                HistoryColumn(kind="history", name=HISTORY, key=(key,), value="item_id", label="click", length=LENGTH)
            )
        made = derive(rows, specs, base=None, base_ms=0, ends_ms=[int(times[-1].as_py()) + 1]).columns
        columns |= dict(zip(made.column_names, made.columns, strict=True))
    return pa.table(columns)


def duckdb(table: pa.Table) -> pa.Table:
    """Returns the columns by one SQL statement."""
    import duckdb as db

    counts = [
        f"count(*) OVER (PARTITION BY {key} ORDER BY time_ms RANGE BETWEEN "
        f"{'UNBOUNDED' if ms is None else ms} PRECEDING AND 1 PRECEDING) AS {key}_{name}"
        for key in KEYS
        for name, ms in WINDOWS_MS.items()
    ]
    connection = db.connect()
    connection.execute("SET enable_progress_bar = false")
    connection.register("given", table.append_column("row", pa.array(np.arange(table.num_rows))))
    statement = f"""
        WITH clicks AS (
            SELECT user_id, click_known_ms, list(item_id) OVER (
                PARTITION BY user_id ORDER BY click_known_ms ROWS BETWEEN {LENGTH - 1} PRECEDING AND CURRENT ROW
            ) AS items
            FROM given WHERE click_known_ms IS NOT NULL
        ), counted AS (SELECT row, user_id, time_ms, {", ".join(counts)} FROM given)
        SELECT {", ".join(NAMES[:-1])}, coalesce(list_reverse(items), []) AS {HISTORY}
        FROM counted ASOF LEFT JOIN clicks
            ON counted.user_id = clicks.user_id AND counted.time_ms > clicks.click_known_ms
        ORDER BY row
    """
    return connection.execute(statement).to_arrow_table()


def polars(table: pa.Table) -> pa.Table:
    """Returns the columns by rolling groups and an as-of join."""
    import polars as pl

    rows = pl.DataFrame(pl.from_arrow(table)).with_row_index("row").sort("time_ms")
    found = rows.select("row", "user_id", "time_ms")
    for key in KEYS:
        counts = rows.select("row", (pl.col("time_ms").rank("min").over(key) - 1).alias(f"{key}_all"))
        found = found.join(counts, on="row", how="left")
        ordered = rows.select(key, "time_ms", "row").sort(key, "time_ms", "row")
        for name, ms in WINDOWS_MS.items():
            if ms is not None:
                windows = ordered.rolling("time_ms", period=f"{ms}i", closed="left", group_by=key)
                counted = windows.agg(pl.len().alias(f"{key}_{name}"))
                counted = pl.concat([ordered.select("row"), counted.select(f"{key}_{name}")], how="horizontal")
                found = found.join(counted, on="row", how="left")
    clicks = rows.filter(pl.col("click_known_ms").is_not_null()).sort("click_known_ms")
    lists = pl.concat_list([pl.col("item_id").shift(i).over("user_id") for i in range(LENGTH)]).list.drop_nulls()
    clicks = clicks.select("user_id", "click_known_ms", lists.alias(HISTORY))
    found = found.sort("time_ms").join_asof(
        clicks,
        left_on="time_ms",
        right_on="click_known_ms",
        by="user_id",
        strategy="backward",
        allow_exact_matches=False,
    )
    return found.sort("row").select(NAMES).to_arrow()


def sample_of(columns: pa.Table) -> str:
    """Returns a digest of some rows; an absent list is an empty one."""
    places = np.sort(np.random.default_rng(7).integers(0, columns.num_rows, SAMPLE_ROWS))
    rows = columns.take(pa.array(places))
    content = [[int(value) for value in rows[name].to_pylist()] for name in NAMES[:-1]]
    lists = [value or [] for value in rows[HISTORY].to_pylist()]
    return hashlib.sha256(json.dumps([content, lists]).encode()).hexdigest()[:16]


def main() -> None:
    """Runs the side named first on the file named second, and prints what it took."""
    side = {"ours": ours, "duckdb": duckdb, "polars": polars}[sys.argv[1]]
    if sys.argv[1] != "ours":
        __import__(sys.argv[1])
    else:
        import preprocessing.point_in_time  # noqa: F401
    table = pq.read_table(Path(sys.argv[2])).combine_chunks()
    cpu, wall = time.process_time(), time.perf_counter()
    columns = side(table)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    if columns.num_rows != table.num_rows:
        raise RuntimeError(f"{columns.num_rows} rows of {table.num_rows}")
    mean_history = pc.mean(pc.fill_null(pc.list_value_length(columns[HISTORY]), 0)).as_py()
    print_result({"cpu_s": cpu, "wall_s": wall, "sample": sample_of(columns), "mean_history": mean_history})


if __name__ == "__main__":
    main()

"""Counts and histories as of each impression, in rows per CPU-second: ours against DuckDB and polars.

python -m tests.benchmarks.point_in_time [--rows 5000000] [--clicks 500000] [--repeats 3] [--sides ours duckdb polars]

Impressions of each user and of each item in the hour, the day and all time before, and the last 20 items that the
user clicked, known by then: seven columns of each impression, from an Arrow table in memory to columns in memory. The
sides run in turn in one run; a sample of rows must be the same on all.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.measure import machine, run_side, spread

SIDES = "tests.benchmarks.point_in_time_sides"
DAYS = 7
MS_PER_DAY = 86_400_000


def main() -> None:
    """Prints the comparison as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--clicks", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sides", nargs="+", default=["ours", "duckdb", "polars"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(compare(Path(folder), arguments), indent=2))


def compare(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns rates, memory and ratios of the sides."""
    path = folder / "impressions.parquet"
    pq.write_table(impressions(arguments.rows, num_clicks=arguments.clicks, seed=1), path)
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in arguments.sides}
    for _ in range(arguments.repeats):
        for side, results in found.items():
            results.append(run_side(SIDES, side, str(path)))
    digests = {one["sample"] for results in found.values() for one in results}
    if len(digests) != 1:
        raise RuntimeError(f"the sides disagree: { ({side: results[0]['sample'] for side, results in found.items()}) }")
    rates = {side: [arguments.rows / one["cpu_s"] for one in results] for side, results in found.items()}
    return {
        "machine": machine(),
        "rows": arguments.rows,
        "clicks": arguments.clicks,
        "mean_history": found[arguments.sides[0]][0]["mean_history"],
        "rows_per_cpu_s": {side: spread(values) for side, values in rates.items()},
        "wall_s": {side: spread([one["wall_s"] for one in results]) for side, results in found.items()},
        "peak_rss_mb": {side: max(one["peak_rss_mb"] for one in results) for side, results in found.items()},
        "first_to": {
            side: spread([first / other for first, other in zip(rates[arguments.sides[0]], values, strict=True)])
            for side, values in rates.items()
        },
    }


def impressions(num_rows: int, *, num_clicks: int, seed: int) -> pa.Table:
    """Returns impressions in order of time: Zipf users and items, and when each click became known.

    No two clicks become known at once, so that no side needs a rule for ties.
    """
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(0, DAYS * MS_PER_DAY, num_rows)) + 1_770_000_000_000
    clicked = rng.permutation(num_rows)[:num_clicks]
    delays = times[clicked] + rng.integers(1_000, 3_600_000, num_clicks)
    order = np.argsort(delays)
    known = np.zeros(num_rows, np.int64)
    known[clicked[order]] = delays[order] + np.arange(num_clicks)
    is_click = np.zeros(num_rows, np.bool_)
    is_click[clicked] = True
    return pa.table(
        {
            "user_id": _ids(rng, "u", num_rows // 25, num_rows),
            "item_id": _ids(rng, "i", num_rows // 100, num_rows),
            "time_ms": times,
            "click_known_ms": pa.array(known, mask=~is_click),
        }
    )


def _ids(rng: np.random.Generator, prefix: str, size: int, num_rows: int) -> pa.Array:
    weights = 1.0 / np.arange(1, size + 1) ** 0.8
    tokens = np.searchsorted(np.cumsum(weights / weights.sum()), rng.random(num_rows)).clip(max=size - 1)
    words = pa.array([f"{prefix}{token:07d}" for token in rng.permutation(size)])
    return pa.DictionaryArray.from_arrays(pa.array(tokens), words).cast(pa.string())


if __name__ == "__main__":
    main()

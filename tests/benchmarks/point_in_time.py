"""From logs to labelled rows with what was known before each, in rows per CPU-second: ours against DuckDB and polars.

python -m tests.benchmarks.point_in_time [--impressions 5000000] [--clicks 500000] [--repeats 3] [--sides ours duckdb]

The whole job, from Parquet to Parquet: each click goes to the last impression of its user and item within a day; the
items' category is joined; counts of the user's and the item's impressions in the hour, the day and all time before,
the last 20 items that the user clicked, and the click rate of (user, category) are added. The sides run in turn, each
in a process of its own. A sample of rows must be the same on all.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.benchmarks.measure import machine, run_side, spread
from tests.benchmarks.point_in_time_data import write_logs
from tests.benchmarks.point_in_time_sides import HISTORY, LABEL, NAMES, RATE

MODULE = "tests.benchmarks.point_in_time_sides"
SIDES = ("ours", "duckdb", "polars")
SAMPLE_ROWS = 20_000


def main() -> None:
    """Prints the comparison as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--impressions", type=int, default=5_000_000)
    parser.add_argument("--clicks", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(compare(Path(folder), arguments), indent=2))


def compare(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns rates, memory and ratios of the sides."""
    data = folder / "logs"
    data.mkdir()
    write_logs(data, num_impressions=arguments.impressions, num_clicks=arguments.clicks, seed=1)
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in arguments.sides}
    samples: dict[str, pa.Table] = {}
    for repeat in range(arguments.repeats):
        for side, results in found.items():
            work = folder / f"{side}-{repeat}"
            work.mkdir()
            results.append(run_side(MODULE, side, str(data), str(work)))
            figures = {name: results[-1][name] for name in ("cpu_s", "wall_s", "peak_rss_mb")}
            print(json.dumps({"side": side, "repeat": repeat, **figures}), file=sys.stderr, flush=True)
            samples[side] = sample_of(results[-1]["files"], arguments.impressions)
            check_same(samples)
            shutil.rmtree(work)
    rates = {side: [arguments.impressions / one["cpu_s"] for one in results] for side, results in found.items()}
    first = arguments.sides[0]
    return {
        "machine": {**machine(), "duckdb": _version("duckdb"), "polars": _version("polars")},
        "impressions": arguments.impressions,
        "clicks": arguments.clicks,
        "sample": summary_of(samples[first]),
        "rows_per_cpu_s": {side: spread(values) for side, values in rates.items()},
        "cpu_s": {side: spread([one["cpu_s"] for one in results]) for side, results in found.items()},
        "wall_s": {side: spread([one["wall_s"] for one in results]) for side, results in found.items()},
        "peak_rss_mb": {side: max(one["peak_rss_mb"] for one in results) for side, results in found.items()},
        "output_mb": {side: results[0]["size_bytes"] >> 20 for side, results in found.items()},
        f"{first}_to": {
            side: spread([ours / other for ours, other in zip(rates[first], values, strict=True)])
            for side, values in rates.items()
            if side != first
        },
    }


def sample_of(files: Sequence[str], num_rows: int) -> pa.Table:
    """Returns the rows of some impressions, by id, in the types that all sides share."""
    total = sum(pq.read_metadata(file).num_rows for file in files)
    if total != num_rows:
        raise RuntimeError(f"{total} rows for {num_rows} impressions")
    places = np.unique(np.random.default_rng(7).integers(0, num_rows, SAMPLE_ROWS))
    wanted = pa.array([f"m{place:08d}".encode() for place in places])
    parts = []
    for file in files:
        rows = pq.ParquetFile(file)
        for batch in rows.iter_batches(batch_size=1 << 17, columns=NAMES):
            chosen = pa.table(batch.filter(pc.is_in(batch["impression_id"].cast(pa.binary()), wanted)))
            parts.append(_plain(chosen.select(NAMES)))
    sample = pa.concat_tables(parts).sort_by("impression_id").combine_chunks()
    if sample.num_rows != len(wanted):
        raise RuntimeError(f"{sample.num_rows} of {len(wanted)} impressions of the sample")
    return sample


def _plain(rows: pa.Table) -> pa.Table:
    kinds = {LABEL: pa.float64(), RATE: pa.float64(), HISTORY: pa.list_(pa.binary()), "shown_ms": pa.int64()}
    texts = {name: pa.binary() for name in NAMES if name.endswith("_id") or name == "category"}
    schema = pa.schema([(name, (kinds | texts).get(name, pa.int64())) for name in NAMES])
    return rows.cast(schema)


def check_same(samples: dict[str, pa.Table]) -> None:
    """Every value of every side must be that of the first."""
    (first, expected), *others = samples.items()
    for side, sample in others:
        for name in NAMES:
            ours, theirs = expected[name].to_pylist(), sample[name].to_pylist()
            if name == RATE:
                np.testing.assert_allclose(ours, theirs, rtol=1e-12)
            elif ours != theirs:
                place = next(n for n, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other)
                rows = {first: expected.slice(place, 1).to_pylist(), side: sample.slice(place, 1).to_pylist()}
                raise RuntimeError(f"{first} and {side} disagree about {name}: {rows}")


def summary_of(sample: pa.Table) -> dict[str, float]:
    """Returns what tells that the columns hold something."""
    lengths = pc.list_value_length(sample[HISTORY])
    named = {"label_mean": sample[LABEL], "history_mean": lengths, "rate_mean": sample[RATE]}
    return {name: pc.mean(column).as_py() for name, column in named.items()}


def _version(library: str) -> str:
    return str(__import__(library).__version__)


if __name__ == "__main__":
    main()

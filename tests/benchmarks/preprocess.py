"""Rows per CPU-second from Parquet to TFRecords: our columnar jobs against three peers, side by side in one run.

python -m tests.benchmarks.preprocess [--rows 1000000] [--peer-rows 30000] [--repeats 3] [--sides ours polars duckdb]

All do the same work on the wide schema (see `wide_data`), the sides in turn. `rows` is a row-at-a-time Beam pipeline,
whose rate does not depend on the number of rows, so it gets fewer. polars and DuckDB write Parquet, not TFRecords.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline.quiet import import_tensorflow, quiet_libraries
from tests.benchmarks.measure import machine, run_side, spread
from tests.benchmarks.wide_data import write_wide_rows

MODULE = "tests.benchmarks.preprocess_sides"
SIDES = ("ours", "polars", "duckdb", "rows")
TRAIN_SHARE = 0.8


def main() -> None:
    """Prints the comparison as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--peer-rows", type=int, default=30_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    arguments = parser.parse_args()
    quiet_libraries()
    import_tensorflow()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(compare(Path(folder), arguments), indent=2))


def compare(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns rates, memory and ratios of the sides."""
    sizes = {side: arguments.peer_rows if side == "rows" else arguments.rows for side in arguments.sides}
    files = {num_rows: folder / f"{num_rows}.parquet" for num_rows in set(sizes.values())}
    for num_rows, path in files.items():
        write_wide_rows(path, num_rows=num_rows, seed=1)
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in sizes}
    for repeat in range(arguments.repeats):
        for side, num_rows in sizes.items():
            work = folder / f"{side}-{repeat}"
            work.mkdir()
            result = run_side(MODULE, side, str(files[num_rows]), str(work))
            check(result["files"], num_rows)
            shutil.rmtree(work)
            found[side].append(result)
    rates = {side: [sizes[side] / one["cpu_s"] for one in results] for side, results in found.items()}
    figures = ("peak_rss_mb", "peak_rss_mb_without_report", "report_cpu_s", "table_rows")
    return {
        "machine": machine(),
        "rows": sizes,
        "rows_per_cpu_s": {side: spread(values) for side, values in rates.items()},
        **{
            name: {
                side: max(one[name] for one in results if name in one)
                for side, results in found.items()
                if any(name in one for one in results)
            }
            for name in figures
        },
        "ours_to": {
            side: spread([a / b for a, b in zip(rates["ours"], values, strict=True)])
            for side, values in rates.items()
            if "ours" in rates and side != "ours"
        },
    }


def check(files: list[str], num_rows: int) -> None:
    """Every row must have become one record that parses, and four fifths must be for training."""
    counts = [pq.read_metadata(path).num_rows if path.endswith(".parquet") else count_records(path) for path in files]
    in_train = [any(part.startswith("train") for part in Path(path).parts[-2:]) for path in files]
    share = sum(count for count, inside in zip(counts, in_train, strict=True) if inside) / num_rows
    if sum(counts) != num_rows or abs(share - TRAIN_SHARE) > 0.02:
        raise RuntimeError(f"{counts} records in {files} for {num_rows} rows")


def count_records(path: str) -> int:
    """Returns the number of records, each of which must parse."""
    import tensorflow as tf

    count = 0
    for record in tf.data.TFRecordDataset(path).batch(4096):
        tf.io.parse_example(record, {"weight": tf.io.FixedLenFeature([1], tf.float32, default_value=[1.0])})
        count += int(record.shape[0])
    return count


if __name__ == "__main__":
    main()

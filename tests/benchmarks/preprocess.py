"""Rows per CPU-second from Parquet to TFRecords: our columnar jobs against a row-at-a-time Beam pipeline.

python -m tests.benchmarks.preprocess [--rows 1000000] [--peer-rows 30000] [--repeats 3]

Both do the same work on the wide schema (see `wide_data`), the sides in turn in one run. The peer's rate does not
depend on the number of rows, so it gets fewer; ours is measured on both sizes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from pipeline.quiet import import_tensorflow, quiet_libraries
from tests.benchmarks.measure import machine, run_side, spread
from tests.benchmarks.wide_data import write_wide_rows

SIDES = "tests.benchmarks.preprocess_sides"


def main() -> None:
    """Prints the comparison as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--peer-rows", type=int, default=30_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    quiet_libraries()
    import_tensorflow()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(compare(Path(folder), arguments), indent=2))


def compare(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns rates, memory and ratios of both sides."""
    sizes = {"ours": arguments.rows, "ours_small": arguments.peer_rows, "rows": arguments.peer_rows}
    files = {num_rows: folder / f"{num_rows}.parquet" for num_rows in set(sizes.values())}
    for num_rows, path in files.items():
        write_wide_rows(path, num_rows=num_rows, seed=1)
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in sizes}
    for repeat in range(arguments.repeats):
        for side, num_rows in sizes.items():
            work = folder / f"{side}-{repeat}"
            work.mkdir()
            result = run_side(SIDES, side.removesuffix("_small"), str(files[num_rows]), str(work))
            check(result["files"], num_rows)
            found[side].append(result)
    rates = {side: [sizes[side] / one["cpu_s"] for one in results] for side, results in found.items()}
    ratios = [ours / rows for ours, rows in zip(rates["ours"], rates["rows"], strict=True)]
    return {
        "machine": machine(),
        "rows": sizes,
        "rows_per_cpu_s": {side: spread(values) for side, values in rates.items()},
        "peak_rss_mb": {side: max(one["peak_rss_mb"] for one in results) for side, results in found.items()},
        "ours_to_rows": spread(ratios),
    }


def check(files: list[str], num_rows: int) -> None:
    """Every row must have become one record that parses."""
    import tensorflow as tf

    count = 0
    for path in files:
        for record in tf.data.TFRecordDataset(path).batch(4096):
            tf.io.parse_example(record, {"weight": tf.io.FixedLenFeature([1], tf.float32, default_value=[1.0])})
            count += int(record.shape[0])
    if count != num_rows:
        raise RuntimeError(f"{count} records for {num_rows} rows")


if __name__ == "__main__":
    main()

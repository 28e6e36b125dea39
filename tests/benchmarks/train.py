"""Rows per second and per CPU-second of training from TFRecords, at the same AUC: ours, plain tf_keras, the MLP alone.

python -m tests.benchmarks.train [--rows 800000] [--repeats 3] [--sides ours-deepfm plain-deepfm ...]

The wide schema (see `wide_data`), batch 4096, width 16, MLP 400-400-400, one epoch; sides in turn in one run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import yaml

from pipeline.quiet import import_tensorflow, quiet_libraries
from tests.benchmarks.measure import machine, run_side, spread
from tests.benchmarks.wide_data import wide_config, write_wide_rows

SIDES = "tests.benchmarks.train_sides"
DEFAULT_SIDES = ("ours-deepfm", "ours-wide_deep", "plain-deepfm", "mlp")
AUC_MARGIN = 0.005


def main() -> None:
    """Prints the comparison as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=800_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sides", nargs="+", default=DEFAULT_SIDES)
    arguments = parser.parse_args()
    quiet_libraries()
    import_tensorflow()
    with tempfile.TemporaryDirectory() as folder:
        data = prepare(Path(folder), arguments.rows)
        print(json.dumps(compare(data, Path(folder), arguments), indent=2))


def prepare(folder: Path, num_rows: int) -> Path:
    """Returns the folder of the dataset."""
    from pipeline.config import load_config
    from pipeline.display import Display
    from pipeline.line import run_stages

    write_wide_rows(folder / "rows.parquet", num_rows=num_rows, seed=1)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(wide_config(folder / "rows.parquet", folder / "work")), encoding="utf-8")
    return run_stages(load_config(path), ("examples", "dataset"), display=Display())["dataset"].folder


def compare(data: Path, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns rates, AUCs and ratios to plain tf_keras; the AUCs of the DeepFMs must be alike."""
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in arguments.sides}
    for repeat in range(arguments.repeats):
        for side in arguments.sides:
            found[side].append(run_side(SIDES, side, str(data), str(folder / f"run-{repeat}-{side}")))
    summary: dict[str, Any] = {
        side: {
            "rows_per_cpu_s": spread([one["rows_per_cpu_s"] for one in results]),
            "rows_per_s": spread([one["rows_per_s"] for one in results]),
            "test_auc": spread([one["test_auc"] for one in results]),
        }
        for side, results in found.items()
    }
    result = {"machine": machine(), "rows": arguments.rows, "sides": summary}
    if {"ours-deepfm", "plain-deepfm"} <= found.keys():
        pairs = list(zip(found["ours-deepfm"], found["plain-deepfm"], strict=True))
        result["ours_to_plain_per_cpu_s"] = spread([a["rows_per_cpu_s"] / b["rows_per_cpu_s"] for a, b in pairs])
        result["ours_to_plain_per_s"] = spread([a["rows_per_s"] / b["rows_per_s"] for a, b in pairs])
        worse = summary["plain-deepfm"]["test_auc"]["median"] - summary["ours-deepfm"]["test_auc"]["median"]
        if worse > AUC_MARGIN:
            raise RuntimeError(f"our AUC is lower by {worse:.4f}: rates at another AUC are no comparison\n{result}")
    return result


if __name__ == "__main__":
    main()

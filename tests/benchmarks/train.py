"""Rows per second and per CPU-second of training from TFRecords, at the same AUC: ours, peers, the MLP alone.

python -m tests.benchmarks.train [--rows 800000] [--repeats 3] [--sides ours-deepfm plain-deepfm ...]

The wide schema (see `wide_data`), batch 4096, width 16, MLP 400-400-400, one epoch; sides in turn in one run, so that
each repeat gives ratios of its own. `pip install -e .[peers]` brings DeepCTR and FuxiCTR; sides that are not installed
are left out and named. `--torch-python` is a Python that has FuxiCTR, where this one has not.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pipeline.quiet import import_tensorflow, quiet_libraries
from tests.benchmarks.measure import machine, run_side, spread
from tests.benchmarks.wide_data import wide_config, write_wide_rows

SIDES = "tests.benchmarks.train_sides"
TORCH_SIDE = "tests.benchmarks.train_torch_side"
KINDS = ("deepfm", "wide_deep")
DEFAULT_SIDES = (
    *(f"ours-{kind}{precision}" for kind in KINDS for precision in ("", "-mixed_bfloat16")),
    *(f"{peer}-{kind}" for peer in ("plain", "deepctr", "fuxictr") for kind in KINDS),
    "mlp",
    "mlp-mixed_bfloat16",
)
AUC_MARGIN = 0.005


def main() -> None:
    """Prints the comparison as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=800_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sides", nargs="+", default=DEFAULT_SIDES)
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--data", type=Path, help="A dataset of an earlier run, instead of making one.")
    arguments = parser.parse_args()
    quiet_libraries()
    import_tensorflow()
    with tempfile.TemporaryDirectory() as folder:
        data = arguments.data or prepare(Path(folder), arguments.rows)
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


def installed(side: str, torch_python: str) -> bool:
    """Tells whether a side can run."""
    name = side.partition("-")[0]
    if name == "fuxictr":
        done = subprocess.run([torch_python, "-c", "import torch, fuxictr"], capture_output=True, check=False)
        return done.returncode == 0
    return name != "deepctr" or importlib.util.find_spec("deepctr") is not None


def in_memory(data: Path, path: Path) -> Path:
    """Writes the rows of the dataset, shuffled as the other sides shuffle them, and returns the file."""
    from preprocessing.dataset import open_dataset
    from tests.benchmarks.train_sides import batches

    schema = open_dataset(data).schema
    rows = {table.name: table.num_rows for table in schema.tables}
    arrays: dict[str, Any] = {"num_rows": np.array([rows[field.table] for field in schema.id_fields])}
    for split in ("train", "test"):
        parts = list(batches(data, split).as_numpy_iterator())
        arrays |= {f"{split}_{key}": np.concatenate([p[key] for p in parts]) for key in ("ids", "dense", "labels")}
    np.savez(path, **arrays)
    return path


def compare(data: Path, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns rates, AUCs and ratios; our AUCs must not be below those of plain tf_keras."""
    sides = [side for side in arguments.sides if installed(side, arguments.torch_python)]
    rows_file = in_memory(data, folder / "rows.npz") if any(side.startswith("fuxictr") for side in sides) else None
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for repeat in range(arguments.repeats):
        for side in sides:
            if side.startswith("fuxictr"):
                kind = side.partition("-")[2]
                result = run_side(TORCH_SIDE, kind, str(rows_file), python=arguments.torch_python)
            else:
                result = run_side(SIDES, side, str(data), str(folder / f"run-{repeat}-{side}"))
            found[side].append(result)
            print(side, {key: round(value, 3) for key, value in result.items()}, file=sys.stderr, flush=True)
    summary: dict[str, Any] = {
        side: {
            key: spread([one[key] for one in results])
            for key in ("rows_per_cpu_s", "rows_per_s", "test_auc", "peak_rss_mb")
        }
        for side, results in found.items()
    }
    result = {
        "machine": machine(),
        "rows": arguments.rows,
        "left_out": [side for side in arguments.sides if side not in sides],
        "sides": summary,
        "ratios_of_rows_per_cpu_s": ratios(found),
    }
    for kind in KINDS:
        ours, plain = (summary.get(f"{name}-{kind}") for name in ("ours", "plain"))
        if ours and plain and plain["test_auc"]["median"] - ours["test_auc"]["median"] > AUC_MARGIN:
            raise RuntimeError(f"our AUC is lower than that of plain {kind}: no comparison of rates\n{result}")
    return result


def ratios(found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Returns, repeat by repeat, each side of ours to every peer of the same kind and to both floors."""
    result = {}
    for side, results in found.items():
        kind = side.split("-")[1] if side.startswith("ours-") else None
        for other, others in found.items() if kind else ():
            if other.startswith("mlp") or (not other.startswith("ours-") and other.split("-")[1] == kind):
                pairs = zip(results, others, strict=True)
                result[f"{side} / {other}"] = spread([a["rows_per_cpu_s"] / b["rows_per_cpu_s"] for a, b in pairs])
    return result


if __name__ == "__main__":
    main()

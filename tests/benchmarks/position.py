"""What a position costs a model and how it is taken out, on simulated logs whose true click probabilities are known.

python -m tests.benchmarks.position [--rows-per-day 100000] [--seeds 1 2 3]

The demo's line in four forms: without the position, with it as a feature like others, with `fixed`, with `tower`. Each
is held against the probability of a click at position 1, which is what ranks items before they are placed:
on the test day, `rank_correlation` (Spearman) and `calibration` (mean score / mean probability; a tower's scores are no
probabilities).
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
import yaml

from pipeline.quiet import import_tensorflow, quiet_libraries
from tests.benchmarks.accuracy import CONFIGS, DAYS, SIMULATOR_SPLIT, START, load, run_line
from tests.benchmarks.measure import machine

FORMS: dict[str, dict[str, Any] | None] = {
    "without": None,
    "as a feature": None,
    "fixed": {"feature": "position", "kind": "fixed", "value": 1},
    "tower": {"feature": "position", "kind": "tower"},
}


def main() -> None:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows-per-day", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    arguments = parser.parse_args()
    quiet_libraries()
    import_tensorflow()
    with tempfile.TemporaryDirectory() as folder:
        result = compare(Path(folder), rows_per_day=arguments.rows_per_day, seeds=arguments.seeds)
    print(json.dumps({"machine": machine(), **result}, indent=2))


def compare(folder: Path, *, rows_per_day: int, seeds: list[int]) -> dict[str, Any]:
    """Returns the figures of each form, means over seeds."""
    from preprocessing.simulate import simulate

    simulate(folder / "logs", days=DAYS, rows_per_day=rows_per_day, seed=7, start=START)
    overrides = [
        f"data.root={folder / 'logs'}",
        f"work_dir={folder / 'work'}",
        f"data.split={SIMULATOR_SPLIT}",
        "gate=[]",
    ]
    result: dict[str, Any] = {}
    for form in FORMS:
        config = folder / f"{form}.yaml"
        config.write_text(yaml.safe_dump(tree_of(form)), encoding="utf-8")
        found = []
        for seed in seeds:
            chosen = [*overrides, f"seed={seed}"]
            run_line(config, chosen)
            found.append(against_truth(config, chosen, folder / "logs" / "truth"))
        result[form] = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
    return {"impressions": DAYS * rows_per_day, **result}


def tree_of(form: str) -> dict[str, Any]:
    """Returns the demo's config in one of the forms."""
    tree: dict[str, Any] = yaml.safe_load((CONFIGS / "demo.yaml").read_text(encoding="utf-8"))
    if form == "without":
        tree["features"] = [feature for feature in tree["features"] if feature["name"] != "position"]
    if FORMS[form] is not None:
        tree["model"]["position"] = FORMS[form]
    return tree


def against_truth(config: Path, overrides: list[str], truth: Path) -> dict[str, float]:
    """Returns how the scores of the test rows agree with their true probabilities at position 1."""
    from pipeline import stages
    from pipeline.scoring import read_rows
    from preprocessing.dataset import open_dataset

    loaded = load(config, overrides)
    inputs = stages.find_inputs(loaded)
    dataset = open_dataset(stages.plan("dataset", loaded, inputs).folder)
    scores = np.load(stages.plan("evaluate", loaded, inputs).folder / "scores-test.npy")[:, 0]
    shown = pa.concat_tables(read_rows(dataset, "test", columns=["impression_id"]))["impression_id"].to_pylist()
    known = pa.concat_tables(pq.read_table(path) for path in sorted(truth.glob("*.parquet")))
    probability = dict(
        zip(map(_key, known["impression_id"].to_pylist()), known["examined_click_probability"].to_pylist(), strict=True)
    )
    true = np.array([probability[_key(name)] for name in shown])
    return {
        "rank_correlation": float(np.corrcoef(_ranks(scores), _ranks(true))[0, 1]),
        "calibration": float(scores.mean() / true.mean()),
    }


def _key(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def _ranks(values: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable")


if __name__ == "__main__":
    main()

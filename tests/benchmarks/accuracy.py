"""AUC of the whole line, mean over seeds: on the simulator against the best possible, and on KuaiRand-Pure.

python -m tests.benchmarks.accuracy simulator [--rows-per-day 250000] [--seeds 1 2 3]
python -m tests.benchmarks.accuracy kuairand --data FOLDER_OF_THE_CSV_FILES [--seeds 1 2 3]

On KuaiRand-Pure also the same without point-in-time columns, and LightGBM on the same columns where it is installed.
Each figure is what `rankmill run` writes into metrics.json: the exported model on the raw rows of the test days.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.util
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

import pipeline
from pipeline.config import Config
from pipeline.quiet import import_tensorflow, quiet_libraries
from preprocessing.schema import LABEL_PREFIX
from tests.benchmarks.measure import machine

CONFIGS = Path(pipeline.__file__).parent / "configs"
MODELS = ("deepfm", "wide_deep")
START = dt.date(2026, 1, 5)
DAYS = 8
# Days of the 8: six to train, one to choose, one to judge.
SIMULATOR_SPLIT = "{kind: time, train_until: 2026-01-10, valid_until: 2026-01-11, test_until: 2026-01-12}"


def main() -> None:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_set", choices=["simulator", "kuairand"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rows-per-day", type=int, default=250_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--models", nargs="+", default=MODELS)
    arguments = parser.parse_args()
    quiet_libraries()
    import_tensorflow()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.data_set == "simulator":
            result = simulator(Path(folder), arguments)
        else:
            if arguments.data is None or not arguments.data.is_dir():
                parser.error("--data: the folder of the KuaiRand-Pure CSV files is needed")
            result = kuairand(Path(folder), arguments)
    print(json.dumps({"machine": machine(), **result}, indent=2))


def simulator(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns test AUCs beside the AUC that the true click probabilities reach on the same rows and clicks."""
    from preprocessing.simulate import simulate

    logs = folder / "logs"
    simulate(logs, days=DAYS, rows_per_day=arguments.rows_per_day, seed=7, start=START)
    overrides = [f"data.root={logs}", f"work_dir={folder / 'work'}", f"data.split={SIMULATOR_SPLIT}", "gate=[]"]
    runs = {
        model: [
            run_line(CONFIGS / "demo.yaml", [*overrides, f"model.kind={model}", f"seed={seed}"])
            for seed in arguments.seeds
        ]
        for model in arguments.models
    }
    best = best_possible_auc(next(iter(folder.glob("work/examples/*/rows/test"))), logs / "truth")
    result = {model: summary(metrics) for model, metrics in runs.items()}
    gaps = {model: best - figures["test_auc_mean"] for model, figures in result.items()}
    return {"impressions": DAYS * arguments.rows_per_day, "best_possible_auc": best, "gap": gaps, **result}


def best_possible_auc(rows: Path, truth: Path) -> float:
    """Returns the AUC of the true probabilities on the rows of a split."""
    from pipeline.metrics import auc

    test = pq.read_table(rows, columns=["impression_id", "__label_click"])
    known = pa.concat_tables(pq.read_table(path) for path in sorted(truth.glob("*.parquet")))
    known = known.select(["impression_id", "click_probability"])
    keys = test.set_column(0, "impression_id", test["impression_id"].cast(known.schema.field("impression_id").type))
    joined = keys.join(known, "impression_id", join_type="inner")
    if joined.num_rows != test.num_rows:
        raise RuntimeError(f"{test.num_rows} test rows, {joined.num_rows} with a known probability")
    return auc(joined["__label_click"].to_numpy(), joined["click_probability"].to_numpy())


def kuairand(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns test AUCs by the protocol in the config file: as it is, without point-in-time columns, and LightGBM."""
    overrides = [f"data.root={arguments.data}", f"work_dir={folder / 'work'}", "gate=[]"]
    whole = CONFIGS / "kuairand.yaml"
    plain = folder / "plain.yaml"
    plain.write_text(yaml.safe_dump(without_derived(yaml.safe_load(whole.read_text()))), encoding="utf-8")
    result: dict[str, Any] = {}
    for model in arguments.models:
        for name, config in ((model, whole), (f"{model}_without_point_in_time", plain)):
            chosen = [*overrides, f"model.kind={model}"]
            result[name] = summary([run_line(config, [*chosen, f"seed={seed}"]) for seed in arguments.seeds])
    if importlib.util.find_spec("lightgbm") is None:
        return {**result, "lightgbm": "not installed: pip install lightgbm"}
    chosen = [*overrides, f"model.kind={arguments.models[0]}"]
    sides = [against_lightgbm(load(whole, [*chosen, f"seed={seed}"])) for seed in arguments.seeds]
    aucs = [side["lightgbm"] for side in sides]
    lightgbm = {"test_auc_mean": float(np.mean(aucs)), "test_auc": aucs, "valid_auc": [s["valid"] for s in sides]}
    return {**result, "lightgbm": lightgbm, f"{arguments.models[0]}_less_lightgbm": [s["difference"] for s in sides]}


def without_derived(tree: dict[str, Any]) -> dict[str, Any]:
    """Returns a config without point-in-time columns, their features, and attention, which is over one of them."""
    made = {name for one in tree["data"].pop("derived") for name in (one["name"], one.get("ages"))}
    tree["features"] = [feature for feature in tree["features"] if feature["name"] not in made]
    del tree["model"]["attention"]
    return tree


def against_lightgbm(config: Config) -> dict[str, Any]:
    """Returns AUCs of LightGBM on a finished line's columns, and the line's less LightGBM's: value, 95 % interval."""
    from pipeline import stages
    from pipeline.bootstrap import interval, resampled
    from pipeline.metrics import auc
    from pipeline.scoring import read_rows
    from preprocessing.dataset import open_dataset
    from tests.benchmarks.accuracy_lightgbm import lightgbm_scores

    inputs = stages.find_inputs(config)
    dataset = open_dataset(stages.plan("dataset", config, inputs).folder)
    found = lightgbm_scores(config, dataset, seed=config.seed)
    ours = np.load(stages.plan("evaluate", config, inputs).folder / "scores-test.npy")[:, 0]
    rows = pa.concat_tables(read_rows(dataset, "test"))
    labels = rows[LABEL_PREFIX + dataset.schema.labels[0]].to_numpy()
    valid = pa.concat_tables(read_rows(dataset, "valid"))[LABEL_PREFIX + dataset.schema.labels[0]].to_numpy()
    drawn = resampled(
        labels,
        {"ours": ours, "lightgbm": found["test"]},
        users=np.array(rows[config.data.roles.user].to_pylist(), object),
        num_resamples=200,
        seed=1,
    )
    between = interval(drawn["ours"]["auc"] - drawn["lightgbm"]["auc"], confidence=0.95)
    aucs = {name: auc(labels, scores) for name, scores in (("ours", ours), ("lightgbm", found["test"]))}
    difference = {"value": aucs["ours"] - aucs["lightgbm"], "interval": between and [between.low, between.high]}
    return {"lightgbm": aucs["lightgbm"], "valid": auc(valid, found["valid"]), "difference": difference}


def load(config: Path, overrides: Sequence[str]) -> Config:
    """Returns a config file with overrides."""
    from pipeline.config import load_config

    return load_config(config, overrides)


def run_line(config: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """Runs the line and returns its metrics.json."""
    from pipeline import line
    from pipeline.display import Display

    run = line.run(load(config, overrides), display=Display())
    return dict(json.loads((run / "metrics.json").read_bytes()))


def summary(metrics: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns mean and deviation of the test AUC over seeds, and each figure."""
    aucs = [one["test"]["auc"] for one in metrics]
    return {
        "test_auc_mean": float(np.mean(aucs)),
        "test_auc_deviation": statistics.stdev(aucs) if len(aucs) > 1 else 0.0,
        "test_auc": aucs,
        "valid_auc": [one["valid"]["auc"] for one in metrics],
    }


if __name__ == "__main__":
    main()

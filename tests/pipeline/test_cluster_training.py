"""Whole training runs of several processes on this machine: equal to one device, and what happens when one dies."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.config import ModelSpec
from pipeline.train_events import Finished, TrainEvent
from pipeline.train_spec import StrategySpec, TrainSpec
from pipeline.trainer import train
from tests.pipeline.cluster_runs import Job, cluster_of, processes, run_cluster
from tests.pipeline.planted_dataset import planted_dataset

pytestmark = [pytest.mark.distributed]

# Files of uneven size, an empty one, and one row alone: fewer with rows than some clusters have workers.
ROWS = {"train": [300, 0, 199, 1], "valid": [90], "test": [31]}
MODEL = {"embedding_dim": 4, "hidden_units": [8], "precision": "float64", "batch_norm": True, "dropout": 0.1}
TRAIN: dict[str, Any] = {
    "batch_size": 50,
    "epochs": 2,
    "shuffle_rows": 100,
    "steps_per_execution": 5,
    "checkpoint_every_steps": 4,
    "early_stopping": {"patience": None},
    "evaluate_batch_size": 64,
    "tensorboard": {"enabled": False},
    "optimizers": {
        "tables": {"kind": "adagrad", "learning_rate": 0.3},
        "dense": {"kind": "adam", "learning_rate": 0.02},
    },
}
WATCHDOG = {"interval_s": 0.5, "dead_after_s": 10}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    data = tmp_path_factory.mktemp("data")
    planted_dataset(data, rows=ROWS)
    strategy = {"kind": "multi_worker_mirrored", "watchdog": WATCHDOG}
    return Job(data=data, folder=data, rows=ROWS, model=MODEL, train=TRAIN, strategy=strategy)


def run_alone(job: Job, folder: Path, **strategy: Any) -> Path:
    """Trains in this process."""
    from tests.pipeline.planted_dataset import open_planted

    events: list[TrainEvent] = []
    train(
        open_planted(job.data, rows=dict(job.rows)),
        model=ModelSpec.model_validate(job.model),
        train=TrainSpec.model_validate(job.train),
        strategy=StrategySpec.model_validate(strategy),
        seed=1,
        folder=folder,
        observe=events.append,
    )
    assert isinstance(events[-1], Finished)
    return folder


@pytest.fixture(scope="module")
def alone(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_alone(job, tmp_path_factory.mktemp("alone"))


def evaluations(folder: Path) -> list[dict[str, float]]:
    found: list[dict[str, float]] = json.loads((folder / "history.json").read_text())["evaluations"]
    return found


def assert_same_run(folder: Path, alone: Path, *, within: float = 1e-9) -> None:
    """Losses, metrics and scores of a run are those of the other."""
    ours, theirs = evaluations(folder), evaluations(alone)
    assert [entry["step"] for entry in ours] == [entry["step"] for entry in theirs]
    assert [entry["loss"] for entry in ours] == pytest.approx([entry["loss"] for entry in theirs], rel=within)
    for name in ("auc", "log_loss"):  # of float32 scores
        assert [entry[name] for entry in ours] == pytest.approx([entry[name] for entry in theirs], rel=1e-6)
    np.testing.assert_allclose(np.load(folder / "scores-test.npy"), np.load(alone / "scores-test.npy"), atol=1e-6)


def all_ended_well(ended: dict[str, tuple[int, str]]) -> None:
    for name, (code, out) in ended.items():
        assert code == 0, f"{name}: {out[-2000:]}"


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_workers_in_step_train_the_same_model_as_one(job: Job, alone: Path, tmp_path: Path, workers: int) -> None:
    run = dataclasses.replace(job, folder=tmp_path / "run")
    all_ended_well(run_cluster(run, cluster_of(workers)))
    assert_same_run(tmp_path / "run", alone)


def test_one_row_in_all_is_enough_for_two_workers(job: Job, tmp_path: Path) -> None:
    # One row of each class, for labels of one class are refused; a batch of one row leaves a worker without any.
    rows = {"train": [0, 4], "valid": []}
    planted_dataset(tmp_path / "data", rows=rows)
    run = dataclasses.replace(
        job, data=tmp_path / "data", folder=tmp_path / "run", rows=rows, train={**TRAIN, "batch_size": 1, "epochs": 1}
    )
    all_ended_well(run_cluster(run, cluster_of(2)))
    assert [path.name for path in (tmp_path / "run" / "best").iterdir()] == ["4"]


def test_parameter_servers_with_one_worker_train_the_same_model(job: Job, alone: Path, tmp_path: Path) -> None:
    strategy = {"kind": "parameter_server", "min_shard_bytes": 64, "watchdog": WATCHDOG}
    run = dataclasses.replace(job, folder=tmp_path / "run", strategy=strategy)
    all_ended_well(run_cluster(run, cluster_of(1, ps=2)))
    assert_same_run(tmp_path / "run", alone)


@pytest.mark.parametrize("kind", ["mirrored", "central_storage"])
def test_two_replicas_of_one_process_train_the_same_model(job: Job, alone: Path, tmp_path: Path, kind: str) -> None:
    assert_same_run(run_alone(job, tmp_path / kind, kind=kind, virtual_cpus=2), alone)


@pytest.mark.parametrize("victim", ["worker-0", "worker-1"])
def test_after_kill_9_the_others_stop_in_time_and_a_restart_ends_with_the_same_weights(
    job: Job, alone: Path, tmp_path: Path, victim: str
) -> None:
    run = dataclasses.replace(job, folder=tmp_path / "run", train={**TRAIN, "steps_per_execution": 1})
    other = "worker-1" if victim == "worker-0" else "worker-0"
    with processes(run, cluster_of(2)) as started:
        wait_for(lambda: len(list((tmp_path / "run" / "resume").glob("[0-9]*"))) > 0, started, timeout_s=150)
        os.kill(started[victim].pid, signal.SIGKILL)
        killed = time.monotonic()
        out, _ = started[other].communicate(timeout=60)
        assert started[other].returncode == 1
        assert time.monotonic() - killed < WATCHDOG["dead_after_s"] + 20
        assert f"{victim} (process {started[victim].pid}" in out
        assert "gave no sign of life" in out
    all_ended_well(run_cluster(dataclasses.replace(run, train=TRAIN), cluster_of(2)))
    assert_same_run(tmp_path / "run", alone, within=1e-6)


def wait_for(condition: Any, started: dict[str, Any], *, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        for name, process in started.items():
            assert process.poll() is None, f"{name}: {process.communicate()[0][-2000:]}"
        if time.monotonic() > deadline:
            raise TimeoutError("the processes did not get so far in time")
        time.sleep(0.1)

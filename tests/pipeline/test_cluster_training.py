"""Whole training runs of several processes on this machine: equal to one device, and what happens when one dies."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.config import ModelSpec
from pipeline.train_events import Finished, TrainEvent
from pipeline.train_spec import StrategySpec, TrainSpec
from pipeline.trainer import train
from tests.pipeline.cluster_runs import Job, cluster_of, processes, run_cluster, start
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
START_S = 300.0  # a bound, however busy the machine: most of it is the import of TensorFlow in every process


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


def rows_counted(folder: Path) -> int:
    """Returns the rows trained on that the last checkpoint tells of."""
    last = max((folder / "resume").iterdir(), key=lambda path: int(path.name))
    return int(json.loads((last / "manifest.json").read_text())["progress"]["state"]["num_rows"])


def all_ended_well(ended: dict[str, tuple[int, str]]) -> None:
    for name, (code, out) in ended.items():
        assert code == 0, f"{name}: {out[-2000:]}"


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_workers_in_step_train_the_same_model_as_one(job: Job, alone: Path, tmp_path: Path, workers: int) -> None:
    run = dataclasses.replace(job, folder=tmp_path / "run")
    all_ended_well(run_cluster(run, cluster_of(workers)))
    assert_same_run(tmp_path / "run", alone)
    assert rows_counted(tmp_path / "run") == TRAIN["epochs"] * sum(ROWS["train"])


def test_one_row_in_all_is_enough_for_two_workers(job: Job, tmp_path: Path) -> None:
    # One row of each class, for labels of one class are refused; a batch of one row leaves a worker without any.
    rows = {"train": [0, 4], "valid": []}
    planted_dataset(tmp_path / "data", rows=rows)
    run = dataclasses.replace(
        job, data=tmp_path / "data", folder=tmp_path / "run", rows=rows, train={**TRAIN, "batch_size": 1, "epochs": 1}
    )
    all_ended_well(run_cluster(run, cluster_of(2)))
    assert [path.name for path in (tmp_path / "run" / "best").iterdir()] == ["4"]
    assert rows_counted(tmp_path / "run") == 4
    alone = run_alone(dataclasses.replace(run, folder=tmp_path / "alone"), tmp_path / "alone")
    losses = [[entry["loss"] for entry in evaluations(folder)] for folder in (tmp_path / "run", alone)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


def test_parameter_servers_with_one_worker_train_the_same_model(job: Job, alone: Path, tmp_path: Path) -> None:
    strategy = {"kind": "parameter_server", "min_shard_bytes": 64, "watchdog": WATCHDOG}
    run = dataclasses.replace(job, folder=tmp_path / "run", strategy=strategy)
    all_ended_well(run_cluster(run, cluster_of(1, ps=2)))
    assert_same_run(tmp_path / "run", alone)


@pytest.mark.parametrize("kind", ["mirrored", "central_storage"])
def test_two_replicas_of_one_process_train_the_same_model(job: Job, alone: Path, tmp_path: Path, kind: str) -> None:
    assert_same_run(run_alone(job, tmp_path / kind, kind=kind, virtual_cpus=2), alone)


def test_after_kill_9_the_others_stop_in_time_and_a_restart_ends_with_the_same_weights(
    job: Job, alone: Path, tmp_path: Path
) -> None:
    run = dataclasses.replace(job, folder=tmp_path / "run", train={**TRAIN, "steps_per_execution": 1})
    with processes(run, cluster_of(2)) as started:
        wait_for(lambda: has_checkpoint(run), started)
        os.kill(started["worker-0"].pid, signal.SIGKILL)
        assert_ends_for(started["worker-0"], "worker-0", other=started["worker-1"])
    all_ended_well(run_cluster(dataclasses.replace(run, train=TRAIN), cluster_of(2)))
    assert_same_run(tmp_path / "run", alone, within=1e-6)


def assert_ends_for(dead: subprocess.Popen[str], name: str, *, other: subprocess.Popen[str]) -> None:
    """The other process ends in time, by itself, with a message that names the dead one."""
    killed = time.monotonic()
    out, _ = other.communicate(timeout=60)
    assert other.returncode == 1
    assert time.monotonic() - killed < WATCHDOG["dead_after_s"] + 20
    assert f"{name} (process {dead.pid}" in out
    assert "gave no sign of life" in out


def test_after_a_writer_was_killed_the_previous_checkpoint_is_used_and_that_is_said(
    job: Job, alone: Path, tmp_path: Path
) -> None:
    run = dataclasses.replace(job, folder=tmp_path / "run")
    with processes(dataclasses.replace(run, die_in_save=8), cluster_of(2)) as started:
        assert started["worker-1"].wait(timeout=START_S) == -signal.SIGKILL
        assert_ends_for(started["worker-1"], "worker-1", other=started["worker-0"])
    (leftover,) = (tmp_path / "run" / "resume").glob(".8.*.tmp")
    ended = run_cluster(run, cluster_of(2))
    all_ended_well(ended)
    assert f"resumed at 4, skipped ['{leftover.name}']" in ended["worker-0"][1]
    assert_same_run(tmp_path / "run", alone)
    assert not leftover.exists()


def test_a_worker_that_hangs_is_shown_with_its_step_and_where_it_waits(job: Job, alone: Path, tmp_path: Path) -> None:
    watchdog = {"interval_s": 0.5, "dead_after_s": 60, "stalled_after_s": 3}
    strategy = {**job.strategy, "watchdog": watchdog}
    run = dataclasses.replace(job, folder=tmp_path / "run", strategy=strategy)
    with processes(run, cluster_of(2)) as started:
        wait_for(lambda: has_checkpoint(run), started)
        os.kill(started["worker-1"].pid, signal.SIGSTOP)
        time.sleep(6)
        os.kill(started["worker-1"].pid, signal.SIGCONT)
        out, _ = started["worker-0"].communicate(timeout=120)
        assert started["worker-0"].returncode == 0, out[-2000:]
        assert started["worker-1"].wait(timeout=60) == 0
    # Others may be told of too: while the first steps are compiled, none is done either.
    (stall, *_) = [line for line in out.splitlines() if line.startswith("no step for") and "sign of life" in line]
    # Of the stopped one its last sign is known, which may be from before the checkpoint.
    me, other = (f"worker-{i} (process {started[f'worker-{i}'].pid} on {socket.gethostname()}) at step" for i in (0, 1))
    assert re.fullmatch(
        rf"no step for \d+ s: {re.escape(me)} [1-9]\d*, \w.+; "
        rf"{re.escape(other)} \d+, \w.+, without a sign of life for \d+ s",
        stall,
    ), stall
    assert_same_run(tmp_path / "run", alone)


SERVERS = {"kind": "parameter_server", "watchdog": WATCHDOG}


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_worker_of_parameter_servers_may_die(job: Job, tmp_path: Path, comes_back: bool) -> None:
    run = dataclasses.replace(
        job, folder=tmp_path / "run", strategy=SERVERS, train={**TRAIN, "epochs": 4}, await_news_at=20
    )
    cluster = cluster_of(2, ps=1)
    with processes(run, cluster) as started:
        wait_for(lambda: has_checkpoint(run), started)
        os.kill(started["worker-1"].pid, signal.SIGKILL)
        killed = time.monotonic()
        if comes_back:
            wait_for_text(started["chief-0"], "the others go on", timeout_s=60)
            started["worker-1"] = start(run, cluster, "worker", 1)
        out, _ = started["chief-0"].communicate(timeout=90)
        assert started["chief-0"].returncode == 0, out[-2000:]
        assert time.monotonic() - killed < 90
        if not comes_back:
            assert "worker-1 (process" in out
            assert "the others go on" in out
    assert evaluations(tmp_path / "run")[-1]["step"] == 40


def test_when_a_parameter_server_dies_the_job_ends_and_names_it_once(job: Job, tmp_path: Path) -> None:
    run = dataclasses.replace(
        job, folder=tmp_path / "run", strategy=SERVERS, train={**TRAIN, "epochs": 400, "checkpoint_every_steps": 20}
    )
    with processes(run, cluster_of(1, ps=2)) as started:
        wait_for(lambda: has_checkpoint(run), started)
        os.kill(started["ps-1"].pid, signal.SIGKILL)
        killed, named = time.monotonic(), f"ps-1 (process {started['ps-1'].pid} on"
        out, _ = started["chief-0"].communicate(timeout=60)
        assert time.monotonic() - killed < WATCHDOG["dead_after_s"] + 20
        assert started["chief-0"].returncode == 1
        assert out.count(named) == 1, out[-3000:]
        for name in ("worker-0", "ps-0"):
            out, _ = started[name].communicate(timeout=60)
            assert started[name].returncode == 1
            assert named in out, out[-3000:]


def wait_for_text(process: subprocess.Popen[str], text: str, *, timeout_s: float) -> None:
    """Reads what a process writes until a line has the text."""
    timer = threading.Timer(timeout_s, process.kill)
    timer.start()
    try:
        for line in process.stdout or ():
            if text in line:
                return
    finally:
        timer.cancel()
    raise TimeoutError(f"the process never said {text!r}")


def has_checkpoint(run: Job) -> bool:
    return any((run.folder / "resume").glob("[0-9]*"))


def wait_for(condition: Callable[[], bool], started: dict[str, subprocess.Popen[str]]) -> None:
    deadline = time.monotonic() + START_S
    while not condition():
        for name, process in started.items():
            assert process.poll() is None, f"{name}: {process.communicate()[0][-2000:]}"
        if time.monotonic() > deadline:
            raise TimeoutError("the processes did not get so far in time")
        time.sleep(0.1)

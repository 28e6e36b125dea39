"""Training runs of several processes on this machine, for tests: each ends by a deadline, and none is left behind."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

DEADLINE_S = 400.0
MODULE = "tests.pipeline.cluster_runs"


@dataclasses.dataclass(frozen=True)
class Job:
    """What every process of a run is told; JSON values."""

    data: Path
    folder: Path
    rows: Mapping[str, list[int]]
    model: Mapping[str, Any]
    train: Mapping[str, Any]
    strategy: Mapping[str, Any]
    kill_at: int | None = None  # the leader ends itself by SIGKILL once so many steps are done
    await_news_at: int | None = None  # once so many steps are done the leader waits until it is told of a loss
    die_in_save: int | None = None  # the last worker ends itself by SIGKILL in the middle of writing this checkpoint

    def arguments(self) -> str:
        return json.dumps(dataclasses.asdict(self), default=str)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def cluster_of(workers: int, *, ps: int = 0) -> dict[str, list[str]]:
    ports = iter(free_ports(workers + ps + 1))
    jobs = {"worker": [f"127.0.0.1:{next(ports)}" for _ in range(workers)]}
    if ps:
        jobs |= {"ps": [f"127.0.0.1:{next(ports)}" for _ in range(ps)], "chief": [f"127.0.0.1:{next(ports)}"]}
    return jobs


@contextlib.contextmanager
def processes(job: Job, jobs: dict[str, list[str]]) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Starts a process for each task; whatever is left of them at the end is killed."""
    started: dict[str, subprocess.Popen[str]] = {}
    try:
        for kind, addresses in jobs.items():
            for index in range(len(addresses)):
                started[f"{kind}-{index}"] = start(job, jobs, kind, index)
        yield started
    finally:
        for process in started.values():
            if process.poll() is None:
                process.kill()
            process.communicate()


def start(job: Job, jobs: dict[str, list[str]], kind: str, index: int) -> subprocess.Popen[str]:
    config = json.dumps({"cluster": jobs, "task": {"type": kind, "index": index}})
    return subprocess.Popen(
        [sys.executable, "-m", MODULE, job.arguments()],
        env={**os.environ, "TF_CONFIG": config, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_cluster(job: Job, jobs: dict[str, list[str]], *, deadline_s: float = DEADLINE_S) -> dict[str, tuple[int, str]]:
    """Returns the exit code and the output of each process.

    Raises:
        TimeoutError: if they are not done in time.
    """
    until = time.monotonic() + deadline_s
    with processes(job, jobs) as started:
        ended = {}
        for name, process in started.items():
            try:
                out, _ = process.communicate(timeout=max(1.0, until - time.monotonic()))
            except subprocess.TimeoutExpired as error:
                process.kill()
                raise TimeoutError(f"{name} is not done: {process.communicate()[0][-3000:]}") from error
            ended[name] = (process.returncode, out)
        return ended


def main(arguments: str) -> None:
    """Trains as one process of the cluster in TF_CONFIG, or alone without one."""
    from models.config import ModelSpec
    from pipeline.cluster import find_cluster
    from pipeline.parameter_servers import serve_task
    from pipeline.train_events import Finished, Lost, Resumed, Stepped, TrainEvent, Warned
    from pipeline.train_spec import StrategySpec, TrainSpec
    from pipeline.trainer import train
    from tests.pipeline.planted_dataset import open_planted

    job = Job(**json.loads(arguments))
    news = threading.Event()
    strategy = StrategySpec.model_validate(job.strategy)
    cluster = find_cluster(strategy, os.environ)

    def observe(event: TrainEvent) -> None:
        if isinstance(event, Warned | Lost):
            print(event.text, flush=True)
            news.set()
        if isinstance(event, Resumed):
            print(f"resumed at {event.step}, skipped {[path.name for path in event.skipped]}", flush=True)
        if isinstance(event, Finished):
            print(json.dumps({"metrics": event.result.metrics, "best_step": event.result.best_step}), flush=True)
        if isinstance(event, Stepped):
            print(f"stepped {event.step}", flush=True)
            if job.kill_at is not None and event.step >= job.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if job.await_news_at is not None and event.step >= job.await_news_at and not news.wait(60):
                raise TimeoutError("nobody told of a loss")

    if job.die_in_save is not None and cluster is not None and cluster.name == cluster.members[-1]:
        _die_in_save(str(job.die_in_save))
    try:
        if cluster is not None and strategy.kind == "parameter_server" and not cluster.leads:
            serve_task(cluster, Path(job.folder), strategy=strategy)
            return
        train(
            open_planted(Path(job.data), rows=dict(job.rows)),
            model=ModelSpec.model_validate(job.model),
            train=TrainSpec.model_validate(job.train),
            strategy=strategy,
            seed=1,
            folder=Path(job.folder),
            observe=observe,
            cluster=cluster,
        )
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        raise


def _die_in_save(step: str) -> None:
    """Makes this process end itself by SIGKILL in the middle of a file of the checkpoint of a step."""
    from models import checkpoint_files, checkpoint_writer

    write = checkpoint_files.write_array

    def dying(folder: Path, path: str, *, values: Any) -> Any:
        entry = write(folder, path, values=values)
        if folder.name.startswith(f".{step}."):
            (folder / path).write_bytes((folder / path).read_bytes()[:-7])
            os.kill(os.getpid(), signal.SIGKILL)
        return entry

    vars(checkpoint_writer)["write_array"] = dying


if __name__ == "__main__":
    main(sys.argv[1])

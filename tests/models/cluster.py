"""Worker processes for the tests of models: a cluster on loopback that runs jobs and writes down what they gave."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Results = dict[str, NDArray[np.generic]]
_ROOT = Path(__file__).parent.parent.parent


def free_ports(count: int) -> list[int]:
    """Returns ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def run_workers(
    folder: Path, jobs: list[dict[str, Any]], *, workers: int, replicas_each: int, timeout_s: float = 500.0
) -> list[dict[str, Results]]:
    """Returns what each worker wrote for each job, by the job's name.

    Raises:
        RuntimeError: if a worker fails or the time is over; all are ended.
    """
    addresses = [f"127.0.0.1:{port}" for port in free_ports(workers)]
    processes = []
    for index in range(workers):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        (folder / f"jobs-{index}.json").write_text(json.dumps({"replicas": replicas_each, "jobs": jobs}))
        with (folder / f"worker-{index}.log").open("wb") as log:
            command = [sys.executable, "-m", "tests.models.worker", str(folder), str(index)]
            environment = {**os.environ, "TF_CONFIG": json.dumps(config), "PYTHONPATH": str(_ROOT)}
            processes.append(subprocess.Popen(command, cwd=_ROOT, env=environment, stdout=log, stderr=log))
    try:
        _wait(processes, folder, deadline=time.monotonic() + timeout_s)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [
        {job["name"]: dict(np.load(folder / f"{job['name']}-{index}.npz", allow_pickle=False)) for job in jobs}
        for index in range(workers)
    ]


def _wait(processes: list[subprocess.Popen[bytes]], folder: Path, *, deadline: float) -> None:
    while any(process.poll() is None for process in processes):
        failed = [i for i, process in enumerate(processes) if process.poll()]
        if failed or time.monotonic() > deadline:
            who = failed[0] if failed else 0
            end = (folder / f"worker-{who}.log").read_text(errors="replace")[-4000:]
            raise RuntimeError(f"worker {who} {'failed' if failed else 'is not done in time'}:\n{end}")
        time.sleep(0.1)
    failed = [i for i, process in enumerate(processes) if process.returncode]
    if failed:
        raise RuntimeError((folder / f"worker-{failed[0]}.log").read_text(errors="replace")[-4000:])

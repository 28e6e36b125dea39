"""A load test by several processes: each sends every P-th request of the one schedule, all from the same instant.

FOLDER/plan.json         what to send where
FOLDER/bodies.arrow      the requests
FOLDER/INDEX.npz         what became of those of process INDEX
FOLDER/stop              made by the parent when nothing more is to be sent
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from preprocessing.errors import ServingError
from serving.load_drive import drive, run_precisely
from serving.load_schedule import Samples, share_of
from serving.load_send import LoadTarget, open_sender

__all__ = ["drive_processes", "main"]

_START_UP_S = 60.0
_POLL_S = 0.1
_ROOT = Path(__file__).resolve().parent.parent


def drive_processes(
    target: LoadTarget,
    bodies: Sequence[bytes],
    due_s: NDArray[np.float64],
    *,
    processes: int,
    timeout_s: float,
    observe: Callable[[int], None],
    stopped: Callable[[], bool],
) -> Samples:
    """Returns what became of the requests, in the order in which they were due.

    Raises:
        ServingError: if a process fails or takes much longer than the test.
    """
    with tempfile.TemporaryDirectory(prefix="load-") as name:
        folder = Path(name)
        plan = {"target": dataclasses.asdict(target), "processes": processes, "timeout_s": timeout_s}
        (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        with pa.OSFile(str(folder / "bodies.arrow"), "wb") as sink:
            table = pa.table({"body": pa.array(bodies, pa.large_binary())})
            with pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
        np.save(folder / "due.npy", due_s)
        running = [_start(folder, index) for index in range(processes)]
        try:
            _await(folder, running, seconds=float(due_s[-1]) + timeout_s, observe=observe, stopped=stopped)
        finally:
            for process in running:
                process.kill()
                process.wait()
        return _merged([folder / f"{index}.npz" for index in range(processes)])


def _start(folder: Path, index: int) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    code = "import sys; from serving.load_processes import main; main(sys.argv[1], int(sys.argv[2]))"
    with (folder / f"{index}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-c", code, str(folder), str(index)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": path},
        )


def _await(
    folder: Path,
    running: Sequence[subprocess.Popen[bytes]],
    *,
    seconds: float,
    observe: Callable[[int], None],
    stopped: Callable[[], bool],
) -> None:
    deadline = time.monotonic() + 2 * _START_UP_S + 2 * seconds
    go = folder / "go"
    while any(process.poll() is None for process in running):
        if time.monotonic() > deadline:
            raise ServingError(f"the processes of a load test did not end in time{_log(folder, 0)}")
        if not go.exists() and all((folder / f"{index}.ready").exists() for index in range(len(running))):
            _write(go, repr(time.time() + 0.5))
        if stopped():
            (folder / "stop").touch()
        observe(sum(_sent(folder / f"{index}.sent") for index in range(len(running))))
        if any(process.poll() for process in running):
            break
        time.sleep(_POLL_S)
    for index, process in enumerate(running):
        if process.poll():
            raise ServingError(
                f"process {index} of a load test ended with code {process.returncode}{_log(folder, index)}"
            )


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _sent(path: Path) -> int:
    return int(path.read_text(encoding="utf-8")) if path.exists() else 0


def _log(folder: Path, index: int) -> str:
    return ":\n" + (folder / f"{index}.log").read_text(encoding="utf-8", errors="replace")[-2000:]


def _merged(paths: Sequence[Path]) -> Samples:
    parts = [dict(np.load(path)) for path in paths]
    names = [field.name for field in dataclasses.fields(Samples)]
    whole = Samples(**{name: np.concatenate([part[name] for part in parts]) for name in names})
    return whole.taken(np.argsort(whole.due_s, kind="stable"))


def main(name: str, index: int) -> None:
    """Sends the share of one process, and leaves what became of it in the folder."""
    folder = Path(name)
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    with pa.memory_map(str(folder / "bodies.arrow")) as source:
        bodies = pa.ipc.open_file(source).read_all()["body"].to_pylist()
    due_s = share_of(np.load(folder / "due.npy"), index=index, processes=plan["processes"])
    _open(plan["target"])
    start_s = _await_go(folder, index)
    driven = functools.partial(
        drive,
        bodies=bodies,
        due_s=due_s,
        start_s=start_s,
        first_body=index,
        step=plan["processes"],
        observe=lambda sent: _write(folder / f"{index}.sent", str(sent)),
        stopped=(folder / "stop").exists,
    )
    samples = run_precisely(open_sender(LoadTarget(**plan["target"]), timeout_s=plan["timeout_s"]), driven)
    with (folder / f"{index}.npz").open("wb") as file:
        np.savez(file, **{field.name: getattr(samples, field.name) for field in dataclasses.fields(samples)})


def _open(target: dict[str, str]) -> None:
    """Imports what sending needs: not after the start."""
    if target["api"] == "grpc":
        import grpc.aio  # noqa: F401
    else:
        import aiohttp  # noqa: F401


def _await_go(folder: Path, index: int) -> float:
    (folder / f"{index}.ready").touch()
    deadline = time.monotonic() + _START_UP_S
    while not (folder / "go").exists():
        if time.monotonic() > deadline:
            raise ServingError("the other processes of a load test did not start in time")
        time.sleep(_POLL_S / 10)
    return float((folder / "go").read_text(encoding="utf-8"))

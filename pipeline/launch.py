"""A cluster of processes on this machine: `rankmill launch`.

Each process is this command again with its TF_CONFIG. Their output comes out line by line under their names; only
the leader draws a bar. When one dies all are ended - but a worker of parameter servers, which is started again.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from pipeline.progress_lines import LAUNCHER, parse_progress
from preprocessing.errors import TrainingError

__all__ = ["Launched", "LocalCluster", "free_ports", "launch", "local_cluster"]

HOST = "127.0.0.1"
LAST_LINES = 20
WORKER_RESTARTS = 3
_TERMINATE_S = 5.0
_FOLLOWERS_END_S = 60.0


@dataclasses.dataclass(frozen=True)
class LocalCluster:
    """The processes to start: addresses by job. The first name leads."""

    jobs: Mapping[str, tuple[str, ...]]

    @property
    def names(self) -> tuple[str, ...]:
        """Such as 'worker-1', the leader first."""
        order = [job for job in ("chief", "worker", "ps") if job in self.jobs]
        return tuple(f"{job}-{index}" for job in order for index in range(len(self.jobs[job])))

    @property
    def restartable(self) -> frozenset[str]:
        """Those whose death the others survive."""
        return frozenset(name for name in self.names if "ps" in self.jobs and name.startswith("worker-"))

    def tf_config(self, name: str) -> str:
        """Returns what a process is told of the cluster and of itself."""
        job, _, index = name.rpartition("-")
        cluster = {job: list(addresses) for job, addresses in self.jobs.items()}
        return json.dumps({"cluster": cluster, "task": {"type": job, "index": int(index)}})


def free_ports(count: int) -> list[int]:
    """Returns ports of the loopback interface that nobody listens on, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def local_cluster(*, workers: int, servers: int) -> LocalCluster:
    """Returns a cluster on free ports: workers in step, or with servers a coordinator besides."""
    ports = iter(free_ports(workers + servers + 1))
    jobs: dict[str, tuple[str, ...]] = {"chief": (f"{HOST}:{next(ports)}",)} if servers else {}
    jobs["worker"] = tuple(f"{HOST}:{next(ports)}" for _ in range(workers))
    if servers:
        jobs["ps"] = tuple(f"{HOST}:{next(ports)}" for _ in range(servers))
    return LocalCluster(jobs)


@dataclasses.dataclass
class Launched:
    """A running process and the last lines that it wrote."""

    name: str
    process: subprocess.Popen[str]
    lines: collections.deque[str]
    restarts: int = 0


def launch(cluster: LocalCluster, command: Sequence[str], *, say: Callable[[str, str], None]) -> None:
    """Runs `command` once for each process of the cluster and returns when the leader has finished.

    Args:
        cluster: the processes.
        command: the same for all, program first.
        say: called with the name of a process and a line that it wrote.

    Raises:
        TrainingError: if a process died; its text names it and has its last lines.
    """
    lines: queue.SimpleQueue[tuple[str, str | None]] = queue.SimpleQueue()
    started: dict[str, Launched] = {}
    with _no_orphans(started):
        for name in cluster.names:
            started[name] = _start(cluster, name, command, lines)
        _follow(cluster, command, started, lines, say)


def _start(
    cluster: LocalCluster, name: str, command: Sequence[str], lines: queue.SimpleQueue[tuple[str, str | None]]
) -> Launched:
    process = subprocess.Popen(
        command,
        env={**os.environ, "TF_CONFIG": cluster.tf_config(name), LAUNCHER: str(os.getpid()), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C reaches the launcher alone, which then ends all in order
    )
    threading.Thread(target=_read, args=(name, process, lines), daemon=True).start()
    return Launched(name, process, collections.deque(maxlen=LAST_LINES))


def _read(name: str, process: subprocess.Popen[str], lines: queue.SimpleQueue[tuple[str, str | None]]) -> None:
    if process.stdout is not None:
        for line in process.stdout:
            lines.put((name, line.rstrip("\n")))
    lines.put((name, None))


def _follow(
    cluster: LocalCluster,
    command: Sequence[str],
    started: dict[str, Launched],
    lines: queue.SimpleQueue[tuple[str, str | None]],
    say: Callable[[str, str], None],
) -> None:
    """Passes lines on until every process has ended well."""
    running, deadline = set(started), None
    while running:
        with contextlib.suppress(queue.Empty):
            name, line = lines.get(timeout=0.2)
            if line is not None:
                if parse_progress(line) is None:
                    started[name].lines.append(line)
                say(name, line)
                continue
            code = started[name].process.wait()
            if code != 0 and _may_restart(cluster, started[name], running):
                say(name, f"died ({_cause(code)}); started again, the others went on")
                restarts = started[name].restarts + 1
                started[name] = _start(cluster, name, command, lines)
                started[name].restarts = restarts
            elif code != 0 and not (name in cluster.restartable and cluster.names[0] not in running):
                raise TrainingError(_died(started[name], code))
            else:
                running.discard(name)
                deadline = time.monotonic() + _FOLLOWERS_END_S if name == cluster.names[0] else deadline
        if deadline is not None and time.monotonic() > deadline:
            return  # the leader is done; what still runs is ended with this block


def _may_restart(cluster: LocalCluster, died: Launched, running: set[str]) -> bool:
    return died.name in cluster.restartable and cluster.names[0] in running and died.restarts < WORKER_RESTARTS


def _cause(code: int) -> str:
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"


def _died(process: Launched, code: int) -> str:
    said = "\n".join(f"  [{process.name}] {line}" for line in process.lines)
    return (
        f"{process.name} (process {process.process.pid}) ended {_cause(code)}; all others were ended. "
        f"The same command goes on from the last checkpoint. Its last lines:\n{said or '  (none)'}"
    )


@contextlib.contextmanager
def _no_orphans(started: Mapping[str, Launched]) -> Iterator[None]:
    """Ends whatever still runs when the block is left, however it is left: first asked, then killed."""
    before = signal.getsignal(signal.SIGTERM)
    in_main = threading.current_thread() is threading.main_thread()
    if in_main:
        signal.signal(signal.SIGTERM, _raise_exit)
    try:
        yield
    finally:
        left = [each.process for each in started.values() if each.process.poll() is None]
        for process in left:
            _signal(process, signal.SIGTERM)
        deadline = time.monotonic() + _TERMINATE_S
        for process in left:
            try:
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)
                process.wait()
        if in_main:
            signal.signal(signal.SIGTERM, before)


def _raise_exit(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Signals a process and those that it started: it leads a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)

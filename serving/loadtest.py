"""Load tests of a model server: requests at a given rate, latencies from when they were due.

`result = run_load(LoadTarget("127.0.0.1:8500"), [request.SerializeToString()], qps=200, duration_s=30)`
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence

from preprocessing.errors import ConfigError
from serving.load_drive import drive, run_precisely
from serving.load_figures import LoadResult, figures
from serving.load_processes import drive_processes
from serving.load_schedule import Arrivals, arrival_times
from serving.load_send import LoadTarget, check_loopback, open_sender

__all__ = ["LoadResult", "LoadTarget", "run_load"]

# Over REST a request costs the sender 0.2 ms of CPU (measured): at this rate two thirds of its time are to spare.
_QPS_PER_PROCESS = 1500.0


def run_load(
    target: LoadTarget,
    bodies: Sequence[bytes],
    *,
    qps: float,
    duration_s: float,
    arrivals: Arrivals = "poisson",
    timeout_s: float = 10.0,
    seed: int = 0,
    processes: int = 0,
    allow_remote: bool = False,
    observe: Callable[[int], None] = lambda sent: None,
    stopped: Callable[[], bool] = lambda: False,
) -> LoadResult:
    """Returns the figures of a load test; blocks until its last answer is there.

    Args:
        target: the server.
        bodies: serialised requests, sent in turn, again from the first after the last.
        qps: requests a second.
        duration_s: for how long requests are due.
        arrivals: "poisson" as of independent users, or "uniform" with equal gaps.
        timeout_s: deadline of each request.
        seed: of the arrivals.
        processes: that send; 0 for as many as the rate asks for, up to the number of processors.
        allow_remote: whether the server may be another machine.
        observe: told the number of requests sent so far, some times a second.
        stopped: asked as often; once true, no more requests are sent, and those that were count.

    Raises:
        ConfigError: if there is nothing to send, or the server is another machine.
    """
    if not bodies:
        raise ConfigError("a load test needs at least one request to send")
    if not (qps > 0 and duration_s > 0):
        raise ConfigError(f"a load test needs a rate and a duration above 0, not {qps:g} q/s for {duration_s:g} s")
    if not allow_remote:
        check_loopback(target.address)
    due_s = arrival_times(arrivals, qps=qps, duration_s=duration_s, seed=seed)
    count = processes or _processes_for(qps)
    if count > 1 and len(due_s) >= count:
        samples = drive_processes(
            target, bodies, due_s, processes=count, timeout_s=timeout_s, observe=observe, stopped=stopped
        )
    else:
        driven = functools.partial(drive, bodies=bodies, due_s=due_s, observe=observe, stopped=stopped)
        samples = run_precisely(open_sender(target, timeout_s=timeout_s), driven)
    return figures(samples, qps=qps)


def _processes_for(qps: float) -> int:
    return max(1, min(os.cpu_count() or 1, math.ceil(qps / _QPS_PER_PROCESS)))

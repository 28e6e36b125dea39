"""A training run among several processes: looked after while it runs, ended with a name when one of them is lost."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import tensorflow as tf

from pipeline.cluster import Cluster
from pipeline.train_events import Lost, TrainEvent, Warned
from pipeline.train_spec import WatchdogSpec
from pipeline.watchdog import DONE, FAILED, Watchdog, watch_folder
from preprocessing.errors import TrainingError

__all__ = ["Mark", "watched", "watched_server"]

# (steps done, what comes next)
Mark = Callable[[int, str], None]

EXIT_LOST = 1
_ADVICE = "; this run ends here: start all processes again, they go on from the last checkpoint"
# What TensorFlow raises where the other side of a connection is gone.
_BROKEN = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
    tf.errors.UnknownError,
)


@contextlib.contextmanager
def watched(
    folder: Path, cluster: Cluster | None, *, spec: WatchdogSpec, observe: Callable[[TrainEvent], None]
) -> Iterator[Mark]:
    """Watches over the processes of `cluster` in the block; the value notes where this one is.

    When another process was lost, `observe` is told and this one ends with code 1.

    Raises:
        TrainingError: if TensorFlow lost a connection although all processes give signs of life.
    """
    if cluster is None:
        yield lambda _step, _where: None
        return
    dog = Watchdog(
        watch_folder(folder),
        cluster.name,
        peers=[name for name in cluster.names if name != cluster.name],
        survivable=[name for name in cluster.names if cluster.jobs.get("ps") and name.startswith("worker-")],
        spec=spec,
        on_lost=lambda text: _leave(text, observe),
        say=lambda text: observe(Warned(text)),
    )
    dog.start()
    try:
        yield dog.at
    except BaseException as error:
        lost = dog.lost(within_s=spec.dead_after_s + 3 * spec.interval_s) if _is_of_tensorflow(error) else None
        dog.stop(FAILED, message=lost or _first_line(error) or type(error).__name__)
        if lost is not None:
            _leave(lost, observe)
        if isinstance(error, _BROKEN):
            raise TrainingError(f"the processes lost each other: {_first_line(error)}{_ADVICE}") from error
        raise
    dog.stop(DONE)


def _leave(text: str, observe: Callable[[TrainEvent], None]) -> None:
    """Ends this process at once: what waits for the lost one, here or in TensorFlow, would wait for long."""
    try:
        observe(Lost(text + _ADVICE))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(EXIT_LOST)


def _is_of_tensorflow(error: BaseException) -> bool:
    """Returns whether another process may be the cause: what a lost one leads to has many types, all of them there."""
    return type(error).__module__.startswith("tensorflow")


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "")[:300]


def watched_server(folder: Path, cluster: Cluster, *, spec: WatchdogSpec) -> None:
    """Signs for a worker or parameter server and returns when the coordinator is done.

    Raises:
        TrainingError: if the coordinator failed or gives no sign of life any more.
    """
    lost: list[str] = []
    leader = cluster.members[0]
    dog = Watchdog(
        watch_folder(folder), cluster.name, peers=[leader], spec=spec, on_lost=lost.append, say=lambda _text: None
    )
    dog.start()
    dog.at(0, "serving")
    while not lost and dog.sightings()[0].state != DONE:
        time.sleep(spec.interval_s)
    dog.stop(DONE)
    if lost:
        raise TrainingError(f"{cluster.name} ends with its coordinator: {lost[0]}")

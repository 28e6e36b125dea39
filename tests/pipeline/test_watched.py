"""What a process says when TensorFlow fails under it: who was lost, if anybody was, or else what failed."""

import threading
import time
from pathlib import Path

import pytest
import tensorflow as tf

from pipeline import watched as module
from pipeline.cluster import Cluster
from pipeline.train_spec import WatchdogSpec
from pipeline.watchdog import Watchdog, watch_folder
from pipeline.watched import watched
from preprocessing.errors import TrainingError

SPEC = WatchdogSpec(interval_s=0.05, dead_after_s=0.5)
CLUSTER = Cluster({"chief": ("a:1",), "worker": ("b:1",), "ps": ("c:1",)}, "chief", 0)


class LeftError(Exception):
    """In place of the end of the process."""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []

    def leave(text: str, _observe: object) -> None:
        found.append(text)
        if threading.current_thread() is threading.main_thread():
            raise LeftError

    monkeypatch.setattr(module, "_leave", leave)
    return found


def errors() -> list[Exception]:
    from tensorflow.python.distribute.coordinator.cluster_coordinator import ClosureAbortedError

    return [
        tf.errors.UnavailableError(None, None, "connection refused"),
        tf.errors.InvalidArgumentError(None, None, "unable to find a context_id matching the specified one"),
        tf.errors.NotFoundError(None, None, "no such resource"),
        ClosureAbortedError(ValueError("aborted")),
    ]


@pytest.mark.parametrize("error", errors(), ids=lambda error: type(error).__name__)
def test_whatever_a_dead_server_leads_to_its_name_is_said_once(
    tmp_path: Path, told: list[str], error: Exception
) -> None:
    server = Watchdog(watch_folder(tmp_path), "ps-0", peers=[], spec=SPEC, on_lost=told.append, say=lambda _text: None)
    server.start()

    def block() -> None:
        with watched(tmp_path, CLUSTER, spec=SPEC, observe=lambda _event: None):
            time.sleep(10 * SPEC.interval_s)  # so that a sign of the server is seen
            server._ended.set()  # as a kill: no last sign
            raise error

    # Whichever of the two threads finds it, it is told: the watching one in a process that then ends.
    with pytest.raises((LeftError, type(error), TrainingError)):
        block()
    assert len(told) == 1
    assert told[0].startswith("ps-0 (process")


def test_an_error_although_all_are_alive_is_told_as_it_is(tmp_path: Path, told: list[str]) -> None:
    own = tf.errors.ResourceExhaustedError(None, None, "out of memory")
    with (
        pytest.raises(tf.errors.ResourceExhaustedError, match="out of memory"),
        watched(tmp_path, CLUSTER, spec=SPEC, observe=lambda _event: None),
    ):
        raise own
    with (
        pytest.raises(TrainingError, match="the processes lost each other: reset"),
        watched(tmp_path, CLUSTER, spec=SPEC, observe=lambda _event: None),
    ):
        raise tf.errors.UnavailableError(None, None, "reset")
    assert not told

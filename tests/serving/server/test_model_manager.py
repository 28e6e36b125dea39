"""The life cycle of versions, with a loader that needs no TensorFlow."""

import dataclasses
import shutil
import threading
import time
from typing import Any

import pytest

from serving.server.discovery import ModelConfig, Policy
from serving.server.model_manager import LoadOptions, ModelManager
from serving.server.status import Code, StatusError
from serving.server.versions import State

_OPTIONS = LoadOptions(poll_wait_s=0.02, max_num_load_retries=1, load_retry_interval_s=0.02)


@dataclasses.dataclass
class _Model:
    number: int
    closed: bool = False

    def close(self) -> None:
        self.closed = True


class _Disk:
    """A base path with versions that load or fail as told."""

    def __init__(self, base: Any) -> None:
        self.base = base
        self.broken: set[int] = set()
        self.attempts: list[int] = []
        self.loaded: dict[int, _Model] = {}

    def add(self, *numbers: Any) -> None:
        for number in numbers:
            (self.base / str(number)).mkdir(parents=True)

    def load(self, _name: Any, number: Any, _path: Any) -> Any:
        self.attempts.append(number)
        if number in self.broken:
            raise StatusError(Code.DATA_LOSS, f"version {number} is broken")
        self.loaded[number] = _Model(number)
        return self.loaded[number]


def _wait(condition: Any, timeout_s: Any = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the state did not come")
        time.sleep(0.005)


@pytest.fixture
def disk(tmp_path: Any) -> Any:
    return _Disk(tmp_path / "m")


@pytest.fixture
def manager(disk: Any) -> Any:
    made = ModelManager(disk.load, _OPTIONS)
    yield made
    made.stop()


def _newest(manager: Any) -> Any:
    with manager.acquire("m") as (_, number):
        return number


def _states(manager: Any) -> Any:
    return {status.version: status.state for status in manager.statuses("m")}


def test_swaps_to_a_new_version_and_closes_the_old_one(manager: Any, disk: Any) -> None:
    disk.add(1)
    manager.start([ModelConfig("m", disk.base)])
    assert _newest(manager) == 1
    disk.add(2)
    _wait(lambda: _states(manager) == {2: State.AVAILABLE, 1: State.END})
    assert _newest(manager) == 2
    assert disk.loaded[1].closed
    with (
        pytest.raises(StatusError, match=r"Servable not found for request: Specific\(m, 1\)"),
        manager.acquire("m", version=1),
    ):
        pass


def test_a_request_keeps_its_version_until_it_is_done(manager: Any, disk: Any) -> None:
    disk.add(1)
    manager.start([ModelConfig("m", disk.base)])
    with manager.acquire("m") as (model, _):
        disk.add(2)
        _wait(lambda: _states(manager) == {2: State.AVAILABLE, 1: State.UNLOADING})
        time.sleep(0.3)
        assert not model.closed
    _wait(lambda: model.closed)


def test_a_version_that_does_not_load_is_retried_then_left_and_the_old_one_serves(manager: Any, disk: Any) -> None:
    disk.add(1)
    manager.start([ModelConfig("m", disk.base)])
    disk.broken.add(2)
    disk.add(2)
    _wait(lambda: _states(manager).get(2) is State.END)
    time.sleep(0.2)
    assert disk.attempts == [1, 2, 2]
    assert _newest(manager) == 1
    failed = manager.statuses("m", version=2)[0].error
    assert (failed.code, failed.message) == (Code.DATA_LOSS, "version 2 is broken")
    disk.add(3)
    _wait(lambda: _newest(manager) == 3)


def test_removing_the_newest_version_rolls_back_and_removing_all_unloads(manager: Any, disk: Any) -> None:
    disk.add(1, 2)
    manager.start([ModelConfig("m", disk.base)])
    assert _newest(manager) == 2
    shutil.rmtree(disk.base / "2")
    _wait(lambda: _states(manager) == {2: State.END, 1: State.AVAILABLE})
    shutil.rmtree(disk.base / "1")
    _wait(lambda: set(_states(manager).values()) == {State.END})
    with pytest.raises(StatusError, match=r"Servable not found for request: Latest\(m\)"):
        _newest(manager)


def test_losing_the_base_path_unloads_nothing(manager: Any, disk: Any) -> None:
    disk.add(1)
    manager.start([ModelConfig("m", disk.base)])
    disk.base.rename(disk.base.with_name("away"))
    time.sleep(0.3)
    assert _newest(manager) == 1


def test_start_waits_for_the_first_version(manager: Any, disk: Any) -> None:
    starter = threading.Thread(target=manager.start, args=([ModelConfig("m", disk.base)],), daemon=True)
    starter.start()
    time.sleep(0.2)
    assert starter.is_alive()
    disk.add(1)
    starter.join(10)
    assert not starter.is_alive()
    assert _newest(manager) == 1


def test_start_fails_when_the_only_version_cannot_be_loaded(manager: Any, disk: Any) -> None:
    disk.broken.add(1)
    disk.add(1)
    with pytest.raises(StatusError, match=r"1 model\(s\) did not become available.*version 1 is broken") as caught:
        manager.start([ModelConfig("m", disk.base)])
    assert caught.value.code is Code.UNKNOWN
    assert disk.attempts == [1, 1]


def test_start_ends_when_the_server_is_told_to_stop(disk: Any) -> None:
    stopping = threading.Event()
    manager = ModelManager(disk.load, _OPTIONS, stopping=stopping)
    threading.Timer(0.2, stopping.set).start()
    with pytest.raises(StatusError) as caught:
        manager.start([ModelConfig("m", disk.base)])
    assert caught.value.code is Code.CANCELLED
    manager.stop()


def test_a_new_config_replaces_the_old_one_whole_and_a_refused_one_changes_nothing(
    manager: Any, disk: Any, tmp_path: Any
) -> None:
    disk.add(1, 2)
    (tmp_path / "n" / "5").mkdir(parents=True)
    both = ModelConfig("m", disk.base, policy=Policy("all"))
    manager.start([both])
    _wait(lambda: _states(manager) == {1: State.AVAILABLE, 2: State.AVAILABLE})
    with pytest.raises(StatusError):
        manager.apply([ModelConfig("m", disk.base, labels={"canary": 9})])
    manager.apply([dataclasses.replace(both, labels={"stable": 1}), ModelConfig("n", tmp_path / "n")])
    with manager.acquire("m", label="stable") as (_, number):
        assert number == 1
    with (
        pytest.raises(StatusError, match="Unrecognized servable version label: canary"),
        manager.acquire("m", label="canary"),
    ):
        pass
    manager.apply([ModelConfig("n", tmp_path / "n")])
    _wait(lambda: set(_states(manager).values()) == {State.END})
    with manager.acquire("n") as (_, number):
        assert number == 5


def test_stop_closes_what_is_loaded(disk: Any) -> None:
    disk.add(1)
    manager = ModelManager(disk.load, _OPTIONS)
    manager.start([ModelConfig("m", disk.base)])
    manager.stop()
    assert disk.loaded[1].closed


def test_an_unexpected_error_in_a_loader_is_a_failed_load(disk: Any) -> None:
    disk.add(1)

    def explode(*_: Any) -> _Model:
        raise ZeroDivisionError("boom")

    manager = ModelManager(explode, _OPTIONS)
    with pytest.raises(StatusError, match="boom"):
        manager.start([ModelConfig("m", disk.base)])
    manager.stop()

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.train_spec import WatchdogSpec
from pipeline.watchdog import DONE, FAILED, Watchdog, watch_folder

SPEC = WatchdogSpec(interval_s=0.02, dead_after_s=0.3, stalled_after_s=60)


def until(condition: Callable[[], bool], *, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Pair:
    """Two processes as two watchdogs in one; the peer can fall silent."""

    def __init__(
        self,
        folder: Path,
        spec: WatchdogSpec = SPEC,
        *,
        peers: tuple[str, ...] = ("worker-1",),
        **options: tuple[str, ...],
    ) -> None:
        self.lost: list[str] = []
        self.said: list[str] = []
        self.me = Watchdog(
            folder,
            "worker-0",
            peers=peers,
            spec=spec,
            on_lost=self.lost.append,
            say=self.said.append,
            **options,
        )
        self.peer = Watchdog(folder, "worker-1", peers=[], spec=spec, on_lost=self.lost.append, say=lambda _text: None)


def test_a_peer_that_falls_silent_is_named_with_where_it_was(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.me.start()
    pair.peer.start()
    pair.peer.at(7, "steps 8 to 9")
    until(lambda: (seen := pair.me.sightings()[0]).sign is not None and seen.sign["step"] == 7)
    pair.peer._ended.set()  # as a kill: no last sign
    until(lambda: bool(pair.lost))
    assert "worker-1 (process" in pair.lost[0]
    assert "at step 7, steps 8 to 9 gave no sign of life for" in pair.lost[0]
    assert pair.me.lost(within_s=0.1) is None  # told once


def test_a_peer_that_failed_tells_why_at_once(tmp_path: Path) -> None:
    pair = Pair(tmp_path, WatchdogSpec(interval_s=0.02, dead_after_s=100))
    pair.me.start()
    pair.peer.start()
    pair.peer.stop(FAILED, message="the disk is full")
    until(lambda: bool(pair.lost))
    assert pair.lost[0].endswith("the disk is full")


def test_a_peer_that_is_done_is_not_missed(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.me.start()
    pair.peer.start()
    until(lambda: pair.me.sightings()[0].state == "running")
    pair.peer.stop(DONE)
    time.sleep(2 * SPEC.dead_after_s)
    pair.me.stop()
    assert not pair.lost


@pytest.mark.parametrize(
    ("spared", "end"),
    [
        (("worker-1", "worker-2"), "gone; the others go on"),
        (("worker-1",), "gone; none is left of its kind: nothing moves until one is started again"),
    ],
)
def test_the_death_of_one_that_can_be_spared_is_said_only(tmp_path: Path, spared: tuple[str, ...], end: str) -> None:
    pair = Pair(tmp_path, peers=spared, survivable=spared)
    pair.me.start()
    pair.peer.start()
    pair.peer.stop(FAILED, message="gone")
    until(lambda: bool(pair.said))
    assert pair.said == [pair.said[0]]
    assert pair.said[0].endswith(end)
    pair.me.stop()
    assert not pair.lost


def test_who_ends_for_the_death_of_another_says_whose(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.me.start()
    pair.peer.start()
    until(lambda: pair.me.sightings()[0].state == "running")
    pair.peer._ended.set()
    until(lambda: bool(pair.lost))
    left = json.loads((tmp_path / "worker-0.json").read_text())
    assert left["state"] == "failed"
    assert left["message"] == pair.lost[0]


@pytest.mark.parametrize("spared", [(), ("worker-1",)])
def test_one_that_was_started_again_has_lost_what_it_held(tmp_path: Path, spared: tuple[str, ...]) -> None:
    pair = Pair(tmp_path, survivable=spared)
    pair.me.start()
    pair.peer.start()
    until(lambda: pair.me.sightings()[0].state == "running")
    pair.peer._ended.set()
    again = Watchdog(tmp_path, "worker-1", peers=[], spec=SPEC, on_lost=pair.lost.append, say=lambda _text: None)
    again.start()
    if spared:
        time.sleep(2 * SPEC.dead_after_s)
        assert not pair.lost
    else:
        until(lambda: bool(pair.lost))
        assert pair.lost[0].endswith("was started again and has lost what it held")
    pair.me.stop()
    again.stop()


def test_files_of_an_earlier_run_are_no_signs(tmp_path: Path) -> None:
    tmp_path.joinpath("worker-1.json").write_text(
        json.dumps(
            {
                "beat": 9,
                "pid": 1,
                "host": "h",
                "started_ns": 1,
                "state": "failed",
                "step": 3,
                "where": "",
                "message": "old",
            }
        )
    )
    pair = Pair(tmp_path)
    pair.me.start()
    time.sleep(2 * SPEC.dead_after_s)
    pair.me.stop()
    assert not pair.lost
    assert pair.me.sightings()[0].sign is None


def test_a_stall_tells_where_every_process_waits(tmp_path: Path) -> None:
    pair = Pair(tmp_path, WatchdogSpec(interval_s=0.02, dead_after_s=100, stalled_after_s=0.2))
    pair.peer.start()
    pair.peer.at(4, "scoring the valid split")
    pair.me.start()
    pair.me.at(5, "steps 6 to 6")
    until(lambda: bool(pair.said))
    assert pair.said[0].startswith("no step for 0 s: worker-0 (process")
    assert "at step 5, steps 6 to 6; worker-1 (process" in pair.said[0]
    assert pair.said[0].endswith("at step 4, scoring the valid split")
    time.sleep(0.3)
    assert len(pair.said) == 1  # not again and again
    pair.me.at(6, "steps 7 to 7")
    until(lambda: len(pair.said) == 2)
    pair.me.stop()
    pair.peer.stop()


def test_signs_lie_beside_the_run_folder() -> None:
    assert watch_folder(Path("w/train/.abc.partial")) == Path("w/train/.abc.partial.workers")
    assert watch_folder(Path("w/run")) == Path("w/.run.workers")


def test_too_short_a_time_to_call_a_process_dead_is_refused() -> None:
    with pytest.raises(ValueError, match="three times"):
        WatchdogSpec(interval_s=10, dead_after_s=20)

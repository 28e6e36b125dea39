"""Signs of life of processes that train together: a file of each on the storage that they share.

    FOLDER/worker-1.json    {"beat": 57, "pid": ..., "state": "running", "step": 1200, "where": "training steps", ...}

A thread rewrites this process's file every `interval_s` and reads the others'. What counts is that a file changes,
never what its clock says: machines' clocks differ. A peer that has stopped signing ends this process too, for a
collective operation would wait for it for ever and cannot be interrupted; what it says then names the peer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipeline.train_spec import WatchdogSpec

__all__ = ["Sighting", "Watchdog", "describe", "watch_folder"]

RUNNING, DONE, FAILED = "running", "done", "failed"


@dataclasses.dataclass(frozen=True)
class Sighting:
    """What is known of a process: its last file, and for how long it has not changed."""

    name: str
    sign: dict[str, Any] | None
    silent_s: float

    @property
    def state(self) -> str:
        """running, done, failed, or '' before its first sign."""
        return "" if self.sign is None else str(self.sign["state"])


def watch_folder(run_folder: Path) -> Path:
    """Returns where the signs of a run are: beside its folder, for that becomes an artefact."""
    return run_folder.with_name(f".{run_folder.name.strip('.')}.workers")


class Watchdog:
    """Signs for this process and watches its peers; `start` to `stop`."""

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        peers: Sequence[str],
        spec: WatchdogSpec,
        on_lost: Callable[[str], None],
        say: Callable[[str], None],
        survivable: Sequence[str] = (),
    ) -> None:
        """Sets up, without a thread yet.

        Args:
            folder: of the signs.
            name: of this process, such as 'worker-1'.
            peers: names of the others.
            spec: times.
            on_lost: called once, in the watching thread, with a text that names the peer that died or failed.
            say: called with what a person should know: who waits where when nothing moves.
            survivable: peers whose death is told, but does not end the job.
        """
        self._path = folder / f"{name}.json"
        self._name = name
        self._peers = {peer: _Peer(folder / f"{peer}.json") for peer in peers}
        self._spec = spec
        self._on_lost, self._say, self._survivable = on_lost, say, set(survivable)
        self._ended = threading.Event()
        self._sign: dict[str, Any] = {
            "beat": 0, "pid": os.getpid(), "host": socket.gethostname(), "started_ns": time.time_ns(),
            "state": RUNNING, "step": 0, "where": "starting", "message": "",
        }  # fmt: skip
        self._moved_at = time.monotonic()
        self._told_stall = False
        self._looking = threading.Lock()  # so that a loss is told once, by the watching thread or the training one
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begins to sign and watch."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._write()
        self._thread.start()

    def at(self, step: int, where: str) -> None:
        """Notes that `step` steps are done and what is done next; called by the training thread."""
        if (step, where) != (self._sign["step"], self._sign["where"]):
            self._sign = {**self._sign, "step": step, "where": where}
            self._moved_at, self._told_stall = time.monotonic(), False

    def stop(self, state: str = DONE, *, message: str = "") -> None:
        """Leaves a last sign: done, or failed with what went wrong."""
        self._ended.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()
        self._sign = {**self._sign, "state": state, "message": message}
        self._write()

    def lost(self, *, within_s: float) -> str | None:
        """Waits for a peer to turn out dead or failed and returns the text that names it; None if all are alive."""
        text = self._find_lost()  # what signs there are is noted before the time runs
        deadline = time.monotonic() + within_s
        while text is None:
            is_last_look = time.monotonic() >= deadline  # one look past the deadline, however late this thread runs
            text = self._find_lost()
            if is_last_look:
                break
            time.sleep(self._spec.interval_s / 4)
        return text

    def sightings(self) -> list[Sighting]:
        """Returns what is known of the peers, by their files now."""
        for peer in self._peers.values():
            peer.look()
        return [Sighting(name, peer.sign, peer.silent_s()) for name, peer in self._peers.items()]

    def _watch(self) -> None:
        while not self._ended.wait(self._spec.interval_s):
            self._write()
            lost = self._find_lost()
            if lost is not None:
                self.stop(FAILED, message=lost)  # the others hear the reason, not only a silence
                self._on_lost(lost)
                return
            self._tell_stall()

    def _write(self) -> None:
        self._sign = {**self._sign, "beat": self._sign["beat"] + 1}
        temporary = self._path.with_suffix(f".{os.getpid()}.tmp")
        with contextlib.suppress(OSError):  # storage that is away for a moment is no death
            temporary.write_text(json.dumps(self._sign), encoding="utf-8")
            temporary.replace(self._path)

    def _find_lost(self) -> str | None:
        with self._looking:
            return self._look_for_lost()

    def _look_for_lost(self) -> str | None:
        for name, peer in self._peers.items():
            peer.look()
            if peer.told or peer.sign is None:
                continue
            text = self._verdict(Sighting(name, peer.sign, peer.silent_s()), was_restarted=peer.was_restarted)
            if text is None:
                continue
            peer.told = True
            if name not in self._survivable:
                return text
            self._say(f"{text}; {self._what_now()}")
        return None

    def _what_now(self) -> str:
        """Returns what becomes of the job after the death of a peer that it survives."""
        left = [name for name, peer in self._peers.items() if name in self._survivable and not peer.told]
        return "the others go on" if left else "none is left of its kind: nothing moves until one is started again"

    def _verdict(self, seen: Sighting, *, was_restarted: bool) -> str | None:
        if was_restarted and seen.name not in self._survivable:
            return f"{describe(seen)} was started again and has lost what it held"
        if seen.state == FAILED and seen.sign is not None:
            return f"{describe(seen)}: {seen.sign['message']}"
        if seen.state == RUNNING and seen.silent_s > self._spec.dead_after_s:
            return f"{describe(seen)} gave no sign of life for {seen.silent_s:.0f} s"
        return None

    def _tell_stall(self) -> None:
        waited = time.monotonic() - self._moved_at
        if self._told_stall or waited < self._spec.stalled_after_s:
            return
        self._told_stall = True
        me = Sighting(self._name, self._sign, 0.0)
        lines = "; ".join(describe(seen) + self._silence(seen) for seen in [me, *self.sightings()])
        self._say(f"no step for {waited:.0f} s: {lines}")

    def _silence(self, seen: Sighting) -> str:
        is_silent = seen.state == RUNNING and seen.silent_s > 3 * self._spec.interval_s
        return f", without a sign of life for {seen.silent_s:.0f} s" if is_silent else ""


class _Peer:
    """Another process's file, and when it last changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._read()  # of an earlier run, until it changes
        self._changed_at = time.monotonic()
        self.sign: dict[str, Any] | None = None
        self.told = False
        self.was_restarted = False

    def look(self) -> None:
        """Reads the file; a process that was started anew is watched anew."""
        found = self._read()
        if found is None or found == self._seen:
            return
        if self.sign is None or found["started_ns"] != self.sign["started_ns"]:
            self.was_restarted = self.sign is not None
            self.told = False
        self._seen = self.sign = found
        self._changed_at = time.monotonic()

    def silent_s(self) -> float:
        """Seconds since the file last changed."""
        return time.monotonic() - self._changed_at

    def _read(self) -> dict[str, Any] | None:
        try:
            value: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return value


def describe(seen: Sighting) -> str:
    """Returns such as 'worker-1 (process 4711 on host) at step 1200, training steps'."""
    if seen.sign is None:
        return f"{seen.name} has not started"
    sign = seen.sign
    return f"{seen.name} (process {sign['pid']} on {sign['host']}) at step {sign['step']}, {sign['where']}"

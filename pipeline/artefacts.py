"""Running a stage once: an artefact named by the digest of what made it, written aside, renamed when complete.

    WORK_DIR/<stage>/<key>/manifest.json     finished
    WORK_DIR/<stage>/.<key>.partial/         being written, or left by a run that was killed

A stage that can go on where it stopped keeps what a killed run left; the others start afresh. A lock that the
system drops with its process keeps two runs from writing one artefact together.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import importlib.metadata
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pipeline.faults import plain_faults
from preprocessing.errors import ArtefactError
from preprocessing.manifest import complete, digest, exists, read_manifest

__all__ = ["Artefact", "Plan", "finish", "open_artefact", "partial_folder", "writing"]

SCRATCH = "scratch"
_LIBRARIES = ("tensorflow", "tf_keras", "tensorflow-recommenders", "apache-beam", "pyarrow", "numpy")
_LOCK_TIMEOUT_S = 1.0
_COMMANDS = {"examples": "preprocess", "dataset": "preprocess"}  # the others are called like their stage


@dataclasses.dataclass(frozen=True)
class Plan:
    """A stage and everything that its output follows from.

    Attributes:
        stage: name of the stage and of the folder of its artefacts.
        root: the work folder.
        inputs: JSON values; equal inputs make equal artefacts.
        resumable: whether a partial folder is continued rather than removed.
    """

    stage: str
    root: Path
    inputs: Mapping[str, Any]
    resumable: bool = False

    @property
    def key(self) -> str:
        """Digest of the inputs."""
        return digest({"stage": self.stage, "inputs": self.inputs})

    @property
    def folder(self) -> Path:
        """Where the finished artefact stands."""
        return self.root / self.stage / self.key


@dataclasses.dataclass(frozen=True)
class Artefact:
    """A finished artefact, whether it had been finished before, and how long it took to make."""

    stage: str
    key: str
    folder: Path
    content: dict[str, Any]
    skipped: bool
    seconds: float


def open_artefact(plan: Plan) -> Artefact:
    """Returns the finished artefact of a plan.

    Raises:
        ArtefactError: if it is not there.
    """
    if not exists(plan.folder):
        command = _COMMANDS.get(plan.stage, plan.stage)
        raise ArtefactError(
            f"stage {plan.stage!r} has not been run for this config and data; run `rankmill {command}` first"
        )
    manifest = read_manifest(plan.folder)
    return Artefact(plan.stage, plan.key, plan.folder, manifest["content"], skipped=True, seconds=manifest["seconds"])


def partial_folder(plan: Plan) -> Path:
    """Returns where the artefact is written before it is finished."""
    return plan.folder.with_name(f".{plan.key}.partial")


def finish(plan: Plan, work: Callable[[Path], Mapping[str, Any]]) -> Artefact:
    """Returns the artefact of a plan, made by `work` unless it is there already.

    `work` fills the folder it is given and returns the content of the manifest; what it leaves in `scratch` goes.
    """
    if exists(plan.folder):
        return open_artefact(plan)
    start = time.monotonic()
    partial = partial_folder(plan)
    with plain_faults(f"stage {plan.stage!r} could not write to {plan.root}"), writing(plan.folder):
        if exists(plan.folder):  # finished by another run while this one waited
            return open_artefact(plan)
        if not plan.resumable:
            shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True, exist_ok=True)
        try:
            content = dict(work(partial))
        except Exception:
            if not plan.resumable:
                shutil.rmtree(partial, ignore_errors=True)
            raise
        finally:  # spilled rows are many, and nobody reads them again
            shutil.rmtree(partial / SCRATCH, ignore_errors=True)
        seconds = time.monotonic() - start
        complete(partial, plan.folder, manifest=_manifest(plan, content, seconds))
    return Artefact(plan.stage, plan.key, plan.folder, content, skipped=False, seconds=seconds)


@contextlib.contextmanager
def writing(target: Path) -> Iterator[None]:
    """Holds the lock of what is written: an artefact's folder, or a file.

    Raises:
        ArtefactError: if another process holds it.
    """
    lock_path = target.with_name(f".{target.name}.lock")
    try:
        lock_path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock_path, timeout=_LOCK_TIMEOUT_S):
            yield
    except Timeout as error:
        raise ArtefactError(
            f"another process is writing {target}; wait for it to end, or end it, and run again"
        ) from error


def _manifest(plan: Plan, content: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    return {
        "stage": plan.stage,
        "key": plan.key,
        "inputs": plan.inputs,
        "content": content,
        "finished_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "versions": {name: importlib.metadata.version(name) for name in _LIBRARIES},
    }

"""Checkpoints written by all processes that train, without stalling steps.

Each process copies what it is to write to its own memory and goes on; a thread writes the copy into a temporary
folder that all share, then says so by a file of its own, its part of the manifest. The thread of process 0 waits for
all parts, and completes the checkpoint by a rename. The folder is the barrier: no collective runs beside the steps.
What goes wrong in a thread is raised by the next `save` or `wait`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from models.checkpoint_files import Entry, Floats, dense_files, rows_files, write_array
from models.checkpoint_identity import FORMAT, identity, optimizer_kinds
from models.ranking_model import RankingModel
from preprocessing.errors import ArtefactError
from preprocessing.manifest import MANIFEST, complete, read_manifest, write_json

__all__ = ["CheckpointWriter", "save_checkpoint"]

_POLL_S = 0.02
Snapshot = Iterable[tuple[str, Entry, Floats]]


@dataclasses.dataclass(frozen=True)
class _Writing:
    """One checkpoint in the making.

    Attributes:
        folder: where it will be.
        temporary: where it is made; the same for all processes.
        process: that writes here.
        num_processes: that write in all.
        timeout_s: how long one waits for another.
    """

    folder: Path
    temporary: Path
    process: int
    num_processes: int
    timeout_s: float

    def part(self, process: int) -> Path:
        """Returns the file by which a process says that it is done."""
        return self.temporary / f"part-{process}.json"


class CheckpointWriter:
    """Saves one model; all processes that train it call the same methods in the same order."""

    def __init__(self, model: RankingModel, *, timeout_s: float = 600.0) -> None:
        self._model = model
        self._timeout_s = timeout_s
        self._process = model.replicas.process
        self._num_processes = model.replicas.num_processes
        # Tells the folders of this run from those that a killed one left, under one name in all processes.
        self.session = f"{model.replicas.told(secrets.randbits(31))[0]:08x}"
        self._saves = 0
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def save(
        self,
        folders: Path | Sequence[Path],
        *,
        progress: Mapping[str, Any],
        background: bool = True,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Writes a checkpoint, or replaces it, and returns once it is copied, or with `background` False written.

        Args:
            folders: the checkpoint, or several that get the same content, in this order; a reader sees all of one
                or nothing.
            progress: JSON values that come back from `load_checkpoint`, such as `{"step": 100}`.
            background: whether a thread writes, from a copy in memory.
            then: called by process 0 when all is written, such as to remove old checkpoints.

        Raises:
            ArtefactError: if this checkpoint, or the one before in the background, cannot be written.
        """
        self.wait()
        self._saves += 1
        manifest = {
            "format": FORMAT,
            "identity": identity(self._model),
            "optimizers": optimizer_kinds(self._model),
            "progress": dict(progress),
            "save": f"{self.session}.{self._saves}",
        }
        targets = [folders] if isinstance(folders, Path) else list(folders)
        writings = [self._writing(folder, number) for number, folder in enumerate(targets)]
        if not background:
            self._write(writings, self._snapshot, manifest=manifest, then=then)
            return
        copied = list(self._snapshot())
        self._thread = threading.Thread(
            target=self._write_in_thread,
            args=(writings, lambda: copied, manifest, then),
            name="checkpoint",
            daemon=True,  # a process that ends by an error does not wait for others
        )
        self._thread.start()

    def wait(self) -> None:
        """Returns once nothing is being written.

        Raises:
            ArtefactError: if what was written in the background failed.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def settle(self) -> None:
        """Returns once this process alone is done with what it can finish; for the way out after an error."""
        if self._thread is not None and self._num_processes == 1:
            self._thread.join()

    def _writing(self, folder: Path, number: int) -> _Writing:
        name = f".{folder.name}.{self.session}.{self._saves}.{number}.tmp"
        return _Writing(folder, folder.parent / name, self._process, self._num_processes, self._timeout_s)

    def _snapshot(self) -> Snapshot:
        """Yields path, entry and values of each file that this process writes."""
        model = self._model
        for file in rows_files(model, process=self._process, num_processes=self._num_processes):
            values = model.tables.read(file.table, file.group, array=file.array, ids=file.ids)
            yield file.path, file.entry(), values
        for dense in dense_files(model, slots=True) if self._process == 0 else ():
            yield dense.path, {}, dense.read()

    def _write_in_thread(self, *arguments: Any) -> None:
        writings, snapshot, manifest, then = arguments
        try:
            self._write(writings, snapshot, manifest=manifest, then=then)
        except Exception as error:
            self._failure = error

    def _write(
        self,
        writings: Sequence[_Writing],
        snapshot: Callable[[], Snapshot],
        *,
        manifest: Mapping[str, Any],
        then: Callable[[], None] | None,
    ) -> None:
        for writing in writings:
            _write_one(writing, snapshot(), manifest=manifest)
        if then is not None and self._process == 0:
            then()


def save_checkpoint(folder: Path, model: RankingModel, *, progress: Mapping[str, Any]) -> None:
    """Writes `folder`, or replaces it, and returns when it is complete; every process that trains calls it.

    Args:
        folder: the checkpoint; a reader sees all of it or nothing.
        model: what is saved.
        progress: JSON values that come back from `load_checkpoint`, such as `{"step": 100}`.

    Raises:
        ArtefactError: if it cannot be written.
    """
    CheckpointWriter(model).save(folder, progress=progress, background=False)


def _write_one(writing: _Writing, snapshot: Snapshot, *, manifest: Mapping[str, Any]) -> None:
    """Writes this process's files; process 0 completes the checkpoint, the others wait until it has."""
    try:
        writing.temporary.mkdir(parents=True, exist_ok=True)
        files = {path: entry | write_array(writing.temporary, path, values=values) for path, entry, values in snapshot}
        if writing.process != 0:
            write_json(writing.part(writing.process), {"files": files})
            _await_completion(writing, save=str(manifest["save"]))
            return
        for other in range(1, writing.num_processes):
            files |= _part_of(writing, other)
        if writing.folder.exists():
            remove(writing.folder)
        complete(writing.temporary, writing.folder, manifest={**manifest, "files": files})
    except OSError as error:
        _give_up(writing, str(error))
        raise ArtefactError(
            f"checkpoint {writing.folder} cannot be written: {error}; free space or choose another"
        ) from error
    except ArtefactError:
        _give_up(writing, "process 0 gave up")
        raise


def _give_up(writing: _Writing, reason: str) -> None:
    """Removes what is there, in process 0; another one tells it."""
    if writing.process == 0:
        shutil.rmtree(writing.temporary, ignore_errors=True)
    elif writing.temporary.is_dir():
        (writing.temporary / f".{writing.process}.failed").write_text(reason, encoding="utf-8")
        (writing.temporary / f".{writing.process}.failed").replace(writing.temporary / f"failed-{writing.process}")


def _part_of(writing: _Writing, process: int) -> dict[str, Entry]:
    """Waits for the part of another process, and returns and removes it."""
    part, failed = writing.part(process), writing.temporary / f"failed-{process}"
    deadline = time.monotonic() + writing.timeout_s
    while not part.exists():
        if failed.exists():
            raise ArtefactError(
                f"checkpoint {writing.folder} cannot be written: worker {process}: "
                f"{failed.read_text(encoding='utf-8')}; free space or choose another"
            )
        if time.monotonic() > deadline:
            raise ArtefactError(
                f"checkpoint {writing.folder}: worker {process} has not written its part in {writing.timeout_s:g} s; "
                "is it alive, and does it see the same folder?"
            )
        time.sleep(_POLL_S)
    files: dict[str, Entry] = json.loads(part.read_text(encoding="utf-8"))["files"]
    part.unlink()
    return files


def _await_completion(writing: _Writing, *, save: str) -> None:
    """Returns once process 0 has completed the checkpoint."""
    deadline = time.monotonic() + writing.timeout_s
    while writing.temporary.exists():
        if time.monotonic() > deadline:
            raise ArtefactError(
                f"checkpoint {writing.folder}: worker 0 has not completed it in {writing.timeout_s:g} s; is it alive?"
            )
        time.sleep(_POLL_S)
    if not (writing.folder / MANIFEST).exists() or read_manifest(writing.folder).get("save") != save:
        raise ArtefactError(f"checkpoint {writing.folder} was given up by worker 0; its own error says why")


def remove(folder: Path) -> None:
    """Removes a checkpoint so that no reader sees a part of it."""
    hidden = folder.parent / f".{folder.name}.{os.getpid()}.old.tmp"
    folder.rename(hidden)
    shutil.rmtree(hidden)

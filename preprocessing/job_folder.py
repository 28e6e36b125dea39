"""The folder of a job at work, gone when the job ends; what a killed job left is removed by the next one.

ROOT/.job-<id>.lock       held by the process of the job; the system drops it with the process
ROOT/.job-<id>.partial/   its folder
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

__all__ = ["job_folder"]


@contextlib.contextmanager
def job_folder(root: Path) -> Iterator[Path]:
    """Yields a new folder below `root`, and removes it and those of jobs that are no more."""
    root.mkdir(parents=True, exist_ok=True)
    for folder in root.glob(".job-*.partial"):
        _remove_if_left(folder)
    folder = root / f".job-{uuid.uuid4().hex}.partial"
    lock = os.open(_lock_of(folder), os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # before the folder is there, so that nobody finds it without its lock
        folder.mkdir()
        yield folder
    finally:
        _remove(folder)
        os.close(lock)


def _lock_of(folder: Path) -> Path:
    return folder.with_suffix(".lock")


def _remove_if_left(folder: Path) -> None:
    try:
        lock = os.open(_lock_of(folder), os.O_RDWR)
    except FileNotFoundError:
        _remove(folder)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # its process lives, or this file system cannot tell
        return
    else:
        _remove(folder)
    finally:
        os.close(lock)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _lock_of(folder).unlink(missing_ok=True)

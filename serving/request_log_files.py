"""The files of a request log: open ones that survive a kill, finished ones that appear by rename.

DIR/.NAME.open       an Arrow stream, written batch by batch by one process that holds a lock on it
DIR/NAME.parquet     finished: by size, by age, at the end, or by the next process after a kill

A stream without an end is readable up to its last whole batch, a Parquet file without its footer not at all.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.errors import SourceError

__all__ = ["OpenFile", "finish_left_behind", "log_files", "read_log"]

_OPEN, _DONE, _TEMPORARY = ".open", ".parquet", ".tmp"


class OpenFile:
    """A file of one schema that grows; used by one thread."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._path = folder / f".{name}{_OPEN}"
        self._file: IO[bytes] = self._path.open("xb")
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.schema = schema
        self._writer = pa.ipc.new_stream(self._file, schema)
        self.opened_s = time.monotonic()

    def write(self, batch: pa.RecordBatch) -> None:
        """Adds rows; they survive the process from here on."""
        self._writer.write_batch(batch)
        self._file.flush()

    def size_bytes(self) -> int:
        """Returns what is written."""
        return self._file.tell()

    def finish(self) -> None:
        """Makes the finished file."""
        self._writer.close()
        self._file.flush()
        _convert(self._path)
        self._file.close()  # only now: the lock keeps others from finishing it too


def finish_left_behind(folder: Path) -> int:
    """Finishes the files of processes that were killed, and returns their number."""
    finished = 0
    for path in sorted(folder.glob(f".*{_OPEN}")):
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Its owner may have finished it between the listing and the lock.
                if path.exists():
                    _convert(path)
                    finished += 1
        except (BlockingIOError, FileNotFoundError):
            continue
    return finished


def _convert(path: Path) -> None:
    batches = list(_whole_batches(path))
    if batches:
        target = path.with_name(path.name.removeprefix(".").removesuffix(_OPEN) + _DONE)
        temporary = path.with_name(path.name + _TEMPORARY)
        pq.write_table(pa.Table.from_batches(batches), temporary, compression="zstd")
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(target)
    path.unlink()


def _whole_batches(path: Path) -> Iterator[pa.RecordBatch]:
    try:
        with path.open("rb") as file, pa.ipc.open_stream(file) as stream:
            yield from stream
    except (pa.ArrowException, OSError, EOFError):
        return  # torn at the end: what came before is whole


def log_files(path: Path) -> list[Path]:
    """Returns the finished files of a log, oldest first; `path` may be one of them.

    Raises:
        SourceError: if there is none.
    """
    found = [path] if path.is_file() else sorted(path.glob(f"*{_DONE}")) if path.is_dir() else []
    if not found:
        waiting = len(list(path.glob(f".*{_OPEN}"))) if path.is_dir() else 0
        hint = f" ({waiting} still being written)" if waiting else ""
        raise SourceError(f"{path} holds no finished file of a request log{hint}")
    return found


def read_log(path: Path) -> Iterator[pa.Table]:
    """Yields the rows of each finished file, oldest first.

    Raises:
        SourceError: if there is none, or one is no request log.
    """
    for file in log_files(path):
        try:
            table = pq.read_table(file)
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"{file} cannot be read: {error}") from error
        if "@time_ms" not in table.column_names:
            raise SourceError(f"{file} is no file of a request log: it has no column @time_ms")
        yield table

"""Opening input files, local or remote, and the pieces of them that are read apart."""

from __future__ import annotations

import os
from typing import IO

from preprocessing.errors import SourceError
from preprocessing.remote_files import is_remote, open_remote, remote_size

__all__ = ["Section", "open_bytes", "size_bytes"]


def open_bytes(path: str) -> IO[bytes]:
    """Returns a file opened for reading, its stored bytes as they are.

    Raises:
        SourceError: if it cannot be opened.
    """
    if is_remote(path):
        return open_remote(path)
    try:
        return open(path, "rb")
    except OSError as error:
        raise SourceError(f"{path} cannot be opened: {error}") from error


def size_bytes(path: str) -> int:
    """Returns the size of a file as stored.

    Raises:
        SourceError: if it is not there.
    """
    if is_remote(path):
        return remote_size(path)
    try:
        return os.path.getsize(path)
    except OSError as error:
        raise SourceError(f"{path} cannot be opened: {error}") from error


class Section:
    """The bytes from `start` to `end` of a file that can seek, read as if they were all of it."""

    def __init__(self, file: IO[bytes], *, start: int, end: int) -> None:
        file.seek(start)
        self._file = file
        self._left = end - start

    def read(self, size: int = -1, /) -> bytes:
        """Returns the next bytes, at most `size`; none at the end."""
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        return data

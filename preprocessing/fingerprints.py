"""What tells the content of an input file from another, and a cache of it for files that have not changed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from preprocessing.errors import SourceError
from preprocessing.file_access import open_bytes, size_bytes
from preprocessing.manifest import write_json
from preprocessing.remote_files import is_remote, remote_checksum

__all__ = ["FingerprintCache", "fingerprint"]

_SETTLED_AFTER_S = 2.0  # file systems stamp by clocks of up to 2 s: a later edit may leave a younger file's stamp alone


def fingerprint(path: str) -> dict[str, Any]:
    """Returns the path as given, the size in bytes and the SHA-256 of the content.

    Of a remote file it is the checksum of its store instead, where that has one, so that nothing is transferred.

    Raises:
        SourceError: if the file cannot be read.
    """
    checksum = remote_checksum(path) if is_remote(path) else None
    if checksum is not None:
        return {"path": path, "size_bytes": size_bytes(path), "checksum": checksum}
    digest, size = hashlib.sha256(), 0
    with contextlib.closing(open_bytes(path)) as file:
        try:
            while data := file.read(1 << 20):
                digest.update(data)
                size += len(data)
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error}") from error
    return {"path": path, "size_bytes": size, "sha256": digest.hexdigest()}


class FingerprintCache:
    """Fingerprints of local files, kept in a JSON file, so that a daily run does not read a year of logs again.

    A file counts as unchanged while its size, times of change and inode are the same. One that changed less than two
    seconds before it was read is not kept: a second edit could look the same. The cache may be deleted at any time;
    one that does not parse is empty.
    """

    def __init__(self, path: Path, *, now_s: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now_s = now_s
        self._known = _load(path)
        self._changed = False

    def fingerprint(self, path: str) -> dict[str, Any]:
        """Returns the same as `fingerprint`, read from the file only if it may have changed.

        Raises:
            SourceError: if the file cannot be read.
        """
        if is_remote(path):
            return fingerprint(path)
        key, stamp = os.path.abspath(path), _stamp(path)
        kept = self._known.get(key)
        if kept is not None and kept["stamp"] == stamp:
            return {"path": path, "size_bytes": stamp[0], "sha256": kept["sha256"]}
        found = fingerprint(path)
        self._known.pop(key, None)
        if _stamp(path) == stamp and self._now_s() - max(stamp[1:3]) / 1e9 >= _SETTLED_AFTER_S:
            self._known[key] = {"stamp": stamp, "sha256": found["sha256"]}
        self._changed = True
        return found

    def save(self) -> None:
        """Writes the cache, whole or not at all, without the files that are no more."""
        if self._changed:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, {key: value for key, value in self._known.items() if os.path.exists(key)})
            self._changed = False


def _stamp(path: str) -> list[int]:
    try:
        status = os.stat(path)
    except OSError as error:
        raise SourceError(f"{path} cannot be opened: {error}") from error
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _load(path: Path) -> dict[str, dict[str, Any]]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(value, dict):
        return {}
    return {key: kept for key, kept in value.items() if isinstance(kept, dict) and {"stamp", "sha256"} <= set(kept)}

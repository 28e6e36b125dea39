"""Compressed text files: which they are, and their bytes made plain while they are read."""

from __future__ import annotations

import bz2
import gzip
from typing import IO, Any, Literal, cast

import pyarrow as pa

__all__ = ["Compression", "compression_of", "decompressed", "without_suffix"]

Compression = Literal["none", "gzip", "zstd", "bz2"]
_SUFFIXES: dict[str, Compression] = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}


def compression_of(path: str, declared: Compression | None) -> Compression:
    """Returns the compression of a file: as declared, or told from its name."""
    if declared is not None:
        return declared
    return next((kind for suffix, kind in _SUFFIXES.items() if path.lower().endswith(suffix)), "none")


def without_suffix(path: str) -> str:
    """Returns the path without the ending that tells its compression."""
    for suffix in _SUFFIXES:
        if path.lower().endswith(suffix):
            return path[: -len(suffix)]
    return path


def decompressed(stored: IO[bytes], compression: Compression) -> IO[bytes]:
    """Returns a stream of the plain bytes; several compressed members in a row are read as one.

    Reading from it raises where the stored bytes end early or are damaged.
    """
    if compression == "gzip":
        return cast(IO[bytes], gzip.GzipFile(fileobj=stored))
    if compression == "bz2":
        return cast(IO[bytes], bz2.BZ2File(stored))
    if compression == "zstd":
        # Arrow's codec says when a stream is cut short; the usual zstd binding takes it for the end.
        return cast(IO[bytes], _FullReads(pa.CompressedInputStream(pa.PythonFile(stored, mode="r"), "zstd")))
    return stored


class _FullReads:
    """Reads of the size asked for: Arrow's stream returns what one step of it gives."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, size: int = -1, /) -> bytes:
        parts: list[bytes] = []
        missing = size
        while missing and (data := self._stream.read(missing if size >= 0 else None)):
            parts.append(data)
            missing -= len(data) if size >= 0 else 0
        return b"".join(parts)

"""Text files as chunks of whole lines, with the place of every line found by numpy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from preprocessing.errors import SourceError

__all__ = ["BOM", "Lines", "find_lines", "read_chunks", "texts"]

BOM = b"\xef\xbb\xbf"
_LINE_ENDS = np.array([10, 13], np.uint8)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Lines:
    """Places of the lines of a chunk: line i is `data[starts[i]:ends[i]]`, its line end included."""

    data: bytes
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    def blank(self) -> npt.NDArray[np.bool_]:
        """Returns bool [lines]: whether a line holds nothing but its line end."""
        content = np.frombuffer(self.data, np.uint8)
        first, last = content[self.starts], content[self.ends - 1]
        short = self.ends - self.starts <= 2
        return short & np.isin(first, _LINE_ENDS) & np.isin(last, _LINE_ENDS)


def read_chunks(file: IO[bytes], path: str, *, block_bytes: int) -> Iterator[bytes]:
    """Yields the file in pieces of about `block_bytes` that end at a line end (the last one maybe without).

    A byte order mark at the start is dropped.

    Raises:
        SourceError: if the file is UTF-16, or reading stops before its end (a gz file cut short).
    """
    parts: list[bytes] = []
    first = True
    while data := _read(file, path, block_bytes):
        if first:
            if data.startswith(_UTF16):
                raise SourceError(f"{path} is UTF-16 text; Rankmill reads UTF-8: convert the file")
            data, first = data.removeprefix(BOM), False
        cut = data.rfind(b"\n") + 1
        if cut:
            yield b"".join([*parts, data[:cut]])
            parts = []
        parts.append(data[cut:])
    rest = b"".join(parts)
    if rest:
        yield rest


def _read(file: IO[bytes], path: str, size: int) -> bytes:
    try:
        return file.read(size)
    except (OSError, EOFError, ValueError) as error:
        raise SourceError(f"{path} cannot be read to its end: {error}; is the file cut short?") from error


def find_lines(data: bytes) -> Lines:
    """Returns the places of the lines of `data`."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10).astype(np.int64) + 1
    if data and not data.endswith(b"\n"):
        ends = np.append(ends, np.int64(len(data)))
    starts = np.concatenate([np.zeros(min(1, len(ends)), np.int64), ends[:-1]])
    return Lines(data, starts, ends)


def texts(data: bytes, lengths: npt.NDArray[np.int64]) -> pa.Array:
    """Returns a binary array over `data`, without a copy, of consecutive pieces of these lengths."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])

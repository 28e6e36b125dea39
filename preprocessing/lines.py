"""Text files as chunks of whole lines, with the place of every line found by numpy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from preprocessing.errors import SourceError

__all__ = ["BOM", "Lines", "Readable", "find_lines", "read_chunks", "texts"]

BOM = b"\xef\xbb\xbf"
_LINE_ENDS = np.array([10, 13], np.uint8)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_MAX_LINE_BYTES = 1 << 30  # offsets of texts are 32 bits


class Readable(Protocol):
    """Bytes in order: a file, a part of one, or what a codec makes of it."""

    def read(self, size: int, /) -> bytes:
        """Returns at most about `size` bytes; none at the end."""


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


def read_chunks(file: Readable, path: str, *, block_bytes: int, at_start: bool = True) -> Iterator[bytes]:
    """Yields the text in pieces of about `block_bytes` that end at a line end (the last one maybe without).

    Args:
        file: the text.
        path: for messages.
        block_bytes: how much is read at a time.
        at_start: whether the text begins with the file; a byte order mark is dropped there.

    Raises:
        SourceError: if the text is UTF-16, a line is longer than 1 GiB, or reading stops before the end (a gz file
            cut short).
    """
    first = at_start
    for piece in _pieces(file, path, block_bytes=block_bytes):
        if first and piece.startswith(_UTF16):
            raise SourceError(f"{path} is UTF-16 text; declare 'encoding: utf-16' of its source")
        text = piece.removeprefix(BOM) if first else piece
        first = False
        if text:
            yield text


def _pieces(file: Readable, path: str, *, block_bytes: int) -> Iterator[bytes]:
    parts: list[bytes] = []
    held = done = 0
    while data := _read(file, path, block_bytes, done=done):
        done += len(data)
        cut = data.rfind(b"\n") + 1
        if cut:
            yield b"".join([*parts, data[:cut]])
            parts, held = [], 0
        parts.append(data[cut:])
        held += len(data) - cut
        if held > _MAX_LINE_BYTES:
            raise SourceError(f"{path} has a line longer than {_MAX_LINE_BYTES} bytes; is it a text file?")
    if held:
        yield b"".join(parts)


def _read(file: Readable, path: str, size: int, *, done: int) -> bytes:
    try:
        return file.read(size)
    except Exception as error:  # codecs and stores raise errors of many kinds: OSError, EOFError, zlib.error, ...
        raise SourceError(
            f"{path} cannot be read to its end: {error or type(error).__name__}, after {done} bytes of text; "
            "is the file cut short? Nothing of it is used"
        ) from error


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

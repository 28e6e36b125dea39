"""Text in other encodings than UTF-8, made UTF-8 while it is read.

UTF-8 itself is not decoded: what is invalid in it stays as it is, since a string may hold any bytes. In a declared
encoding a byte that means nothing is a fault of its row. It is written as the byte FF, which no UTF-8 text has, and
two hexadecimal digits; so its row is found after parsing, whatever the format.
"""

from __future__ import annotations

import codecs
import dataclasses

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.blocks import Block, make_rejects, merge_rejects
from preprocessing.lines import Readable

__all__ = ["INVALID_ENCODING", "Utf8Stream", "is_utf8", "keeps_line_ends", "without_undecodable"]

INVALID_ENCODING = "invalid_encoding"
_MARK = b"\xff"
_HANDLER = "rankmill.mark"


def is_utf8(encoding: str) -> bool:
    """Returns whether text needs no decoding; `encoding` is a normalised name."""
    return encoding in ("utf-8", "utf-8-sig")


def keeps_line_ends(encoding: str) -> bool:
    """Returns whether the byte of a newline is a newline wherever it stands, so that a file can be cut at one."""
    return is_utf8(encoding) or encoding.startswith(("iso8859", "cp125", "ascii"))


class Utf8Stream:
    """A text stream of some encoding, read as UTF-8."""

    def __init__(self, file: Readable, encoding: str) -> None:
        codecs.register_error(_HANDLER, _mark)
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)(_HANDLER)
        self._done = False

    def read(self, size: int, /) -> bytes:
        """Returns about `size` bytes of text; none at the end."""
        text = ""
        while not text and not self._done:
            data = self._file.read(size)
            self._done = not data
            text = self._decoder.decode(data, final=self._done)
        return text.encode("utf-8", _HANDLER)


def _mark(error: UnicodeError) -> tuple[str | bytes, int]:
    if isinstance(error, UnicodeDecodeError):
        wrong = error.object[error.start : error.end]
        return "".join(f"\udcff{byte:02x}" for byte in wrong), error.end
    if isinstance(error, UnicodeEncodeError):
        return _MARK * (error.end - error.start), error.end
    raise error


def without_undecodable(block: Block, path: str) -> Block:
    """Returns the block without the rows that hold undecodable bytes; they become rejects, the bytes shown as \\xNN."""
    raw, malformed = block.raw, _shown(block.malformed)
    wrong = np.zeros(0, np.bool_) if raw is None else _marked(raw)
    if raw is None or not wrong.any():
        return dataclasses.replace(block, malformed=malformed)
    texts = pa.array([text.rstrip(b"\r\n") for text in raw.filter(pa.array(wrong)).to_pylist()], pa.binary())
    found = make_rejects(path, block.positions[wrong], reason=INVALID_ENCODING, raw=_readable(texts))
    good, positions = pa.array(~wrong), block.positions[~wrong]
    return dataclasses.replace(
        block,
        first_row=int(positions[0]) if len(positions) else 0,
        batch=block.batch.filter(good),
        raw=raw.filter(good),
        malformed=merge_rejects([malformed, found]),
        positions=positions,
    )


def _marked(texts: pa.Array) -> npt.NDArray[np.bool_]:
    return pc.match_substring(texts, _MARK).to_numpy(zero_copy_only=False)


def _readable(texts: pa.Array) -> pa.Array:
    return pc.replace_substring(texts, _MARK, rb"\x")


def _shown(malformed: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the rejects with undecodable bytes shown, and as the reason, for no row is well formed that has any."""
    raw = malformed.column("raw")
    marked = pa.array(_marked(raw))
    if not malformed.num_rows or not pc.any(marked).as_py():
        return malformed
    columns = dict(zip(malformed.schema.names, malformed.columns, strict=True))
    columns["raw"] = _readable(raw)
    columns["reason"] = pc.if_else(marked, INVALID_ENCODING, columns["reason"])
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=malformed.schema)

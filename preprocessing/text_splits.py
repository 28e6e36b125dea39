"""Large text files cut into parts at line starts, so that several workers read one file.

The planner reads a file once to count its lines, so that a part knows the number of its first line and positions are
line numbers however a file is cut. Counting costs about a twelfth of what reading and cleaning cost; a remote file is
transferred once more for it.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from preprocessing.compression import compression_of
from preprocessing.encodings import is_utf8, keeps_line_ends
from preprocessing.file_access import open_bytes, size_bytes
from preprocessing.formats import file_format
from preprocessing.lines import BOM, read_chunks
from preprocessing.partitions import stored_columns
from preprocessing.read_jsonl import JsonKeys
from preprocessing.spec import SourceSpec

__all__ = ["Split", "is_large_text", "plan_splits"]

_PIECE_BYTES = 4 << 20


class Split(NamedTuple):
    """A part of a text file: whole lines.

    Attributes:
        start: Offset of its first byte.
        end: Offset after its last byte.
        first_line: Number of its first line, from 1.
    """

    start: int
    end: int
    first_line: int


def plan_splits(path: str, spec: SourceSpec, *, split_bytes: int) -> list[Split | None]:
    """Returns the parts in which a file is to be read, in order; `[None]` for a file that is read whole.

    Cut are plain text files of more than `split_bytes`, JSON lines always, CSV and TSV where the declaration says that
    values hold no newlines.

    Raises:
        SourceError: if the file cannot be read, or a declared key is in no line of it (JSON lines).
    """
    if not is_large_text(path, spec, split_bytes=split_bytes):
        return [None]
    kind = file_format(path, spec.format)
    keys = JsonKeys(stored_columns(spec).values() if kind == "jsonl" and is_utf8(spec.encoding) else ())
    splits = _cut(path, split_bytes=split_bytes, keys=keys, has_header=kind != "jsonl")
    keys.check(path)
    return list(splits)


def is_large_text(path: str, spec: SourceSpec, *, split_bytes: int) -> bool:
    """Returns whether `plan_splits` would cut a file; it is not read."""
    kind = file_format(path, spec.format)
    compressed = compression_of(path, spec.compression) != "none"
    joined = kind != "jsonl" and spec.newlines_in_values
    if kind == "parquet" or compressed or joined or not keeps_line_ends(spec.encoding):
        return False
    return size_bytes(path) > split_bytes


def _cut(path: str, *, split_bytes: int, keys: JsonKeys, has_header: bool) -> list[Split]:
    splits: list[Split] = []
    start, first_line = 0, 1  # of the part that is open
    offset, line = 0, 1  # of what has been counted
    with contextlib.closing(open_bytes(path)) as file:
        for data in read_chunks(file, path, block_bytes=_PIECE_BYTES, at_start=False):
            keys.look(data)
            counted = 0
            least = _header_end(data, at_start=not offset) if has_header else 0
            has_header = has_header and not least
            while not has_header:
                cut = data.find(b"\n", max(start + split_bytes - offset - 1, least)) + 1
                if not cut:
                    break
                line += data.count(b"\n", counted, cut)
                splits.append(Split(start, offset + cut, first_line))
                start, first_line, counted = offset + cut, line, cut
            line += data.count(b"\n", counted)
            offset += len(data)
    return [*splits, Split(start, offset, first_line)] if start < offset else splits


def _header_end(data: bytes, *, at_start: bool) -> int:
    """Returns where the first line ends that is not blank; 0 if all are."""
    begin = len(BOM) if at_start and data.startswith(BOM) else 0
    content = data[begin:].lstrip(b"\r\n")
    return 0 if not content else (data.find(b"\n", len(data) - len(content)) + 1) or len(data)

"""Finding and opening the files of a source, and reading them in blocks. What is read is cleaned by `cleaning`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import IO

from preprocessing.blocks import Block
from preprocessing.compression import compression_of, decompressed
from preprocessing.csv_header import Header, beginning, check_header, parse_header
from preprocessing.encodings import Utf8Stream, is_utf8, without_undecodable
from preprocessing.errors import SourceError
from preprocessing.file_access import Section, open_bytes
from preprocessing.fingerprints import FingerprintCache, fingerprint
from preprocessing.formats import file_format
from preprocessing.lines import Readable, read_chunks
from preprocessing.matching import match, match_source
from preprocessing.parquet_columns import check_columns
from preprocessing.read_csv import read_csv
from preprocessing.read_jsonl import read_jsonl
from preprocessing.read_parquet import read_parquet
from preprocessing.spec import SourceSpec
from preprocessing.text_splits import Split, is_large_text, plan_splits

__all__ = [
    "Block",
    "FingerprintCache",
    "Split",
    "check_columns",
    "file_format",
    "fingerprint",
    "is_large_text",
    "match",
    "match_source",
    "plan_splits",
    "read_table_blocks",
]

_HEADER_BYTES = 64 << 10


def read_table_blocks(
    path: str, spec: SourceSpec, *, block_bytes: int, split: Split | None = None, dictionaries: bool = False
) -> Iterator[Block]:
    """Yields the rows of one file in blocks of about `block_bytes`; none for a file without rows.

    A file that ends before its codec or format says so is not used at all: the error comes after the blocks that
    could be read, and whoever reads must drop them.

    Args:
        path: the file.
        spec: the declaration of its source.
        block_bytes: about how much plain text, or uncompressed Parquet, makes a block.
        split: a part of the file, from `plan_splits`; None for all of it.
        dictionaries: whether text columns of Parquet files are left dictionary-encoded.

    Raises:
        SourceError: if the file cannot be read to its end, or lacks a declared column.
    """
    kind = file_format(path, spec.format)
    with contextlib.closing(open_bytes(path)) as file:
        if kind == "parquet":
            if compression_of(path, spec.compression) != "none":
                raise SourceError(f"{path}: a compressed Parquet file cannot be read; Parquet compresses its own pages")
            yield from read_parquet(file, path, spec, block_bytes=block_bytes, dictionaries=dictionaries)
            return
        blocks = _read_text(file, path, spec, kind=kind, block_bytes=block_bytes, split=split)
        decoded = is_utf8(spec.encoding)
        yield from (blocks if decoded else (without_undecodable(block, path) for block in blocks))


def _read_text(
    file: IO[bytes], path: str, spec: SourceSpec, *, kind: str, block_bytes: int, split: Split | None
) -> Iterator[Block]:
    part = split if split is not None and split.start > 0 else None
    delimiter = "\t" if kind == "tsv" else ","
    header = _header(file, path, spec, delimiter=delimiter) if part is not None and kind != "jsonl" else None
    text = _text(file, path, spec, split=split)
    if kind == "jsonl":
        first_line = split.first_line if split is not None else None
        return read_jsonl(text, path, spec, block_bytes=block_bytes, first_line=first_line)
    first_line = part.first_line if part is not None else 1
    return read_csv(
        text, path, spec, delimiter=delimiter, block_bytes=block_bytes, header=header, first_line=first_line
    )


def _text(file: IO[bytes], path: str, spec: SourceSpec, *, split: Split | None = None) -> Readable:
    """Returns the text of a file, or of a part of it, as UTF-8."""
    if split is not None:
        stored: Readable = Section(file, start=split.start, end=split.end)
    else:
        stored = decompressed(file, compression_of(path, spec.compression))
    return stored if is_utf8(spec.encoding) else Utf8Stream(stored, spec.encoding)


def _header(file: IO[bytes], path: str, spec: SourceSpec, *, delimiter: str) -> Header:
    """Returns the header of a file that is read from its middle."""
    chunks = read_chunks(_text(file, path, spec), path, block_bytes=_HEADER_BYTES)
    header = parse_header(beginning(chunks), path, delimiter=delimiter, over_lines=spec.newlines_in_values)
    check_header(header, spec, path)
    return header

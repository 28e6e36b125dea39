"""The header of a CSV file, and the cells of one record."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

from preprocessing.blocks import absent_column
from preprocessing.errors import SourceError
from preprocessing.lines import find_lines
from preprocessing.partitions import stored_columns
from preprocessing.spec import SourceSpec

__all__ = ["Header", "beginning", "check_header", "loose_cells", "parse_header", "split_cells"]


@dataclass(frozen=True)
class Header:
    """Names of the columns, and the text that they take: empty lines before them are counted too."""

    names: tuple[str, ...]
    num_lines: int
    size_bytes: int


def beginning(chunks: Iterator[bytes]) -> bytes:
    """Returns the chunks up to the first that is not blank, as one; empty lines may come before a header."""
    data = b""
    for chunk in chunks:
        data += chunk
        if chunk[:100].strip(b"\r\n") or chunk.strip(b"\r\n"):  # the second copies all of a large chunk
            break
    return data


def parse_header(data: bytes, path: str, *, delimiter: str, over_lines: bool) -> Header:
    """Returns the header at the start of a text.

    Raises:
        SourceError: if there is none, or it is not valid CSV.
    """
    lines = find_lines(data)
    skip = 0
    while skip < len(lines.ends) and not data[lines.starts[skip] : lines.ends[skip]].strip(b"\r\n"):
        skip += 1
    last = skip
    while over_lines and last + 1 < len(lines.ends) and data.count(b'"', 0, int(lines.ends[last])) % 2:
        last += 1
    if skip >= len(lines.ends):
        raise SourceError(f"{path} holds only empty lines; a header with column names must come first")
    cells = split_cells(data[lines.starts[skip] : lines.ends[last]], delimiter)
    if cells is None:
        raise SourceError(f"{path}: the header is not valid CSV (a quote is never closed)")
    names = tuple(cell.decode("utf-8", "surrogateescape") for cell in cells)
    return Header(names, last + 1, int(lines.ends[last]))


def check_header(header: Header, spec: SourceSpec, path: str) -> None:
    """Checks that each declared column is there once.

    Raises:
        SourceError: if one is absent or there twice.
    """
    for name in stored_columns(spec).values():
        count = header.names.count(name)
        if not count:
            raise absent_column(path, name, header.names)
        if count > 1:
            raise SourceError(f"{path} has {count} columns named {name!r}; a declared column must be unique")


def split_cells(record: bytes, delimiter: str) -> list[bytes] | None:
    """Returns the cells of one record by the strict rules of RFC 4180, or None if it breaks them."""
    csv.field_size_limit(1 << 30)  # of the whole process; Python's own limit of 128 KiB is no rule of the format
    text = io.StringIO(record.rstrip(b"\r\n").decode("latin-1"), newline="")
    try:
        rows = list(csv.reader(text, delimiter=delimiter, strict=True))
    except csv.Error:
        return None
    return [cell.encode("latin-1") for cell in rows[0]] if len(rows) == 1 else None


def loose_cells(record: bytes, delimiter: str) -> list[bytes] | None:
    """Returns the cells of one record as Arrow reads it, which takes text after a closing quote for part of the cell.

    None if a quote is never closed, or a line ends within the record.
    """
    csv.field_size_limit(1 << 30)
    end = "end"  # an open quote would swallow it
    try:
        rows = list(csv.reader([record.rstrip(b"\r\n").decode("latin-1"), end], delimiter=delimiter))
    except csv.Error:
        return None
    return [cell.encode("latin-1") for cell in rows[0]] if rows[1:] == [[end]] else None

"""CSV and TSV by RFC 4180, all columns as bytes, bad rows kept apart.

Arrow parses; this module decides what it is given. A quote that never closes would swallow the rest of a file, so lines
with an odd number of quotes (the only ones that can open or close a value across lines) are paired here first: a pair
that does not make a whole row rejects its first line alone. A chunk that Arrow then reads into another number of rows
than it has records is read again record by record.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as arrow_csv

from preprocessing.blocks import Block, absent_column, make_rejects
from preprocessing.errors import SourceError
from preprocessing.lines import Lines, find_lines, read_chunks, texts
from preprocessing.spec import SourceSpec

__all__ = ["read_csv"]

# A value that runs over lines may be this long; past it the quote is taken for one that never closes.
_MAX_RECORD_BYTES = 4 << 20


@dataclass(frozen=True)
class _Records:
    """The records of a chunk back to back, where each began, the lines that are none, and what is left to read."""

    data: bytes
    lengths: npt.NDArray[np.int64]
    lines: npt.NDArray[np.int64]
    bad: list[tuple[int, bytes]]
    multiline: bool
    rest: bytes
    num_lines: int


def read_csv(file: IO[bytes], path: str, spec: SourceSpec, *, delimiter: str, block_bytes: int) -> Iterator[Block]:
    """Yields the rows of a CSV file; all columns of the file, as binary.

    Raises:
        SourceError: if a declared column is absent or named twice, or the file cannot be read.
    """
    names: list[str] | None = None
    rest, line = b"", 1
    chunks = read_chunks(file, path, block_bytes=block_bytes)
    chunk = next(chunks, b"")
    while chunk or rest:
        following = next(chunks, b"")
        data = rest + chunk
        if names is None:
            names, header_lines, data = _split_header(data, path, delimiter=delimiter)
            _check_columns(names, spec, path)
            line += header_lines
        records = _find_records(data, len(names), delimiter=delimiter, last=not following)
        block = _parse(records, names, path, first_line=line, delimiter=delimiter)
        if block is not None:
            yield block
        line += records.num_lines
        chunk, rest = following, records.rest


def _split_header(data: bytes, path: str, *, delimiter: str) -> tuple[list[str], int, bytes]:
    """Returns the column names, the number of lines that they take, and the data after them."""
    lines = find_lines(data)
    skip = 0
    while skip < len(lines.ends) and not data[lines.starts[skip] : lines.ends[skip]].strip(b"\r\n"):
        skip += 1
    last = skip
    while last + 1 < len(lines.ends) and data.count(b'"', 0, int(lines.ends[last])) % 2:
        last += 1
    if skip >= len(lines.ends):
        raise SourceError(f"{path} holds only empty lines; a header with column names must come first")
    cells = _cells(data[lines.starts[skip] : lines.ends[last]], delimiter)
    if cells is None:
        raise SourceError(f"{path}: the header is not valid CSV (a quote is never closed)")
    return [cell.decode("utf-8", "surrogateescape") for cell in cells], last + 1, data[lines.ends[last] :]


def _check_columns(names: Sequence[str], spec: SourceSpec, path: str) -> None:
    for key, column in spec.columns.items():
        name = column.source_name or key
        if name not in names:
            raise absent_column(path, name, names)
        if names.count(name) > 1:
            raise SourceError(
                f"{path} has {names.count(name)} columns named {name!r}; a declared column must be unique"
            )


def _cells(record: bytes, delimiter: str) -> list[bytes] | None:
    """Returns the cells of one record by the strict rules of RFC 4180, or None if it breaks them."""
    csv.field_size_limit(1 << 30)  # of the whole process; Python's own limit of 128 KiB is no rule of the format
    text = io.StringIO(record.rstrip(b"\r\n").decode("latin-1"), newline="")
    try:
        rows = list(csv.reader(text, delimiter=delimiter, strict=True))
    except csv.Error:
        return None
    return [cell.encode("latin-1") for cell in rows[0]] if len(rows) == 1 else None


def _find_records(data: bytes, num_columns: int, *, delimiter: str, last: bool) -> _Records:
    lines = find_lines(data)
    joined, bad, cut = _pair_quotes(lines, num_columns, delimiter=delimiter, last=last)
    keep = ~lines.blank()
    first = np.ones(len(lines.ends), np.bool_)
    for start, stop in joined:
        keep[start : stop + 1] = True
        first[start + 1 : stop + 1] = False
    keep[bad] = False
    keep[cut:] = False
    where = np.flatnonzero(keep & first)
    sizes = np.where(keep, lines.ends - lines.starts, 0)
    lengths = np.add.reduceat(sizes, where) if len(where) else np.zeros(0, np.int64)
    rest = data[lines.starts[cut] :] if cut < len(lines.starts) else b""
    return _Records(
        _keep_lines(lines, keep),
        lengths,
        where,
        [(int(index), data[lines.starts[index] : lines.ends[index]]) for index in bad],
        bool(joined),
        rest,
        cut,
    )


def _keep_lines(lines: Lines, keep: npt.NDArray[np.bool_]) -> bytes:
    """Returns the kept lines back to back; copies only if some are left out."""
    if keep.all():
        return lines.data
    edges = np.flatnonzero(np.diff(keep, prepend=False, append=False))
    runs = zip(lines.starts[edges[::2]], lines.ends[edges[1::2] - 1], strict=True)
    return b"".join(lines.data[start:end] for start, end in runs)


def _pair_quotes(
    lines: Lines, num_columns: int, *, delimiter: str, last: bool
) -> tuple[list[tuple[int, int]], list[int], int]:
    """Returns the records over several lines, the lines that open a quote for nothing, and the first line left over.

    Inside a quoted value quotes come in pairs, so a record over lines begins and ends at lines with an odd number of
    quotes, and has none between.
    """
    joined: list[tuple[int, int]] = []
    bad: list[int] = []
    odd = _odd_lines(lines)
    index = 0
    while index < len(odd):
        line = odd[index]
        follower = odd[index + 1] if index + 1 < len(odd) else None
        if follower is None and not last and len(lines.data) - lines.starts[line] <= _MAX_RECORD_BYTES:
            return joined, bad, line
        index += 1
        if _is_row(lines, line, line, num_columns=num_columns, delimiter=delimiter):
            continue
        if follower is not None and _is_row(lines, line, follower, num_columns=num_columns, delimiter=delimiter):
            joined.append((line, follower))
            index += 1
        else:
            bad.append(line)
    return joined, bad, len(lines.ends)


def _odd_lines(lines: Lines) -> list[int]:
    if b'"' not in lines.data:
        return []
    quotes = np.flatnonzero(np.frombuffer(lines.data, np.uint8) == 34)
    counts = np.bincount(np.searchsorted(lines.ends, quotes, side="right"), minlength=len(lines.ends))
    return np.flatnonzero(counts % 2).tolist()


def _is_row(lines: Lines, start: int, stop: int, *, num_columns: int, delimiter: str) -> bool:
    if lines.ends[stop] - lines.starts[start] > _MAX_RECORD_BYTES:
        return False
    cells = _cells(lines.data[lines.starts[start] : lines.ends[stop]], delimiter)
    return cells is not None and len(cells) == num_columns


def _parse(records: _Records, names: Sequence[str], path: str, *, first_line: int, delimiter: str) -> Block | None:
    if not len(records.lengths) and not records.bad:
        return None
    raw = texts(records.data, records.lengths)
    parsed = _parse_fast(records, len(names), delimiter=delimiter)
    columns, ragged = parsed if parsed is not None else _parse_slowly(raw, len(names), delimiter=delimiter)
    good = np.ones(len(raw), np.bool_)
    good[ragged] = False
    batch = pa.RecordBatch.from_arrays(columns, names=list(names))
    positions = records.lines + first_line
    bad_lines = np.array([line for line, _ in records.bad], np.int64) + first_line
    bad_texts = pa.array([text for _, text in records.bad], pa.binary())
    where = np.concatenate([positions[ragged], bad_lines])
    order = np.argsort(where, kind="stable")
    rejected = pa.concat_arrays([raw.take(pa.array(ragged, pa.int64())), bad_texts]).take(pa.array(order))
    malformed = make_rejects(path, where[order], reason="malformed_row", raw=_strip(rejected))
    if ragged:
        raw, positions = raw.filter(pa.array(good)), positions[good]
    return Block(int(positions[0]) if len(positions) else 0, batch, raw, malformed, positions, empty_is_missing=True)


def _strip(rows: pa.Array) -> pa.Array:
    return pa.array([row.rstrip(b"\r\n") for row in rows.to_pylist()], pa.binary())


def _parse_fast(records: _Records, num_columns: int, *, delimiter: str) -> tuple[list[pa.Array], list[int]] | None:
    """Returns the columns and the indices of ragged records, or None if Arrow sees other records than we do."""
    if not len(records.lengths):
        return [pa.array([], pa.binary())] * num_columns, []
    ragged: list[int] = []

    def note(row: arrow_csv.InvalidRow) -> str:
        ragged.append(row.number - 1)
        return "skip"

    names = [str(index) for index in range(num_columns)]
    handler = note if _is_utf8(records.data) else None  # Arrow hands over text, and complains loudly where it is none
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(records.data),
            read_options=arrow_csv.ReadOptions(
                use_threads=False, block_size=len(records.data) + 64, column_names=names
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=records.multiline, invalid_row_handler=handler
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.binary()), null_values=[], strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows + len(ragged) != len(records.lengths):
        return None
    return [_one_chunk(column) for column in table.columns], ragged


def _is_utf8(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.array([], column.type), *column.chunks])


def _parse_slowly(raw: pa.Array, num_columns: int, *, delimiter: str) -> tuple[list[pa.Array], list[int]]:
    rows = [_cells(record, delimiter) for record in raw.to_pylist()]
    ragged = [index for index, row in enumerate(rows) if row is None or len(row) != num_columns]
    whole = [row for row in rows if row is not None and len(row) == num_columns]
    return [pa.array([row[index] for row in whole], pa.binary()) for index in range(num_columns)], ragged

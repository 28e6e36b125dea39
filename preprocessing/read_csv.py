"""CSV and TSV by RFC 4180, all columns as bytes, bad rows kept apart.

Arrow parses; this module decides what it is given. A quote that never closes would swallow the rest of a file, so lines
with an odd number of quotes (the only ones that can open or close a value across lines) are paired here first: a pair
that does not make a whole row rejects its first line alone. A chunk that Arrow then reads into another number of rows
than it has records is read again record by record.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as arrow_csv

from preprocessing.blocks import Block, make_rejects
from preprocessing.csv_header import Header, beginning, check_header, loose_cells, parse_header, split_cells
from preprocessing.lines import Lines, Readable, find_lines, read_chunks, texts
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


def read_csv(
    file: Readable,
    path: str,
    spec: SourceSpec,
    *,
    delimiter: str,
    block_bytes: int,
    header: Header | None = None,
    first_line: int = 1,
) -> Iterator[Block]:
    """Yields the rows of a CSV file, or of a part of one; all columns of the file, as binary.

    Args:
        file: the text in UTF-8.
        path: for messages and rejects.
        spec: the declared columns.
        delimiter: a character.
        block_bytes: about how much text makes a block.
        header: that of the file, where the text is a part without it.
        first_line: number of the first line of the text.

    Raises:
        SourceError: if a declared column is absent or named twice, or the file cannot be read.
    """
    rest, line = b"", first_line
    chunks = read_chunks(file, path, block_bytes=block_bytes, at_start=header is None)
    chunk = beginning(chunks)
    while chunk or rest:
        following = next(chunks, b"")
        data = rest + chunk
        if header is None:
            header = parse_header(data, path, delimiter=delimiter, over_lines=spec.newlines_in_values)
            data = data[header.size_bytes :]
            line += header.num_lines
            check_header(header, spec, path)
        over_lines = spec.newlines_in_values
        records = _find_records(data, len(header.names), delimiter=delimiter, last=not following, over_lines=over_lines)
        block = _parse(records, header.names, path, first_line=line, delimiter=delimiter)
        if block is not None:
            yield block
        line += records.num_lines
        chunk, rest = following, records.rest


def _find_records(data: bytes, num_columns: int, *, delimiter: str, last: bool, over_lines: bool) -> _Records:
    lines = find_lines(data)
    is_row = functools.partial(_is_row, lines, num_columns=num_columns, delimiter=delimiter)
    if over_lines:
        joined, bad, cut = _pair_quotes(lines, is_row, last=last)
    else:
        joined, bad, cut = [], [line for line in _odd_lines(lines) if not is_row(line, line)], len(lines.ends)
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
    lines: Lines, is_row: Callable[[int, int], bool], *, last: bool
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
        if is_row(line, line):
            continue
        if follower is not None and is_row(line, follower):
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
    cells = split_cells(lines.data[lines.starts[start] : lines.ends[stop]], delimiter)
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
    rows = [loose_cells(record, delimiter) for record in raw.to_pylist()]
    ragged = [index for index, row in enumerate(rows) if row is None or len(row) != num_columns]
    whole = [row for row in rows if row is not None and len(row) == num_columns]
    return [pa.array([row[index] for row in whole], pa.binary()) for index in range(num_columns)], ragged

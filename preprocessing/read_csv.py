"""CSV and TSV by RFC 4180, all columns as bytes, bad rows kept apart.

Arrow parses; `csv_records` decides what it is given. A chunk that Arrow would read into other records, or does, is read
again record by record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from preprocessing.blocks import Block, make_rejects
from preprocessing.csv_header import Header, beginning, check_header, loose_cells, parse_header
from preprocessing.csv_records import Records, find_records
from preprocessing.lines import Readable, read_chunks, texts
from preprocessing.spec import SourceSpec

__all__ = ["read_csv"]


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
        records = find_records(data, len(header.names), delimiter=delimiter, last=not following, over_lines=over_lines)
        block = _parse(records, header.names, path, first_line=line, delimiter=delimiter)
        if block is not None:
            yield block
        line += records.num_lines
        chunk, rest = following, records.rest


def _parse(records: Records, names: Sequence[str], path: str, *, first_line: int, delimiter: str) -> Block | None:
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


def _parse_fast(records: Records, num_columns: int, *, delimiter: str) -> tuple[list[pa.Array], list[int]] | None:
    """Returns the columns and the indices of ragged records, or None if Arrow sees other records than we do."""
    if not len(records.lengths):
        return [pa.array([], pa.binary())] * num_columns, []
    if _misleads_arrow(records, delimiter=delimiter):
        return None
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


def _misleads_arrow(records: Records, *, delimiter: str) -> bool:
    """Returns whether Arrow would end a record at a lone carriage return, or close the last quote by itself."""
    last = records.data[-int(records.lengths[-1]) :]
    if b'"' in last and loose_cells(last, delimiter) is None:
        return True
    return b"\r" in records.data and records.data.count(b"\r") != records.data.count(b"\r\n")


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

"""A sample of a file of unknown kind: its format, encoding, column names, and rows from several places in it."""

from __future__ import annotations

import codecs
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.errors import SourceError
from preprocessing.sample_text import csv_parser, parse_json_lines

__all__ = ["FileSample", "join_samples", "sample_file"]

_HEAD_BYTES = 16 << 20
# Of a text file that is not read whole: this share of the rows is from its head, the others from evenly spread places.
_HEAD_SHARE = 0.2
_SLICES = 32
_GROUPS = 8  # row groups of a Parquet file that are looked at
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}


@dataclasses.dataclass(frozen=True)
class FileSample:
    """Some rows of a file.

    Attributes:
        format: csv, tsv, jsonl or parquet.
        declared: whether the name of the file does not tell the format, so that a config must.
        encoding: of a text file.
        columns: string or list of string [N] by name, null where missing.
        num_rows: N.
        whole: whether these are all rows.
        bytes_a_row: of the file as it is stored, about.
        malformed: rows that could not be read.
    """

    format: str
    declared: bool
    encoding: str
    columns: dict[str, pa.Array]
    num_rows: int
    whole: bool
    bytes_a_row: float
    malformed: int = 0


def sample_file(path: Path, *, max_rows: int) -> FileSample:
    """Returns rows from the head of a file, and of a large one from places spread over it.

    Raises:
        SourceError: if it is empty, binary, or no table that Rankmill reads.
    """
    try:
        if path.stat().st_size == 0:
            raise SourceError(f"{path} is empty")
        with path.open("rb") as file:
            magic = file.read(4)
        if magic == b"PAR1":
            return _sample_parquet(path, max_rows=max_rows)
        return _sample_text(path, max_rows=max_rows)
    except (OSError, EOFError, pa.ArrowException) as error:
        raise SourceError(f"{path} cannot be read: {error}") from error


def join_samples(samples: Sequence[FileSample]) -> FileSample:
    """Returns the samples of the files of one source as one; only columns that all of them have."""
    first = samples[0]
    names = [name for name in first.columns if all(name in sample.columns for sample in samples)]
    columns = {}
    for name in names:
        parts = [sample.columns[name] for sample in samples]
        is_list = any(pa.types.is_list(part.type) for part in parts)
        kind = pa.list_(pa.string()) if is_list else pa.string()
        columns[name] = pa.concat_arrays([_as_list(part) if is_list else part for part in parts]).cast(kind)
    rows = sum(sample.num_rows for sample in samples)
    return dataclasses.replace(
        first,
        columns=columns,
        num_rows=rows,
        whole=all(sample.whole for sample in samples),
        bytes_a_row=sum(sample.bytes_a_row * sample.num_rows for sample in samples) / max(1, rows),
        malformed=sum(sample.malformed for sample in samples),
        encoding=next((sample.encoding for sample in samples if sample.encoding != "utf-8"), first.encoding),
    )


def _as_list(values: pa.Array) -> pa.Array:
    if pa.types.is_list(values.type):
        return values
    return pa.array([None if value is None else [value] for value in values.to_pylist()], pa.list_(pa.string()))


def _sample_parquet(path: Path, *, max_rows: int) -> FileSample:
    parquet = pq.ParquetFile(path)
    groups = parquet.num_row_groups
    chosen = sorted({round(place) for place in np.linspace(0, groups - 1, min(groups, _GROUPS))}) if groups else []
    tables = [parquet.schema_arrow.empty_table()]
    budget = max(1, max_rows // max(1, len(chosen)))
    for group in chosen:
        batch = next(parquet.iter_batches(batch_size=budget, row_groups=[group], use_threads=False), None)
        tables += [] if batch is None else [pa.Table.from_batches([batch])]
    table = pa.concat_tables(tables)
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    columns = {
        name: text
        for name, column in zip(table.column_names, table.columns, strict=True)
        if (text := _text_of(column.combine_chunks())) is not None
    }
    total = max(1, parquet.metadata.num_rows)
    whole = table.num_rows == parquet.metadata.num_rows
    return FileSample("parquet", False, "utf-8", columns, table.num_rows, whole, path.stat().st_size / total)


def _text_of(column: pa.Array | pa.ChunkedArray) -> pa.Array | None:
    """Returns values as text, times by ISO 8601; None for what no column can be declared as."""
    values = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _text_of(values.dictionary_decode())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        try:
            return values.cast(pa.list_(pa.string()))
        except pa.ArrowException:
            return None
    if pa.types.is_timestamp(kind):
        values = values.cast(pa.timestamp("us", tz="UTC") if kind.tz else pa.timestamp("us"), safe=False)
        return pa.array([None if at is None else at.isoformat() for at in values.to_pylist()], pa.string())
    try:
        return values.cast(pa.string())
    except pa.ArrowException:
        return None


def _sample_text(path: Path, *, max_rows: int) -> FileSample:
    compression = _COMPRESSIONS.get(path.suffix.lower())
    with pa.input_stream(str(path), compression=compression) as stream:
        head = stream.read(_HEAD_BYTES)
    whole = len(head) < _HEAD_BYTES
    encoding = _encoding(head, path)
    text = _decode(head, encoding, whole=whole)
    kind, declared = _format_of(path, text)
    parse = parse_json_lines if kind == "jsonl" else csv_parser("\t" if kind == "tsv" else ",", text, path)
    spread = compression is None and encoding != "utf-16"
    columns, rows, malformed, used = parse(text, max_rows)
    if spread and not (whole and used):
        columns, rows, malformed, used = parse(text, round(max_rows * _HEAD_SHARE))
    whole, parts = whole and used, [columns]
    if spread and not whole:
        budget, line_bytes = round(max_rows * (1 - _HEAD_SHARE)) // _SLICES, len(head) // max(1, head.count(b"\n"))
        for piece in _slices(path, encoding, start=rows * line_bytes, size=max(64 << 10, 2 * budget * line_bytes)):
            more, count, bad, _ = parse(piece, budget)
            parts.append(more)
            rows, malformed = rows + count, malformed + bad
    if not columns or not rows:
        raise SourceError(f"{path} holds no rows")
    size = path.stat().st_size
    bytes_a_row = size / rows if whole else len(head) / max(1, head.count(b"\n"))
    if compression is not None and not whole:
        bytes_a_row /= 4  # of text under compression, about
    joined = {name: _concat([part.get(name) for part in parts if part]) for name in columns}
    return FileSample(kind, declared, encoding, joined, rows, whole, bytes_a_row, malformed)


def _concat(parts: Sequence[pa.Array | None]) -> pa.Array:
    there = [part for part in parts if part is not None]
    is_list = any(pa.types.is_list(part.type) for part in there)
    return pa.concat_arrays([_as_list(part) if is_list else part for part in there])


def _encoding(head: bytes, path: Path) -> str:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in head[: 1 << 20]:
        raise SourceError(f"{path} is binary (it holds zero bytes) and not Parquet: Rankmill reads text and Parquet")
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(head)
    broken = text.count("\ufffd")
    others = broken and sum(not char.isascii() for char in text)
    if broken <= 0.1 * others:  # a few broken bytes in a text that is otherwise UTF-8 are dirt, not another encoding
        return "utf-8"
    try:
        codecs.getincrementaldecoder("cp1252")().decode(head)
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


def _decode(data: bytes, encoding: str, *, whole: bool) -> str:
    text = data.decode(encoding, "replace").removeprefix("\ufeff")
    return text if whole else text[: text.rfind("\n") + 1]


def _format_of(path: Path, text: str) -> tuple[str, bool]:
    """Returns the format, and whether it must be declared since the name tells none or another one."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in _COMPRESSIONS]
    named = _SUFFIXES.get(suffixes[-1]) if suffixes else None
    first = next((line for line in text.splitlines() if line.strip()), "")
    if first.lstrip().startswith("{"):
        return "jsonl", named != "jsonl"
    if named == "jsonl":
        raise SourceError(f"{path} is no JSON lines file: each line must be an object")
    tabs, commas = first.count("\t"), first.count(",")
    if not tabs and not commas:
        for other in (";", "|"):
            if first.count(other) > 1:
                raise SourceError(f"{path} is separated by {other!r}; Rankmill reads commas and tabs: convert it")
        if named is None:
            raise SourceError(f"{path} is no table that Rankmill knows: CSV, TSV, JSON lines or Parquet")
    kind = "tsv" if tabs > commas else "csv"
    return kind, named != kind


def _slices(path: Path, encoding: str, *, start: int, size: int) -> list[str]:
    """Returns texts of whole lines from places spread over a file behind `start`, of about `size` bytes each."""
    end = path.stat().st_size
    pieces = []
    with path.open("rb") as file:
        for offset in np.linspace(start, max(start, end - size), _SLICES).astype(int):
            file.seek(int(offset))
            data = file.read(size)
            first, last = data.find(b"\n") + 1, data.rfind(b"\n") + 1
            if 0 < first < last:
                pieces.append(data[first:last].decode(encoding, "replace"))
    return pieces

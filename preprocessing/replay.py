"""Rejected rows on their way back: as text to edit, judged again by the rules of their source, written as its files.

A repaired file is read by the very reader and cleaning that will read it in the next run. Which row is which is told
by place: rows stay in the order in which they were exported, and may grow over lines or be taken out. Lines are bytes;
text is UTF-8 here, whatever the encoding of the source.
"""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.cleaning import FutureRule, clean
from preprocessing.compression import compression_of, decompressed
from preprocessing.csv_header import parse_header
from preprocessing.encodings import Utf8Stream, is_utf8
from preprocessing.errors import SourceError
from preprocessing.file_access import open_bytes
from preprocessing.lines import BOM, Readable, read_chunks
from preprocessing.sources import read_table_blocks
from preprocessing.spec import SourceSpec

__all__ = ["Judged", "encoded", "header_text", "judge_parquet", "judge_text"]

_BLOCK_BYTES = 16 << 20
_HEADER_BYTES = 1 << 16


@dataclasses.dataclass(frozen=True)
class Judged:
    """A row of a repaired file.

    Attributes:
        owner: index of the exported row that it stands for.
        line: where it begins in the file, from 1.
        raw: its text.
        reason: why it is still no row; empty if it is one.
        column: whose value is at fault, if a column is.
    """

    owner: int
    line: int
    raw: bytes
    reason: str = ""
    column: str = ""


def header_text(path: str, spec: SourceSpec, *, delimiter: str) -> bytes:
    """Returns the header of a CSV file as UTF-8, without its line end.

    Raises:
        SourceError: if the file cannot be read, or has none.
    """
    with open_bytes(path) as file:
        stored: Readable = decompressed(file, compression_of(path, spec.compression))
        text = stored if is_utf8(spec.encoding) else Utf8Stream(stored, spec.encoding)
        beginning = b""
        for data in read_chunks(text, path, block_bytes=_HEADER_BYTES):
            beginning += data
            if beginning.strip(b"\r\n"):
                break
    header = parse_header(beginning, path, delimiter=delimiter, over_lines=spec.newlines_in_values)
    return beginning[: header.size_bytes].strip(b"\r\n")


def judge_text(
    path: Path,
    spec: SourceSpec,
    *,
    kind: str,
    source: str,
    folder: str,
    owners: Sequence[int],
    future: FutureRule | None = None,
) -> list[Judged]:
    """Returns the rows of a repaired CSV, TSV or JSON lines file, in order.

    Args:
        path: the file, UTF-8.
        spec: of the source, as it is to be cleaned.
        kind: csv, tsv or jsonl.
        source: name of the source.
        folder: partition folders of the original file, such as `dt=2026-11-01/`.
        owners: of each line of the file, the exported row that it belongs to, or -1.
        future: which events are of the future.
    """
    plain = spec.model_copy(update={"format": kind, "encoding": "utf-8", "compression": "none"})
    judged = []
    for block in read_table_blocks(str(path), plain, block_bytes=_BLOCK_BYTES):
        cleaned = clean(block, plain, source=source, path=f"{folder}{path.name}", future=future)
        texts = {} if block.raw is None else dict(zip(block.positions.tolist(), block.raw.to_pylist(), strict=True))
        for row in cleaned.rejects.select(["position", "reason", "column", "raw"]).to_pylist():
            text = texts.pop(row["position"], row["raw"]).rstrip(b"\r\n")
            judged.append(Judged(0, row["position"], text, row["reason"], row["column"]))
        judged += [Judged(0, line, text.rstrip(b"\r\n")) for line, text in texts.items()]
    return _owned(sorted(judged, key=lambda row: row.line), owners)


def _owned(judged: Sequence[Judged], owners: Sequence[int]) -> list[Judged]:
    """Returns the rows with their owners; a row that is no exported one, or runs over into another, is at fault."""
    seen: set[int] = set()
    result = []
    for row in judged:
        lines = range(row.line - 1, row.line + row.raw.count(b"\n"))
        mine = {owners[line] for line in lines if line < len(owners)} - {-1}
        owner = min(mine, default=-1)
        reason = row.reason
        if owner == -1 or owner in seen:
            owner, reason = -1, "added_row"
        elif len(mine) > 1 and not reason:
            reason = "runs_over"
        seen.add(owner)
        result.append(dataclasses.replace(row, owner=owner, reason=reason))
    return result


def judge_parquet(
    lines: Sequence[bytes], spec: SourceSpec, *, source: str, path: Path, folder: str, future: FutureRule | None = None
) -> list[Judged]:
    """Returns the rows of JSON lines that stand for rows of Parquet files; those that parse are written to `path`.

    Owners are the places among the lines.

    Args:
        lines: JSON objects of the columns read.
        spec: of the source, as it is to be cleaned.
        source: name of the source.
        path: a Parquet file to write.
        folder: partition folders of the original file.
        future: which events are of the future.
    """
    objects = [_object(line) for line in lines]
    good = [place for place, value in enumerate(objects) if value is not None]
    judged = [
        Judged(place, place + 1, lines[place], "malformed_json") for place, value in enumerate(objects) if value is None
    ]
    pq.write_table(_table([value for value in objects if value is not None], spec), path)
    if not good:
        return judged
    for block in read_table_blocks(str(path), spec, block_bytes=_BLOCK_BYTES):
        cleaned = clean(block, spec, source=source, path=f"{folder}{path.name}", future=future)
        faults = {row["position"]: row for row in cleaned.rejects.to_pylist()}
        for position in block.positions.tolist():
            fault, place = faults.get(position, {"reason": "", "column": ""}), good[position - 1]
            judged.append(Judged(place, place + 1, lines[place], fault["reason"], fault["column"]))
    return sorted(judged, key=lambda row: row.line)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _table(rows: Sequence[dict[str, Any]], spec: SourceSpec) -> pa.Table:
    """Returns rows as columns in the types that JSON gives them; what has several types becomes text."""
    times = {column.source_name or name for name, column in spec.columns.items() if column.type == "timestamp"}
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: _array([row.get(name) for row in rows], is_time=name in times) for name in names}
    declared = [column.source_name or name for name, column in spec.columns.items() if not column.partition]
    absent = {name: pa.nulls(len(rows), pa.string()) for name in declared if name.split(".")[0] not in names}
    return pa.table({**columns, **absent})


def _array(values: list[Any], *, is_time: bool) -> pa.Array:
    try:
        array = pa.array(values)
    except (pa.ArrowException, OverflowError):
        array = pa.array([value if value is None or isinstance(value, str) else json.dumps(value) for value in values])
    if is_time and pa.types.is_string(array.type):
        # Times of Parquet have a unit of their own and were exported as ISO text; the rest is for cleaning to judge.
        try:
            return array.cast(pa.timestamp("us", tz="UTC") if _has_zone(values) else pa.timestamp("us"))
        except pa.ArrowException:
            return array
    return array


def _has_zone(values: Sequence[str | None]) -> bool:
    return any(value is not None and (value.endswith("Z") or "+" in value[10:]) for value in values)


def encoded(header: bytes | None, rows: Sequence[bytes], spec: SourceSpec) -> bytes:
    """Returns a text file of a source: in its encoding, and compressed if the source declares so.

    Raises:
        SourceError: if a character cannot be written in the encoding.
    """
    data = b"".join(line + b"\n" for line in ([] if header is None else [header]) + list(rows)).removeprefix(BOM)
    if not is_utf8(spec.encoding):
        try:
            data = data.decode("utf-8").encode(spec.encoding)
        except UnicodeError as error:
            raise SourceError(f"the text cannot be written in {spec.encoding}: {error}") from error
    if spec.compression == "gzip":
        return gzip.compress(data, mtime=0)
    if spec.compression == "bz2":
        return bz2.compress(data)
    if spec.compression == "zstd":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(data)
        return sink.getvalue().to_pybytes()
    return data

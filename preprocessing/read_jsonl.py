"""JSON lines: one object a line, the declared keys only.

Arrow reads a chunk whose values have the types of its first lines. A chunk that it refuses (a bad line, a type that
changes, ...) is read line by line into text cells with every number as it stands, so that nothing is rounded; cleaning
gives both the same types.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as arrow_json

from preprocessing.blocks import Block, absent_column, make_rejects, no_rejects
from preprocessing.json_schema import LIST_ELEMENTS, flat_batch, guess_schema
from preprocessing.json_values import json_cell, json_cells, parse_json
from preprocessing.lines import Lines, Readable, find_lines, read_chunks, texts
from preprocessing.nested import key_paths, value_at
from preprocessing.partitions import stored_columns
from preprocessing.spec import ColumnSpec, SourceSpec

__all__ = ["JsonKeys", "read_jsonl"]

_Positions = npt.NDArray[np.int64]

_GIVE_UP_AFTER = 3  # chunks in a row that Arrow refused; the rest of the file is then not tried
_LOOKED_AT = 100  # lines


def read_jsonl(
    file: Readable, path: str, spec: SourceSpec, *, block_bytes: int, first_line: int | None = None
) -> Iterator[Block]:
    """Yields the rows of a JSONL file, or of a part of one.

    Args:
        file: the text in UTF-8.
        path: for messages and rejects.
        spec: the declared columns.
        block_bytes: about how much text makes a block.
        first_line: number of the first line of a part; None for a whole file.

    Raises:
        SourceError: if a declared key is in no line of a whole file, or the file cannot be read.
    """
    columns = {name: spec.columns[key] for key, name in stored_columns(spec).items()}
    keys = JsonKeys(columns)
    line, refused = first_line or 1, 0
    for data in read_chunks(file, path, block_bytes=block_bytes, at_start=first_line in (None, 1)):
        lines = find_lines(data)
        raw, positions = _texts(lines, first_line=line)
        line += len(lines.ends)
        if not len(raw):
            continue
        if first_line is None:
            keys.look(data)
        broken = _broken(raw)
        if broken.any():  # kept from Arrow, which refuses a chunk for one of them
            yield _read_slowly(raw.filter(pa.array(broken)), positions[broken], columns, path=path)
            raw, positions = raw.filter(pa.array(~broken)), positions[~broken]
        batch = _read_fast(raw, columns, data) if refused < _GIVE_UP_AFTER else None
        refused = 0 if batch is not None else refused + 1
        if batch is not None:
            yield Block(int(positions[0]), batch, raw, no_rejects(), positions)
        else:
            yield _read_slowly(raw, positions, columns, path=path)
    if first_line is None:
        keys.check(path)


class JsonKeys:
    """Looks through a JSONL file for declared keys that no line has: those are taken for misspelt."""

    def __init__(self, names: Iterable[str]) -> None:
        self._unseen = set(names)
        self._known: dict[str, None] = {}

    def look(self, data: bytes) -> None:
        """Takes note of the keys in a chunk of whole lines."""
        self._unseen -= {name for name in self._unseen if _may_hold(data, name)}
        if self._unseen:
            first = next((value for line in data.split(b"\n", 1) if (value := _object(line))), {})
            self._known.update(dict.fromkeys(key_paths(first)))

    def check(self, path: str) -> None:
        """Raises SourceError if a key was in no line, unless no line was read at all."""
        if self._unseen and self._known:
            raise absent_column(path, min(self._unseen), self._known)


def _may_hold(data: bytes, name: str) -> bool:
    """Returns whether a dotted path may lead to something in a text: all its keys stand there in quotes."""
    whole = any(form in data for form in _quoted(name))
    return whole or all(any(form in data for form in _quoted(part)) for part in name.split("."))


def _texts(lines: Lines, *, first_line: int) -> tuple[pa.Array, _Positions]:
    """Returns the lines that are not blank, their line ends included, and their positions."""
    keep = ~lines.blank()
    rows = np.flatnonzero(keep)
    sizes = (lines.ends - lines.starts)[keep]
    data = lines.data if keep.all() else b"".join(lines.data[lines.starts[i] : lines.ends[i]] for i in rows)
    return texts(data, sizes), rows.astype(np.int64) + first_line


def _broken(raw: pa.Array) -> npt.NDArray[np.bool_]:
    """Returns which lines do not begin and end like an object; none where that is most of them."""
    offsets = np.frombuffer(raw.buffers()[1], np.int32)[: len(raw) + 1]
    content = np.frombuffer(raw.buffers()[2], np.uint8)
    first, last = content[offsets[:-1]], offsets[1:] - 1
    for line_end in b"\n\r":
        last = np.where((content[last] == line_end) & (last > offsets[:-1]), last - 1, last)
    broken: npt.NDArray[np.bool_] = (first != ord("{")) | (content[last] != ord("}"))
    return broken if 2 * broken.sum() < len(broken) else np.zeros_like(broken)


def _quoted(name: str) -> tuple[bytes, bytes]:
    return json.dumps(name).encode(), json.dumps(name, ensure_ascii=False).encode("utf-8", "surrogateescape")


def _read_fast(raw: pa.Array, columns: Mapping[str, ColumnSpec], data: bytes) -> pa.RecordBatch | None:
    objects = [_object(line) or {} for line in raw.slice(0, _LOOKED_AT).to_pylist()]
    dotted = {name for name in columns if "." in name}
    literal = frozenset(name for name in dotted if any(form in data for form in _quoted(name)))
    schema = guess_schema(objects, columns, literal=literal)
    if schema is None:
        return None
    text = raw.buffers()[2]
    try:
        table = arrow_json.read_json(
            pa.BufferReader(text),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=text.size + 64),
            parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowException:
        return None
    if table.num_rows != len(raw):  # several objects on a line
        return None
    return flat_batch(table.combine_chunks().to_batches()[0], columns)


def _read_slowly(raw: pa.Array, positions: _Positions, columns: Mapping[str, ColumnSpec], *, path: str) -> Block:
    objects = [_object(line) for line in raw.to_pylist()]
    good = np.array([value is not None for value in objects], np.bool_)
    rows = [value for value in objects if value is not None]
    arrays = [_column(rows, name, column) for name, column in columns.items()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    bad = pa.array([line.rstrip(b"\r\n") for line in raw.filter(pa.array(~good)).to_pylist()], pa.binary())
    malformed = make_rejects(path, positions[~good], reason="malformed_json", raw=bad)
    kept = positions[good]
    return Block(int(kept[0]) if len(kept) else 0, batch, raw.filter(pa.array(good)), malformed, kept)


def _object(line: bytes) -> dict[str, Any] | None:
    """Returns the object of a line, its numbers as bytes; None if the line holds no object."""
    try:
        value = parse_json(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _column(rows: list[dict[str, Any]], name: str, column: ColumnSpec) -> pa.Array:
    if column.type not in LIST_ELEMENTS:
        return pa.array([json_cell(value_at(row, name)) for row in rows], pa.binary())
    return pa.array([json_cells(value_at(row, name), column.delimiter) for row in rows], pa.list_(pa.binary()))

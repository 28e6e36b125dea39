"""JSON lines: one object a line, the declared keys only.

Arrow reads a chunk whose values have the types of its first lines. A chunk that it refuses (a bad line, a type that
changes, ...) is read line by line into text cells with every number as it stands, so that nothing is rounded; cleaning
gives both the same types.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as arrow_json

from preprocessing.blocks import Block, absent_column, make_rejects, no_rejects
from preprocessing.json_values import json_cell, json_cells, parse_json
from preprocessing.lines import Lines, find_lines, read_chunks, texts
from preprocessing.spec import ColumnSpec, SourceSpec

__all__ = ["read_jsonl"]

_Positions = npt.NDArray[np.int64]

_GIVE_UP_AFTER = 3  # chunks in a row that Arrow refused; the rest of the file is then not tried
_LOOKED_AT = 100  # lines
_ELEMENTS = {"list<string>": pa.binary(), "list<int64>": pa.int64(), "list<float64>": pa.float64()}


def read_jsonl(file: IO[bytes], path: str, spec: SourceSpec, *, block_bytes: int) -> Iterator[Block]:
    """Yields the rows of a JSONL file.

    Raises:
        SourceError: if a declared key is in no line of the file, or the file cannot be read.
    """
    columns = {column.source_name or key: column for key, column in spec.columns.items()}
    unseen, known = set(columns), dict[str, None]()
    line, refused = 1, 0
    for data in read_chunks(file, path, block_bytes=block_bytes):
        lines = find_lines(data)
        raw, positions = _texts(lines, first_line=line)
        line += len(lines.ends)
        if not len(raw):
            continue
        unseen -= {name for name in unseen if any(form in data for form in _quoted(name))}
        known.update(_keys(raw) if unseen else {})
        broken = _broken(raw)
        if broken.any():  # kept from Arrow, which refuses a chunk for one of them
            yield _read_slowly(raw.filter(pa.array(broken)), positions[broken], columns, path=path)
            raw, positions = raw.filter(pa.array(~broken)), positions[~broken]
        batch = _read_fast(raw, _guess_types(raw, columns)) if refused < _GIVE_UP_AFTER else None
        refused = 0 if batch is not None else refused + 1
        if batch is not None:
            yield Block(int(positions[0]), batch, raw, no_rejects(), positions)
        else:
            yield _read_slowly(raw, positions, columns, path=path)
    if unseen and known:
        raise absent_column(path, min(unseen), known)


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


def _keys(raw: pa.Array) -> dict[str, None]:
    value = _object(raw[0].as_py())
    return dict.fromkeys(value or {})


def _natural_type(column: ColumnSpec) -> pa.DataType:
    if column.type in _ELEMENTS:
        return pa.binary() if column.delimiter is not None else pa.list_(_ELEMENTS[column.type])
    if column.type == "timestamp":
        return {"iso": pa.binary(), "s": pa.float64()}.get(column.unit, pa.int64())
    return {"string": pa.binary(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_()}[column.type]


def _guess_types(raw: pa.Array, columns: dict[str, ColumnSpec]) -> pa.Schema:
    """Returns types by which Arrow is likely to read the lines, told from the first of them."""
    objects = [_object(line) or {} for line in raw.slice(0, _LOOKED_AT).to_pylist()]
    types = []
    for name, column in columns.items():
        seen = {_type_of(value, column) for value in (row.get(name) for row in objects) if value is not None}
        types.append((name, seen.pop() if len(seen) == 1 else _natural_type(column)))
    return pa.schema(types)


def _type_of(value: Any, column: ColumnSpec) -> pa.DataType:
    if isinstance(value, str):
        return pa.binary()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, bytes):  # a number
        whole = value.lstrip(b"-").isdigit() and "float64" not in column.type and column.unit != "s"
        return pa.int64() if whole else pa.float64() if "string" not in column.type else pa.binary()
    if isinstance(value, list):
        known = {_type_of(element, column) for element in value if element is not None}
        return pa.list_(known.pop()) if len(known) == 1 else _natural_type(column)
    return _natural_type(column)


def _read_fast(raw: pa.Array, schema: pa.Schema) -> pa.RecordBatch | None:
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
    return table.combine_chunks().to_batches()[0]


def _read_slowly(raw: pa.Array, positions: _Positions, columns: dict[str, ColumnSpec], *, path: str) -> Block:
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
    if column.type not in _ELEMENTS:
        return pa.array([json_cell(row.get(name)) for row in rows], pa.binary())
    return pa.array([json_cells(row.get(name), column.delimiter) for row in rows], pa.list_(pa.binary()))

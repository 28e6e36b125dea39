"""Profiles on disk: one Parquet file of distinct values and counts, with the figures of each column in its metadata.

column   the place of the column
part     token, value or length
key      of a token its hash; of a value or length the key of its histogram bin
text     of a token, the beginning of its text
count    rows (of list elements: elements)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.errors import ArtefactError, CorruptError
from preprocessing.histogram import Histogram
from preprocessing.profile import ColumnProfile, Profile, merge_all
from preprocessing.token_sketch import TokenSketch

__all__ = ["from_bytes", "load_profile", "to_bytes"]

_VERSION = 1
_HEADER = b"rankmill.profile"
_SCHEMA = pa.schema(
    [
        ("column", pa.int32()),
        ("part", pa.dictionary(pa.int8(), pa.string())),
        ("key", pa.int64()),
        ("text", pa.large_binary()),
        ("count", pa.int64()),
    ]
)
_PARTS = ("token", "value", "length")
_PART_NAMES = pa.array(_PARTS)
_SCALARS = ("kind", "num_rows", "num_missing", "num_nan", "num_infinite", "smallest", "largest")


def to_bytes(profile: Profile) -> bytes:
    """Returns the profile as a Parquet file; equal profiles give equal bytes."""
    columns = list(profile.columns.items())
    blocks = [block for place, (_, column) in enumerate(columns) for block in _blocks(place, column)]
    header = {
        "version": _VERSION,
        "num_rows": profile.num_rows,
        "labels": profile.labels,
        "columns": [_column_header(name, column) for name, column in columns],
    }
    schema = _SCHEMA.with_metadata({_HEADER: json.dumps(header).encode()})
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches(blocks, schema=schema), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def _column_header(name: str, column: ColumnProfile) -> dict[str, Any]:
    sizes = [None if part is None else len(part.counts) for part in (column.tokens, column.values, column.lengths)]
    figures = {figure: getattr(column, figure) for figure in _SCALARS}
    return {
        "name": name,
        "sizes": sizes,
        "total": column.tokens.total,
        "is_exact": column.tokens.is_exact,
        **figures,
    }


def _blocks(place: int, column: ColumnProfile) -> list[pa.RecordBatch]:
    tokens = column.tokens
    blocks = [_block(place, 0, tokens.hashes.view(np.int64), tokens.counts, tokens.texts)]
    for part, histogram in ((1, column.values), (2, column.lengths)):
        if histogram is not None:
            none = pa.nulls(len(histogram.keys), pa.large_binary())
            blocks.append(_block(place, part, histogram.keys, histogram.counts, none))
    return blocks


def _block(place: int, part: int, keys: Any, counts: Any, texts: pa.Array) -> pa.RecordBatch:
    parts = pa.DictionaryArray.from_arrays(pa.array(np.full(len(keys), part, np.int8)), _PART_NAMES)
    places = pa.array(np.full(len(keys), place, np.int32))
    return pa.record_batch([places, parts, pa.array(keys), texts, pa.array(counts)], schema=_SCHEMA)


def from_bytes(data: bytes) -> Profile:
    """Returns the profile that `to_bytes` wrote.

    Raises:
        CorruptError: if the bytes are no such file.
    """
    try:
        table = pq.read_table(pa.BufferReader(data)).combine_chunks()
        header = json.loads((table.schema.metadata or {})[_HEADER])
        if header["version"] != _VERSION:
            raise CorruptError(f"a profile is of version {header['version']}, not {_VERSION}; run preprocess again")
        columns: dict[str, ColumnProfile] = {}
        start = 0
        for one in header["columns"]:
            columns[one["name"]], start = _column(table, one, start)
        if start != table.num_rows:
            raise CorruptError(f"a profile has {table.num_rows} entries, its header tells of {start}")
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
        raise CorruptError(f"a profile of {len(data)} bytes cannot be read: {error}; run preprocess again") from error
    return Profile(num_rows=header["num_rows"], labels=tuple(header["labels"]), columns=columns)


def _column(table: pa.Table, header: dict[str, Any], start: int) -> tuple[ColumnProfile, int]:
    parts: list[pa.Table | None] = []
    for size in header["sizes"]:
        parts.append(None if size is None else table.slice(start, size))
        start += size or 0
    entries = table.slice(0, 0) if parts[0] is None else parts[0]
    tokens = TokenSketch(
        hashes=entries["key"].to_numpy().view(np.uint64),
        texts=pa.concat_arrays([pa.array([], pa.large_binary()), *entries["text"].chunks]),
        counts=entries["count"].to_numpy(),
        total=header["total"],
        is_exact=header["is_exact"],
    )
    figures = {figure: header[figure] for figure in _SCALARS}
    column = ColumnProfile(tokens=tokens, values=_histogram(parts[1]), lengths=_histogram(parts[2]), **figures)
    return column, start


def _histogram(entries: pa.Table | None) -> Histogram | None:
    if entries is None:
        return None
    return Histogram(keys=entries["key"].to_numpy(), counts=entries["count"].to_numpy())


def load_profile(paths: Sequence[Path]) -> Profile:
    """Returns the profile of all files together, merged a few at a time, so that memory stays bounded.

    Raises:
        ArtefactError: a file cannot be read, or there is none.
        CorruptError: a file is no profile.
    """
    return merge_all(_load(path) for path in paths)


def _load(path: Path) -> Profile:
    try:
        return from_bytes(path.read_bytes())
    except CorruptError as error:
        raise CorruptError(f"{path}: {error}") from error
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error}; run preprocess again") from error

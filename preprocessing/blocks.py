"""What readers hand to cleaning: a block of rows as the file has them, and the rows that could not be read.

Positions are what a person would look for: line numbers of text files, row numbers of Parquet, both from 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from preprocessing.errors import SourceError

__all__ = ["REJECTS", "Block", "absent_column", "make_rejects", "merge_rejects", "no_rejects"]

REJECTS = pa.schema(
    [
        ("source", pa.string()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("reason", pa.string()),
        ("column", pa.string()),
        ("raw", pa.binary()),
    ]
)


@dataclass(frozen=True)
class Block:
    """A run of rows of one file, not yet converted.

    Attributes:
        first_row: Position of the first row (0 without rows).
        batch: Columns by their names in the file (a.b.c of nested ones), in whatever type the format gives.
        raw: Text of each row, or None where the format has none (Parquet).
        malformed: Rows that could not be read, in the form of `REJECTS`; `source` is filled in by `cleaning.clean`.
        positions: int64 [rows], strictly rising.
        empty_is_missing: Whether the format cannot tell an empty string from a missing value (CSV, TSV).
    """

    first_row: int
    batch: pa.RecordBatch
    raw: pa.Array | None
    malformed: pa.RecordBatch
    positions: npt.NDArray[np.int64]
    empty_is_missing: bool = False


def make_rejects(
    path: str,
    positions: npt.NDArray[np.int64],
    *,
    reason: str | pa.Array,
    raw: pa.Array,
    column: str | pa.Array = "",
    source: str = "",
) -> pa.RecordBatch:
    """Returns a batch in the form of `REJECTS`; a plain text stands for itself in every row."""
    rows = len(positions)

    def spread(value: str | pa.Array) -> pa.Array:
        return pa.repeat(pa.scalar(value, pa.string()), rows) if isinstance(value, str) else value

    columns = [
        spread(source),
        spread(path),
        pa.array(positions, pa.int64()),
        spread(reason),
        spread(column),
        raw.cast(pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=REJECTS)


def no_rejects() -> pa.RecordBatch:
    """Returns a batch of no rejects."""
    return pa.RecordBatch.from_pylist([], schema=REJECTS)


def merge_rejects(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Returns all rejects of a block in one batch, by position."""
    table = pa.Table.from_batches(batches, schema=REJECTS).sort_by("position").combine_chunks()
    return table.to_batches()[0] if table.num_rows else no_rejects()


def absent_column(path: str, column: str, known: Iterable[str], *, what: str = "column") -> SourceError:
    """Returns the error for a declared column that `path` lacks, with the nearest name that it has."""
    names = list(known)
    near = difflib.get_close_matches(column, names, n=1)
    shown = ", ".join(repr(name) for name in names[:20]) + (", ..." if len(names) > 20 else "")
    hint = f"the nearest name is {near[0]!r}" if near else f"its {what}s are {shown or 'none'}"
    return SourceError(f"{path} has no {what} {column!r}: {hint}; correct the name, or give it as 'source_name'")

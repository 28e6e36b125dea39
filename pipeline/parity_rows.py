"""Rows that a model must score alike offline and served: real ones, and real ones with one column made hostile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from preprocessing.dictionaries import as_one_array, decoded
from preprocessing.schema import RawColumn

__all__ = ["hostile_rows", "real_rows"]

_HOSTILE: dict[str, tuple[Any, ...]] = {
    "string": (
        None,
        b"",
        b"never seen before",
        "é́\N{GRINNING FACE}\N{RIGHT-TO-LEFT OVERRIDE}".encode(),
        b"\xff\xfe",
        b"a\x00b",
        b"x" * 10_000,
    ),
    "int64": (None, -1, 0, 2**31, 2**53 + 1, 2**63 - 1, -(2**63) + 1),
    "float32": (None, float("nan"), float("inf"), float("-inf"), 3.4e38, -3.4e38, 1e-45, -0.0),
}


def real_rows(rows: pa.Table, columns: Sequence[RawColumn], *, num_rows: int) -> pa.Table:
    """Returns the columns of `num_rows` rows from all over a table, in the types that `hostile_rows` has."""
    places = np.unique(np.linspace(0, rows.num_rows - 1, min(num_rows, rows.num_rows)).astype(np.int64))
    chosen = rows.select([column.name for column in columns]).take(pa.array(places))
    return pa.table(
        {column.name: decoded(as_one_array(chosen[column.name])).cast(_type_of(column)) for column in columns}
    )


def hostile_rows(real: pa.Table, columns: Sequence[RawColumn]) -> pa.Table:
    """Returns the first row of `real` again and again, each time with another hostile value in one column.

    Values are missing, empty, out of vocabulary, of other scripts, no UTF-8, not finite and extreme; of lists, each of
    these alone, all together, and none.
    """
    parts = [real.slice(0, 0)]
    for place, column in enumerate(columns):
        values = list(_HOSTILE[column.dtype])
        cells = values if column.length is None else [None, [], *([value] for value in values), values * 2]
        rows = real.take(pa.array(np.zeros(len(cells), np.int64)))
        parts.append(rows.set_column(place, column.name, pa.array(cells, _type_of(column))))
    return pa.concat_tables(parts)


def _type_of(column: RawColumn) -> pa.DataType:
    one = {"string": pa.binary(), "int64": pa.int64(), "float32": pa.float64()}[column.dtype]
    return one if column.length is None else pa.list_(one)

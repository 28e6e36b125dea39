"""Lists in cells: text split by a delimiter or written as JSON, Arrow's own list types, single values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.json_values import json_cells, parse_json
from preprocessing.number_text import Converted, Mask

__all__ = ["make_lists", "to_lists"]


def to_lists(values: pa.Array, delimiter: str | None) -> Converted:
    """Returns an array of a list type, and where a cell is no list.

    Args:
        values: a list type; or binary, split by `delimiter`, JSON without one; or scalars, each a list of one.
        delimiter: at least one character.
    """
    kind = values.type
    none = np.zeros(len(values), np.bool_)
    if pa.types.is_binary(kind):
        return (pc.split_pattern(values, delimiter), none) if delimiter else _parse_lists(values)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return values, none
    offsets = np.arange(len(values) + 1, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=values.is_null()), none


def make_lists(elements: pa.Array, rows: npt.NDArray[np.int64], null: Mask) -> pa.Array:
    """Returns lists from their elements and the row of each, rising; null where `null` is set."""
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(null)))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), elements, mask=pa.array(null))


def _parse_lists(text: pa.Array) -> Converted:
    cells = text.dictionary_encode()
    parsed: list[list[bytes | None] | None] = []
    wrong = np.zeros(len(cells.dictionary) + 1, np.bool_)
    for index, cell in enumerate(cells.dictionary.to_pylist()):
        try:
            value = parse_json(cell)
        except ValueError:
            value = ()
        wrong[index] = not (value is None or isinstance(value, list))
        parsed.append(None if wrong[index] else json_cells(value))
    lists = pa.array(parsed, pa.list_(pa.binary())).take(cells.indices)
    return lists, wrong[pc.fill_null(cells.indices, len(parsed)).to_numpy()]

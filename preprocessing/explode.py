"""List impressions: rows with parallel lists of items, prices, clicks become a row for each place in the lists."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.spec import ColumnSpec, SourceSpec

__all__ = ["UNEQUAL_LISTS", "columns_after", "explode_rows", "list_sizes", "without_value"]

UNEQUAL_LISTS = "unequal_lists"
_Ints = npt.NDArray[np.int64]


def columns_after(spec: SourceSpec) -> dict[str, ColumnSpec]:
    """Returns the columns that a source has once it is cleaned: lists that explode are columns of their elements."""
    columns = {
        name: column.model_copy(update={"type": column.type.removeprefix("list<").removesuffix(">")})
        if name in spec.explode
        else column
        for name, column in spec.columns.items()
    }
    if spec.explode_position is not None:
        columns[spec.explode_position] = ColumnSpec(type="int64")
    return columns


def list_sizes(columns: Mapping[str, pa.Array], spec: SourceSpec) -> tuple[_Ints, npt.NDArray[np.bool_]]:
    """Returns the number of places of each row, int64 [rows], and where the lists of a row are of unequal length.

    A missing list is an empty one.
    """
    sizes = [pc.fill_null(pc.list_value_length(columns[name]), 0).to_numpy().astype(np.int64) for name in spec.explode]
    unequal = np.zeros(len(sizes[0]), np.bool_)
    for other in sizes[1:]:
        unequal |= other != sizes[0]
    return sizes[0], unequal


def without_value(lists: pa.Array) -> npt.NDArray[np.bool_]:
    """Returns bool [rows]: where a list holds a null."""
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    rows = np.repeat(np.arange(len(lists)), sizes)
    result = np.zeros(len(lists), np.bool_)
    result[rows[lists.flatten().is_null().to_numpy(zero_copy_only=False)]] = True
    return result


def explode_rows(columns: Mapping[str, pa.Array], spec: SourceSpec, *, sizes: _Ints) -> tuple[list[pa.Array], _Ints]:
    """Returns the columns of `columns_after` with a row for each place, and the row that each came from.

    Args:
        columns: by name; the lists of a row are of one length.
        spec: says which explode.
        sizes: int64 [rows], that length.
    """
    rows = np.repeat(np.arange(len(sizes)), sizes)
    indices = pa.array(rows)
    result = [values.flatten() if name in spec.explode else values.take(indices) for name, values in columns.items()]
    if spec.explode_position is not None:
        result.append(pa.array(np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes), pa.int64()))
    return result, rows

"""Rows by content: hashes, equal rows, look-ups and partition slices, on Arrow columns and without a loop over rows.

A hash says which rows may be equal, an exact comparison which are: a collision costs time, never a row.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.dictionaries import Column, as_one_array, canonical, decoded, known_indices, plain_type
from preprocessing.errors import DataError
from preprocessing.hashing import hash_column, hash_tuples

__all__ = ["duplicate_free", "find", "hash_column", "hash_rows", "key_codes", "partition_slices"]

_Rows: TypeAlias = pa.Table | pa.RecordBatch
_Ints = npt.NDArray[np.int64]


def hash_rows(rows: _Rows, columns: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Returns uint64 [rows], a function of the values of `columns` in this order and nothing else."""
    return hash_tuples([rows.column(name) for name in columns], rows.num_rows)


def duplicate_free(
    table: pa.Table,
    *,
    key: Sequence[str] | None,
    order: Sequence[str],
    hashes: npt.NDArray[np.uint64] | None = None,
) -> _Ints:
    """Returns the rising indices of the rows to keep: one of each set of rows that are equal in `key`.

    Nulls are equal to each other. Of equal rows the first by the columns of `order` stays (nulls last), then the first
    in the table.

    Args:
        table: any columns.
        key: names of the columns that make rows equal; None for all.
        order: names of sortable columns.
        hashes: uint64 [rows], `hash_rows` of the key, if it is known already.
    """
    names = table.column_names if key is None else list(key)
    if hashes is None:
        hashes = hash_rows(table, names)
    by_hash = np.argsort(hashes, kind="stable")
    ordered = hashes[by_hash]
    same = ordered[1:] == ordered[:-1]
    suspects = by_hash[np.append(same, False) | np.concatenate([[False], same])] if len(same) else by_hash[:0]
    if not len(suspects):
        return np.arange(table.num_rows, dtype=np.int64)
    suspects = np.sort(suspects)
    if order:
        suspects = suspects[_sorted_by(_taken(table, list(order), suspects))]
    suspects = suspects[np.argsort(hashes[suspects], kind="stable")]
    group = _groups(_taken(table, names, suspects), hashes[suspects])
    keep = np.ones(table.num_rows, np.bool_)
    keep[np.delete(suspects, np.unique(group, return_index=True)[1])] = False
    return np.flatnonzero(keep)


def _taken(table: pa.Table, names: Sequence[str], rows: _Ints) -> pa.Table:
    """Returns some columns of some rows, without dictionaries and in one piece."""
    index = pa.array(rows)
    return pa.table([decoded(as_one_array(table[name]).take(index)) for name in names], names=list(names))


def _sorted_by(table: pa.Table) -> _Ints:
    keys = [(f"{index}", "ascending") for index in range(table.num_columns)]
    named = table.rename_columns([name for name, _ in keys])
    return pc.sort_indices(named, sort_keys=keys).to_numpy().astype(np.int64)


def _groups(table: pa.Table, hashes: npt.NDArray[np.uint64]) -> _Ints:
    """Returns int64 [rows], equal for equal rows and for no others; `hashes` rise."""
    first = np.concatenate([[True], hashes[1:] != hashes[:-1]])
    leaders = np.flatnonzero(first)[np.cumsum(first) - 1]
    while True:
        differs = ~_equal_rows(table, leaders, np.arange(table.num_rows))
        if not differs.any():
            return leaders
        # A collision: the rows unlike their leader follow the first of their kind instead.
        rows = np.flatnonzero(differs)
        restart = np.concatenate([[True], leaders[rows][1:] != leaders[rows][:-1]])
        leaders[rows] = rows[restart][np.cumsum(restart) - 1]


def _equal_rows(table: pa.Table, left: _Ints, right: _Ints) -> npt.NDArray[np.bool_]:
    result = np.ones(len(left), np.bool_)
    pairs = np.flatnonzero(left != right)
    for column in table.columns:
        values = as_one_array(column)
        same = _equal(values.take(pa.array(left[pairs])), values.take(pa.array(right[pairs])))
        result[pairs] &= same
    return result


def _equal(left: pa.Array, right: pa.Array) -> npt.NDArray[np.bool_]:
    """Returns bool [rows]: whether two arrays of one type agree; null equals null, NaN equals NaN."""
    if pa.types.is_list(left.type) or pa.types.is_large_list(left.type):
        return _equal_lists(left, right)
    same = pc.fill_null(pc.equal(left, right), False)
    if pa.types.is_floating(left.type):
        same = pc.or_(same, pc.fill_null(pc.and_(pc.is_nan(left), pc.is_nan(right)), False))
    return pc.or_(same, pc.and_(left.is_null(), right.is_null())).to_numpy(zero_copy_only=False)


def _equal_lists(left: pa.Array, right: pa.Array) -> npt.NDArray[np.bool_]:
    sizes = [pc.fill_null(pc.list_value_length(side), -1).to_numpy().astype(np.int64) for side in (left, right)]
    result: npt.NDArray[np.bool_] = sizes[0] == sizes[1]
    rows = np.flatnonzero(result & (sizes[0] > 0))
    elements = _equal(left.take(pa.array(rows)).flatten(), right.take(pa.array(rows)).flatten())
    starts = np.cumsum(sizes[0][rows]) - sizes[0][rows]
    result[rows] = np.logical_and.reduceat(elements, starts) if len(rows) else True
    return result


def key_codes(left: _Rows, right: _Rows, on: Sequence[str]) -> tuple[_Ints, _Ints]:
    """Returns int64 [left rows] and [right rows] from 0, equal for equal keys; -1 where a part of the key is null.

    A left key that no right row has is -1 too.

    Raises:
        DataError: if a column has different types on the two sides.
    """
    columns = [_column_codes(left.column(name), right.column(name), name) for name in on]
    return functools.reduce(_combine_codes, columns)


def _column_codes(left: Column, right: Column, name: str) -> tuple[_Ints, _Ints]:
    types = plain_type(left.type), plain_type(right.type)
    if types[0] != types[1]:
        raise DataError(
            f"key column {name!r} is {types[0]} on one side and {types[1]} on the other; declare one type for both"
        )
    present = as_one_array(right)
    if pa.types.is_dictionary(present.type):
        present = canonical(present)  # what no row has is not present
    distinct = pc.drop_null(present.dictionary if pa.types.is_dictionary(present.type) else pc.unique(present))
    return _places(left, distinct), _places(present, distinct)


def _places(values: Column, distinct: pa.Array) -> _Ints:
    """Returns int64 [rows]: the place of each value among `distinct`, -1 for others and nulls."""
    if isinstance(values, pa.ChunkedArray):
        return np.concatenate([np.zeros(0, np.int64), *(_places(chunk, distinct) for chunk in values.chunks)])
    if pa.types.is_dictionary(values.type):
        return np.append(_places(values.dictionary, distinct), -1)[known_indices(values)]
    places = pc.index_in(values, value_set=distinct, skip_nulls=True)
    return pc.fill_null(places, -1).to_numpy().astype(np.int64)


def _combine_codes(first: tuple[_Ints, _Ints], second: tuple[_Ints, _Ints]) -> tuple[_Ints, _Ints]:
    """Returns the codes of pairs: their places among the pairs on the right, so that they stay small."""
    width = int(second[1].max(initial=0)) + 1
    pairs = [np.where((a < 0) | (b < 0), -1, a * width + b) for a, b in zip(first, second, strict=True)]
    distinct = np.unique(pairs[1][pairs[1] >= 0])
    if not len(distinct):
        return np.full_like(pairs[0], -1), np.full_like(pairs[1], -1)
    places = [np.minimum(np.searchsorted(distinct, side), len(distinct) - 1) for side in pairs]
    codes = [np.where(distinct[place] == side, place, -1) for place, side in zip(places, pairs, strict=True)]
    return codes[0], codes[1]


def find(keys: _Rows, table: _Rows, *, on: Sequence[str]) -> _Ints:
    """Returns int64 [key rows]: the index of the last row of `table` with an equal key, else -1.

    A null in a key, on either side, matches nothing.
    """
    wanted, present = key_codes(keys, table, on)
    rows = np.flatnonzero(present >= 0)
    last = np.full(int(present.max(initial=-1)) + 2, -1, np.int64)  # the place at the end, -1, is that of no match
    last[present[rows]] = rows  # of equal places the last assignment stays
    return last[wanted]


def partition_slices(partition_ids: npt.NDArray[np.integer]) -> tuple[_Ints, _Ints]:
    """Returns the order that brings rows of a partition together, and where each partition starts in it.

    Args:
        partition_ids: [rows], from 0.

    Returns:
        int64 [rows], stable; and offsets, int64 [largest id + 2].
    """
    largest = int(partition_ids.max(initial=-1))
    small = partition_ids.astype(np.uint16) if largest < 1 << 16 else partition_ids  # 16 bits sort by radix
    order = np.argsort(small, kind="stable").astype(np.int64)
    counts = np.bincount(partition_ids.astype(np.int64), minlength=largest + 1)
    return order, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

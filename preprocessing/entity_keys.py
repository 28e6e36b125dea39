"""The distinct keys of one or more tables, in an order that follows from their content, and the key of each row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.columnar import hash_rows
from preprocessing.errors import DataError
from preprocessing.raw_values import column_of

__all__ = ["distinct_keys"]

_Ints = npt.NDArray[np.int64]


def distinct_keys(tables: Sequence[pa.Table], on: Sequence[str]) -> tuple[pa.Table, list[_Ints]]:
    """Returns the distinct keys of all tables together, and for each table the place of each row's key among them.

    Args:
        tables: at least one, each with the key columns.
        on: names of the key columns.

    Returns:
        The key columns, sorted by `hash_rows`, then by value; and one int64 [rows] for each table, -1 where a part of
        the key is null.

    Raises:
        DataError: if a column is absent, or differs in type between the tables.
    """
    codes, columns = _column_codes([column_of(table, on[0]) for table in tables], on[0])
    places = [np.arange(len(columns))]
    keys = [columns]
    for name in on[1:]:
        more, column = _column_codes([column_of(table, name) for table in tables], name)
        codes, pairs = _pair_codes(codes, more, width=len(column))
        places = [place[pairs // max(len(column), 1)] for place in places] + [pairs % max(len(column), 1)]
        keys.append(column)
    table = pa.table({name: key.take(pa.array(place)) for name, key, place in zip(on, keys, places, strict=True)})
    order = _order(table, on)
    rank = np.append(np.empty(len(order), np.int64), -1)  # the last place, -1, is that of nulls
    rank[order] = np.arange(len(order))
    codes = rank[codes]
    return table.take(pa.array(order)).combine_chunks(), np.split(codes, np.cumsum([len(t) for t in tables])[:-1])


def _column_codes(parts: Sequence[pa.Array], name: str) -> tuple[_Ints, pa.Array]:
    """Returns the code of each value of all parts, -1 for null, and the distinct values."""
    plain = {part.type.value_type if pa.types.is_dictionary(part.type) else part.type for part in parts}
    if len(plain) > 1:
        found = " and ".join(sorted(str(kind) for kind in plain))
        raise DataError(f"key column {name!r} is {found} in tables that belong together; declare one type for it")
    encoded = pa.chunked_array([_encoded(part) for part in parts]).unify_dictionaries()
    distinct = encoded.chunk(0).dictionary.dictionary_encode()  # a given dictionary may repeat values
    values = np.append(pc.fill_null(distinct.indices, -1).to_numpy().astype(np.int64), -1)
    places = pc.fill_null(pa.chunked_array([chunk.indices for chunk in encoded.chunks]), len(values) - 1).to_numpy()
    return values[places], distinct.dictionary


def _encoded(part: pa.Array) -> pa.DictionaryArray:
    if not pa.types.is_dictionary(part.type):
        # A sum with 0.0 makes one zero of two.
        return (pc.add(part, 0.0) if pa.types.is_floating(part.type) else part).dictionary_encode()
    if part.dictionary.null_count:
        return part.dictionary_decode().dictionary_encode()
    return pa.DictionaryArray.from_arrays(part.indices.cast(pa.int32()), part.dictionary)


def _pair_codes(first: _Ints, second: _Ints, *, width: int) -> tuple[_Ints, _Ints]:
    """Returns the code of each pair, -1 where a part is -1, and the distinct pairs as first * width + second."""
    pairs = pa.array(first * width + second, mask=(first < 0) | (second < 0)).dictionary_encode()
    return pc.fill_null(pairs.indices, -1).to_numpy().astype(np.int64), pairs.dictionary.to_numpy()


def _order(keys: pa.Table, on: Sequence[str]) -> _Ints:
    hashes = hash_rows(keys, on)
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    if not (ordered[1:] == ordered[:-1]).any():
        return order
    named = keys.rename_columns([str(index) for index in range(keys.num_columns)])
    named = named.append_column("hash", pa.array(hashes))
    by = [("hash", "ascending"), *((name, "ascending") for name in named.column_names[:-1])]
    return pc.sort_indices(named, sort_keys=by).to_numpy().astype(np.int64)

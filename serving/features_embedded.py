"""The embedded feature store: a snapshot mapped into memory, keys found by their hash.

A few keys at a time are answered in plain Python from views of the mapped buffers, many at a time by numpy and Arrow:
below `_FEW` keys the fixed price of an array operation is more than the whole answer.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.columnar import hash_rows
from preprocessing.errors import ArtefactError, CorruptError
from serving.features_hash import Key, hash_key
from serving.features_layout import KeySet, KeyType, Layout
from serving.features_snapshot import HASH_COLUMN, open_layout

__all__ = ["EmbeddedStore", "Record", "key_table"]

# What is known of a key: the numbers of its counts and rates, then its lists, in the order of the key set.
Record: TypeAlias = tuple[Any, ...]

_FEW = 24
_Ints = npt.NDArray[np.int64]
_ARROW: dict[KeyType, pa.DataType] = {"string": pa.binary(), "int64": pa.int64(), "float64": pa.float64()}


class EmbeddedStore:
    """Look-ups in one snapshot; safe for use by several threads at once."""

    def __init__(self, folder: Path, *, verify: bool = True) -> None:
        """Maps a snapshot.

        Args:
            folder: of the snapshot.
            verify: whether checksums are compared, which reads every byte once.

        Raises:
            ArtefactError: if there is no such snapshot; as CorruptError, if its content is not what was written.
        """
        self.layout = open_layout(folder, verify=verify)
        self._tables = [_KeyTable(folder / key_set.file, key_set) for key_set in self.layout.key_sets]

    def fetch(self, wanted: Sequence[Sequence[Key]]) -> tuple[Layout, list[list[Record | None]]]:
        """Returns the layout and, for the keys of each key set, what is known of them; None for nothing."""
        return self.layout, [table.records(keys) for table, keys in zip(self._tables, wanted, strict=True)]

    def rows(self, key_set: int, start: int, stop: int) -> tuple[list[Key], list[Record]]:
        """Returns some keys of a key set in the order of the file, and what is known of each."""
        table = self._tables[key_set]
        places = np.arange(start, min(stop, table.num_rows), dtype=np.int64)
        return table.keys(places), table.at(places)

    def close(self) -> None:
        """Does nothing: the memory is unmapped with the last view of it."""


def key_table(keys: Sequence[Key], key_set: KeySet) -> pa.Table:
    """Returns keys as Arrow columns."""
    columns = zip(*keys, strict=True) if keys else [() for _ in key_set.key]
    arrays = [pa.array(column, _ARROW[kind]) for column, kind in zip(columns, key_set.types, strict=True)]
    return pa.table(arrays, names=list(key_set.key))


class _KeyTable:
    """The state of one key set."""

    def __init__(self, path: Path, key_set: KeySet) -> None:
        try:
            batch = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
        except (OSError, pa.ArrowException) as error:
            raise ArtefactError(f"{path} cannot be mapped: {error}; publish the features anew") from error
        self.num_rows = batch.num_rows
        self._key_set = key_set
        self._hashes = batch[HASH_COLUMN].to_numpy()
        self._hash_view = self._hashes.data
        self._keys = [_values(batch[name]) for name in key_set.key]
        self._arrays = {name: batch[name] for name in key_set.key}
        self._columns: list[_Numbers | _Lists] = [_Numbers(batch[one.name]) for one in key_set.scalars]
        self._columns += [_Lists(batch[name]) for name in key_set.lists()]
        if self.num_rows and hash_key(self._key(0)) != self._hash_view[0]:
            raise CorruptError(f"{path} is sorted by another hash than this release looks up by; publish anew")

    def _key(self, place: int) -> Key:
        return tuple(part.one(place) for part in self._keys)

    def keys(self, places: _Ints) -> list[Key]:
        """Returns the keys at some places."""
        return list(zip(*(part.many(places) for part in self._keys), strict=True))

    def records(self, keys: Sequence[Key]) -> list[Record | None]:
        """Returns what is known of each key."""
        if len(keys) <= _FEW:
            found = map(self._find, keys)
            return [None if place < 0 else tuple(one.one(place) for one in self._columns) for place in found]
        places = self._find_many(keys)
        known = np.flatnonzero(places >= 0)
        records: list[Record | None] = [None] * len(keys)
        for place, record in zip(known.tolist(), self.at(places[known]), strict=True):
            records[place] = record
        return records

    def at(self, places: _Ints) -> list[Record]:
        """Returns the records at some places."""
        if not self._columns:
            return [()] * len(places)
        return list(zip(*(column.many(places) for column in self._columns), strict=True))

    def _find(self, key: Key) -> int:
        wanted = hash_key(key)
        place = bisect.bisect_left(self._hash_view, wanted)
        while place < self.num_rows and self._hash_view[place] == wanted:
            if self._key(place) == key:
                return place
            place += 1
        return -1

    def _find_many(self, keys: Sequence[Key]) -> _Ints:
        table = key_table(keys, self._key_set)
        wanted = hash_rows(table, self._key_set.key)
        order = np.argsort(wanted)  # a search in order stays in cache
        places = np.empty(len(keys), np.int64)
        places[order] = np.searchsorted(self._hashes, wanted[order])
        inside = np.minimum(places, max(self.num_rows - 1, 0))
        places = np.where(self._hashes[inside] == wanted, inside, -1) if self.num_rows else np.full(len(keys), -1)
        candidates = np.flatnonzero(places >= 0)
        index = pa.array(places[candidates])
        same = np.ones(len(candidates), np.bool_)
        for name in self._key_set.key:
            given = table[name].combine_chunks().take(pa.array(candidates))
            held = self._arrays[name].take(index).cast(given.type)
            same &= pc.equal(held, given).to_numpy(zero_copy_only=False)
        for place in candidates[~same].tolist():  # two keys of one hash
            places[place] = self._find(keys[place])
        return places


class _Numbers:
    """A column of numbers."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array.to_numpy()
        self._view = self._array.data

    def one(self, place: int) -> Any:
        """Returns the value at a place."""
        return self._view[place]

    def many(self, places: _Ints) -> list[Any]:
        """Returns the values at some places."""
        return self._array[places].tolist()

    def range(self, start: int, stop: int) -> list[Any]:
        """Returns the values from `start` to `stop`."""
        return self._view[start:stop].tolist()


class _Texts:
    """A column of bytes."""

    def __init__(self, array: pa.LargeBinaryArray) -> None:
        self._array = array
        _, offsets, data = array.buffers()
        self._offsets = np.frombuffer(offsets, np.int64)[array.offset :].data if len(array) else None
        self._data = memoryview(data if data is not None else b"")

    def one(self, place: int) -> bytes:
        """Returns the value at a place."""
        offsets = self._offsets
        if offsets is None:
            raise IndexError(place)
        return bytes(self._data[offsets[place] : offsets[place + 1]])

    def many(self, places: _Ints) -> list[bytes]:
        """Returns the values at some places."""
        return self._array.take(pa.array(places)).to_pylist()


class _Coded:
    """Bytes by a dictionary."""

    def __init__(self, array: pa.DictionaryArray) -> None:
        self._codes = _Numbers(array.indices)
        self._texts = _Texts(array.dictionary)

    def many(self, places: _Ints) -> list[bytes]:
        """Returns the values at some places."""
        return self._texts.many(np.array(self._codes.many(places), np.int64))

    def range(self, start: int, stop: int) -> list[bytes]:
        """Returns the values from `start` to `stop`."""
        return [self._texts.one(code) for code in self._codes.range(start, stop)]


class _Lists:
    """A column of lists."""

    def __init__(self, array: pa.LargeListArray) -> None:
        self._offsets = array.offsets.to_numpy()
        self._view = self._offsets.data
        is_text = pa.types.is_dictionary(array.type.value_type)
        self._values = _Coded(array.values) if is_text else _Numbers(array.values)

    def one(self, place: int) -> list[Any]:
        """Returns the list at a place."""
        return self._values.range(self._view[place], self._view[place + 1])

    def many(self, places: _Ints) -> list[list[Any]]:
        """Returns the lists at some places."""
        starts = self._offsets[places]
        lengths = self._offsets[places + 1] - starts
        ends = np.cumsum(lengths)
        flat = self._values.many(np.arange(lengths.sum()) + np.repeat(starts - (ends - lengths), lengths))
        return [flat[start:stop] for start, stop in itertools.pairwise([0, *ends.tolist()])]


def _values(array: pa.Array) -> _Numbers | _Texts:
    return _Texts(array) if pa.types.is_large_binary(array.type) else _Numbers(array)

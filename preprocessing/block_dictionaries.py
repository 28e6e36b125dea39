"""The dictionaries of blocks brought together once, however many shards read slices of the blocks.

Each block of a log has dictionaries of its own; a shard takes some rows of every block. To merge words for each shard
anew costs more than all else that is done with its rows. Merged once for all blocks, a shard's rows are index
arithmetic. The words of all blocks must fit in memory for it: columns with too many are merged by each shard.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from preprocessing.dictionaries import as_one_array, copied

__all__ = ["BlockDictionaries"]

# Of the words of all blocks: those of a text without repetition pass the first at some million rows.
_COLUMN_BYTES = 64 << 20
_TOTAL_BYTES = 384 << 20
_KEPT = 2  # sets of files: two periods may be at work side by side


class BlockDictionaries:
    """Merged dictionaries of the columns of a set of files, for all threads of a process."""

    def __init__(self, *, column_bytes: int = _COLUMN_BYTES, total_bytes: int = _TOTAL_BYTES) -> None:
        self._column_bytes, self._total_bytes = column_bytes, total_bytes
        self._lock = threading.Lock()
        self._known: dict[tuple[str, ...], dict[str, dict[str, pa.DictionaryArray]]] = {}

    def column(self, name: str, slices: Sequence[tuple[str, pa.Array]], files: Sequence[str]) -> pa.Array:
        """Returns slices of a column, one after another, as one array.

        Args:
            name: of the column.
            slices: (file, rows of it); each refers to the whole dictionary of its block.
            files: all files whose dictionaries are worth merging now; those of the slices are among them.
        """
        merged = self._of(tuple(files)).get(name)
        if merged is None:
            return as_one_array(pa.chunked_array([copied(piece) for _, piece in slices]))
        return _renumbered(slices, merged)

    def _of(self, files: tuple[str, ...]) -> dict[str, dict[str, pa.DictionaryArray]]:
        with self._lock:
            if files not in self._known:
                while len(self._known) >= _KEPT:
                    del self._known[next(iter(self._known))]
                self._known[files] = self._merge(files)
            return self._known[files]

    def _merge(self, files: Sequence[str]) -> dict[str, dict[str, pa.DictionaryArray]]:
        """Returns, by column and file, the word at each place of the file's dictionary, all in one dictionary."""
        batches = [pa.ipc.open_file(pa.memory_map(path)).get_batch(0) for path in files]
        names = [field.name for field in batches[0].schema if pa.types.is_dictionary(field.type)] if batches else []
        words = {name: [batch.column(name).dictionary for batch in batches] for name in names}
        sizes = {name: sum(one.nbytes for one in members) for name, members in words.items()}
        merged, total_bytes = {}, 0
        for name in sorted(sizes, key=lambda name: sizes[name]):
            total_bytes += sizes[name]
            if sizes[name] > self._column_bytes or total_bytes > self._total_bytes:
                break
            merged[name] = dict(zip(files, _unified(words[name]), strict=True))
        return merged


def _unified(dictionaries: Sequence[pa.Array]) -> list[pa.DictionaryArray]:
    places = [pa.DictionaryArray.from_arrays(_numbers(len(words)), words) for words in dictionaries]
    if len(places) == 1:
        return [copied(places[0])]
    return pa.chunked_array(places).unify_dictionaries().chunks


def _numbers(count: int) -> pa.Array:
    return pa.array(np.arange(count, dtype=np.int32))


def _renumbered(slices: Sequence[tuple[str, pa.Array]], merged: dict[str, pa.DictionaryArray]) -> pa.Array:
    codes = [merged[path].indices.take(piece.indices) for path, piece in slices]
    (path, _), *_ = slices
    return pa.DictionaryArray.from_arrays(pa.concat_arrays(codes), merged[path].dictionary)

"""What the ingested files of each source hold, by period, and where in them the rows of a shard lie."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.block_dictionaries import BlockDictionaries
from preprocessing.dictionaries import as_one_array, copied
from preprocessing.ingest import BUCKETS, block_path, merge_period
from preprocessing.manifest import read_manifest

__all__ = ["Log", "Range", "num_shards", "read_ranges"]

# A run of rows in a file of blocks: (file, first row, number of rows).
Range = tuple[str, int, int]


@dataclasses.dataclass(frozen=True)
class Log:
    """The ingested files of one source, in order.

    Attributes:
        keys: of each unit, its key.
        contents: of each unit, the content of its manifest.
        periods: of each period, the summary of its rows in all units.
        slices: period, bucket, file, start, rows; sorted by period, then bucket.
    """

    keys: tuple[str, ...]
    contents: tuple[dict[str, Any], ...]
    periods: dict[int, dict[str, int]]
    files: tuple[str, ...]
    slices: np.ndarray

    @classmethod
    def load(cls, root: Path, keys: Sequence[str]) -> Log:
        """Returns the log made of finished units below `root`."""
        contents = [read_manifest(root / key)["content"] for key in keys]
        periods: dict[int, dict[str, int]] = {}
        for content in contents:
            for number, found in content["periods"].items():
                periods[int(number)] = merge_period(periods.get(int(number)), found)
        files: list[str] = []
        parts = []
        for key in keys:
            table = pq.read_table(root / key / "slices.parquet")
            columns = [
                table[name].to_numpy().astype(np.int64) for name in ("period", "bucket", "block", "start", "rows")
            ]
            columns[2] = columns[2] + len(files)
            parts.append(np.stack(columns, axis=1))
            num_blocks = len(np.unique(parts[-1][:, 2]))
            files += [block_path(root / key, block) for block in range(num_blocks)]
        slices = np.concatenate(parts) if parts else np.zeros((0, 5), np.int64)
        order = np.lexsort((slices[:, 3], slices[:, 2], slices[:, 1], slices[:, 0]))
        return cls(tuple(keys), tuple(contents), dict(sorted(periods.items())), tuple(files), slices[order])

    def ranges(self, periods: Iterable[int], *, shard: int = 0, shards: int = 1) -> list[Range]:
        """Returns where the rows of one of `shards` equal shares of the buckets lie, neighbours as one."""
        return [piece for period in periods for piece in self._ranges_of(period, shard, shards)]

    def _ranges_of(self, period: int, shard: int, shards: int) -> list[Range]:
        first, last = np.searchsorted(self.slices[:, 0], [period, period + 1])
        rows = self.slices[first:last]
        rows = rows[rows[:, 1] * shards // BUCKETS == shard]
        rows = rows[np.lexsort((rows[:, 3], rows[:, 2]))]
        if not len(rows):
            return []
        follows = (rows[1:, 2] == rows[:-1, 2]) & (rows[1:, 3] == rows[:-1, 3] + rows[:-1, 4])
        starts = np.flatnonzero(np.concatenate([[True], ~follows]))
        sizes = np.add.reduceat(rows[:, 4], starts)
        return [
            (self.files[int(block)], int(start), int(size))
            for block, start, size in zip(rows[starts, 2], rows[starts, 3], sizes, strict=True)
        ]

    def all_ranges(self) -> list[Range]:
        """Returns all rows in the order of reading: what a side table is."""
        return self.ranges(self.periods)

    def overlapping(self, first_ms: int, last_ms: int) -> list[int]:
        """Returns the periods with events between two times, both included."""
        return [
            number
            for number, found in self.periods.items()
            if found["last_ms"] >= first_ms and found["first_ms"] <= last_ms
        ]

    def digest_of(self, periods: Iterable[int]) -> list[tuple[int, int, int]]:
        """Returns what tells the rows of periods apart: (period, rows, digest), whatever files they lie in."""
        return [(p, self.periods[p]["rows"], self.periods[p]["digest"]) for p in periods if p in self.periods]


def num_shards(num_rows: int, rows_per_shard: int) -> int:
    """Returns how many shards a period of so many rows is stored in: 1 to `BUCKETS`."""
    return max(1, min(BUCKETS, -(-num_rows // rows_per_shard)))


def read_ranges(
    ranges: Sequence[Range],
    *,
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    dictionaries: BlockDictionaries | None = None,
    files: Sequence[str] = (),
) -> pa.Table:
    """Returns the rows of ranges, one after another, each column in one piece.

    Args:
        ranges: from `Log`.
        schema: of the table if there are no ranges.
        columns: names to keep; None for all.
        dictionaries: merged ones, to be used again for other ranges of the same files.
        files: all files that `dictionaries` is to know; those of the ranges are among them.
    """
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns])
    slices = [
        (path, batch.slice(start, rows))
        for path, members in itertools.groupby(ranges, key=lambda piece: piece[0])
        for batch in [pa.ipc.open_file(pa.memory_map(path)).get_batch(0)]
        for _, start, rows in members
    ]
    if not slices:
        return schema.empty_table()
    arrays = []
    for name in schema.names:
        pieces = [(path, batch.column(name)) for path, batch in slices]
        if dictionaries is not None and files and pa.types.is_dictionary(pieces[0][1].type):
            arrays.append(dictionaries.column(name, pieces, files))
        else:
            arrays.append(_together([piece for _, piece in pieces]))
    return pa.table(arrays, names=schema.names)


def _together(pieces: Sequence[pa.Array]) -> pa.Array:
    """Returns the rows alone: what refers to a mapped file keeps its pages in memory, and all blocks are many."""
    if len(pieces) == 1 or pa.types.is_dictionary(pieces[0].type):
        return as_one_array(pa.chunked_array([copied(piece) for piece in pieces]))
    return pa.concat_arrays(pieces)

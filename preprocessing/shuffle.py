"""The columnar shuffle: rows of one key brought together, without any row ever being a Beam element.

Each incoming batch is sorted by (group, bucket) once and cut into slices; a slice travels under its group and
bucket. Groups are days, or a single one. When all slices are known, the buckets of a group are folded into as many
partitions as its number of rows asks for: the partitions of a day follow from that day's rows alone, however many
days are processed with it.

Two carriers: `files` spills the sorted batch to one Arrow file in the job's temporary folder and sends only
(path, first row, rows) through `GroupByKey`; `bytes` sends the slice itself, for engines whose workers share no
storage. A file is named anew for each attempt and announced only once it is complete, so a retry doubles nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import apache_beam as beam
import numpy as np
import pyarrow as pa

from preprocessing.columnar import partition_slices
from preprocessing.dictionaries import canonical, one_piece
from preprocessing.runner import RecordBatchCoder

__all__ = [
    "BUCKETS",
    "ColumnarShuffle",
    "Partition",
    "Slice",
    "cut",
    "num_partitions",
    "read_slices",
    "read_spilled",
    "spill",
]

BUCKETS = 256
_CODER = RecordBatchCoder()

Key = tuple[int, int]
Carrier = Literal["files", "bytes"]
GroupBy = Callable[[str, pa.RecordBatch], tuple[pa.RecordBatch, np.ndarray, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Slice:
    """Some rows of one source: in a file from `start` on, or in `payload`."""

    source: str
    num_rows: int
    path: str = ""
    start: int = 0
    payload: bytes = b""

    def to_tuple(self) -> tuple[str, int, str, int, bytes]:
        """Returns the plain form that travels: Beam encodes tuples without pickle."""
        return self.source, self.num_rows, self.path, self.start, self.payload


@dataclasses.dataclass(frozen=True)
class Partition:
    """All slices of one partition of one group."""

    group: int
    index: int
    slices: tuple[Slice, ...]


def cut(
    element: tuple[str, pa.RecordBatch], *, group_by: GroupBy, carrier: Carrier, folder: str
) -> Iterator[tuple[Key, Any]]:
    """Sorts a batch by (group, bucket) and yields its slices under them.

    Args:
        element: source and batch.
        group_by: see `ColumnarShuffle`.
        carrier: see the module.
        folder: where the sorted batch goes if the carrier is files.
    """
    source, batch = element
    batch, groups, hashes = group_by(source, batch)
    if batch.num_rows == 0:
        return
    keys = groups.astype(np.int64) * BUCKETS + (hashes % np.uint64(BUCKETS)).astype(np.int64)
    distinct, codes = np.unique(keys, return_inverse=True)
    order, offsets = partition_slices(codes)
    batch = batch.take(pa.array(order))
    path = spill(batch, folder) if carrier == "files" else ""
    for key, start, end in zip(distinct, offsets[:-1], offsets[1:], strict=True):
        payload = b"" if path else _payload(batch.slice(start, end - start))
        piece = Slice(source, int(end - start), path, int(start), payload)
        yield divmod(int(key), BUCKETS), piece.to_tuple()


def _payload(batch: pa.RecordBatch) -> bytes:
    """Returns the bytes of a slice, without the words of dictionaries that it does not use."""
    columns = [canonical(column) if pa.types.is_dictionary(column.type) else column for column in batch.columns]
    return _CODER.encode(pa.RecordBatch.from_arrays(columns, schema=batch.schema))


class ColumnarShuffle(beam.PTransform):
    """(source, RecordBatch), from one collection or a tuple of them, to `Partition`: a PTransform.

    Args:
        group_by: from (source, batch) to (batch, group of each row, hash of each row's key); it may repeat rows
            (an action that can belong to one of two days) or leave some out.
        sized_by: the source whose rows decide how many partitions a group has.
        rows_per_partition: about the largest number of those rows in a partition.
        carrier: see the module.
        folder: where spilled files go; removed by the owner of the job.
    """

    def __init__(
        self, *, group_by: GroupBy, sized_by: str, rows_per_partition: int, carrier: Carrier, folder: Path
    ) -> None:
        super().__init__()
        self._cut = functools.partial(cut, group_by=group_by, carrier=carrier, folder=str(folder))
        self._sized_by = sized_by
        self._rows = rows_per_partition

    def expand(self, pcolls: beam.PCollection | tuple[beam.PCollection, ...]) -> beam.PCollection:
        """Builds the graph: cut, count rows by group, fold buckets, group.

        Each input is cut where its batches are made, and the reshuffle keeps it so: batches that crossed a stage would
        be encoded, and Beam may flush a half-written element while Arrow encodes without the interpreter lock.
        """
        inputs = pcolls if isinstance(pcolls, tuple) else (pcolls,)
        cut = tuple(pcoll | f"Cut{i}" >> beam.FlatMap(self._cut) for i, pcoll in enumerate(inputs))
        slices = cut | "Slices" >> beam.Flatten() | "Materialise" >> beam.Reshuffle()
        counts = (
            slices
            | "RowsOfSlice" >> beam.Map(_rows_of_group, self._sized_by)
            | "RowsOfGroup" >> beam.CombinePerKey(sum)
        )
        return (
            slices
            | "Fold" >> beam.Map(_fold, beam.pvalue.AsDict(counts), self._rows)
            | "Group" >> beam.GroupByKey()
            | "Partition" >> beam.Map(_to_partition)
        )


def _rows_of_group(element: tuple[Key, Any], source: str) -> tuple[int, int]:
    (group, _), piece = element
    return group, piece[1] if piece[0] == source else 0


def _fold(element: tuple[Key, Any], counts: Mapping[int, int], rows_per_partition: int) -> tuple[Key, Any]:
    (group, bucket), piece = element
    return (group, bucket * num_partitions(counts[group], rows_per_partition) // BUCKETS), piece


def num_partitions(num_rows: int, rows_per_partition: int) -> int:
    """Returns how many partitions a group of so many rows is cut into: 1 to `BUCKETS`."""
    return max(1, min(BUCKETS, -(-num_rows // rows_per_partition)))


def _to_partition(element: tuple[Key, Iterable[Any]]) -> Partition:
    (group, index), pieces = element
    return Partition(group, index, tuple(sorted((Slice(*piece) for piece in pieces), key=Slice.to_tuple)))


def read_slices(slices: Sequence[Slice], *, source: str, schema: pa.Schema | None) -> pa.Table:
    """Returns the rows of one source in a partition, in no meaningful order; an empty table if there are none.

    `schema` may be None where there are slices of the source.
    """
    batches = []
    for path, start, num_rows, payload in _joined_ranges([piece for piece in slices if piece.source == source]):
        batches.append(read_spilled(path).slice(start, num_rows) if path else _CODER.decode(payload))
    return one_piece(pa.Table.from_batches(batches, schema=schema))


def _joined_ranges(slices: Sequence[Slice]) -> Iterator[tuple[str, int, int, bytes]]:
    """Neighbouring buckets of one file lie side by side in it: reads them as one range."""
    pending: Slice | None = None
    for piece in sorted(slices, key=lambda piece: (piece.path, piece.start)):
        if pending is not None and piece.path and _follows(piece, pending):
            pending = dataclasses.replace(pending, num_rows=pending.num_rows + piece.num_rows)
            continue
        if pending is not None:
            yield pending.path, pending.start, pending.num_rows, pending.payload
        pending = piece
    if pending is not None:
        yield pending.path, pending.start, pending.num_rows, pending.payload


def _follows(piece: Slice, before: Slice) -> bool:
    return piece.path == before.path and piece.start == before.start + before.num_rows


def spill(batch: pa.RecordBatch, folder: str) -> str:
    """Writes a batch to a new Arrow file in `folder`; returns its path, complete."""
    path = Path(folder) / f"{uuid.uuid4().hex}.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return str(path)


def read_spilled(path: str) -> pa.RecordBatch:
    """Returns the batch of a spilled file, mapped rather than copied."""
    return pa.ipc.open_file(pa.memory_map(path)).get_batch(0)

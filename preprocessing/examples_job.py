"""First Beam job: logs to labelled rows in Parquet, a file for each day (or period), split and shard, in record order.

    files -> read, clean -> shuffle by (period, key) -> join, label, split -> rows/<split>/<period>-<shard>.parquet
                       \\-> rejects/<source>-<file>.parquet

What it writes is an artefact of its own: the raw joined rows that records, gate, parity and warm-up refer to.
"""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.cleaning import arrow_schema
from preprocessing.columnar import duplicate_free, hash_rows
from preprocessing.examples_summary import ExamplesSummary, check_summary, summarise
from preprocessing.joining import MS_PER_S, join_partition
from preprocessing.manifest import write_json
from preprocessing.reading_job import PROGRESS_FOLDER, REJECTS_FOLDER, ReadFiles, cleaned_sources, event_sources
from preprocessing.runner import follow_progress, plain_errors, report_rows
from preprocessing.shuffle import Carrier, ColumnarShuffle, Partition, read_slices, read_spilled, spill
from preprocessing.spec import SPLITS, DataSpec, SourceSpec
from preprocessing.splits import day_of, period_name, period_of

__all__ = ["ROWS_FOLDER", "build_examples"]

ROWS_FOLDER = "rows"
WITHOUT_PERIOD = 0
_EVENT = tuple[str, pa.RecordBatch]


def build_examples(
    spec: DataSpec,
    files: Mapping[str, Sequence[str]],
    *,
    folder: Path,
    rows_per_shard: int,
    as_of_ms: int,
    pipeline: Callable[[], beam.Pipeline],
    carrier: Carrier = "files",
    observe: Callable[[int], None] = lambda rows: None,
) -> ExamplesSummary:
    """Runs the job into `folder` (a temporary one; the caller completes it) and returns its summary.

    Args:
        spec: the data section of the config.
        files: of each source, its files in order.
        folder: where rows and rejects go; `scratch` below it is the caller's to remove.
        rows_per_shard: about the largest number of impressions of a period in one file.
        as_of_ms: the time of the run; later event times, beyond the tolerance, are rejects.
        pipeline: makes the Beam pipeline.
        carrier: how the shuffle moves rows.
        observe: told the number of rows that have passed the reader and the join, as it grows.

    Raises:
        DataError: nothing was read, too much was rejected, or a split came out empty or of one class.
    """
    for name in (ROWS_FOLDER, REJECTS_FOLDER, "scratch/spill", "scratch/parts", PROGRESS_FOLDER):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        (folder / ROWS_FOLDER / split).mkdir(exist_ok=True)
    sources = cleaned_sources(spec, as_of_ms=as_of_ms)
    with plain_errors(), follow_progress(folder / PROGRESS_FOLDER, observe), pipeline() as p:
        _graph(p, spec, sources, files, folder=folder, rows_per_shard=rows_per_shard, carrier=carrier)
    reads = json.loads((folder / "scratch" / "parts" / "reads.json").read_bytes())
    partitions = json.loads((folder / "scratch" / "parts" / "partitions.json").read_bytes())
    summary = summarise(reads, partitions)
    check_summary(summary, spec, rejects=folder / REJECTS_FOLDER)
    return summary


def _graph(
    p: beam.Pipeline,
    spec: DataSpec,
    sources: dict[str, SourceSpec],
    files: Mapping[str, Sequence[str]],
    *,
    folder: Path,
    rows_per_shard: int,
    carrier: Carrier,
) -> None:
    parts = folder / "scratch" / "parts"
    shuffle = functools.partial(
        ColumnarShuffle,
        sized_by=spec.impressions,
        rows_per_partition=rows_per_shard,
        carrier=carrier,
        folder=folder / "scratch" / "spill",
    )
    events = {name: files[name] for name in event_sources(spec)}
    sides = {join.source: files[join.source] for join in spec.joins}
    numbered, reads = p | "Events" >> ReadFiles(events, sources=sources, folder=folder)
    batches = numbered | "Batches" >> beam.Map(_event).with_output_types(_EVENT)
    results = []
    key = spec.sources[spec.impressions].duplicates
    if isinstance(key, tuple):
        schema = arrow_schema(sources[spec.impressions])
        batches, counts = _without_duplicates(batches, spec, schema, key, shuffle)
        results.append(counts)
    side_batches, side_reads = p | "Sides" >> ReadFiles(sides, sources=sources, folder=folder)
    side_files = beam.pvalue.AsList(
        side_batches | "SpillSides" >> beam.Map(_spill_side, str(folder / "scratch" / "spill"))
    )
    joined = (
        batches
        | "Shuffle" >> shuffle(group_by=functools.partial(_by_period_and_key, spec=spec))
        | "Join" >> beam.ParDo(_Join(spec=spec, sources=sources, folder=str(folder)), side_files)
    )
    _ = (*results, joined) | "Results" >> beam.Flatten() | "Partitions" >> _ToJson(parts / "partitions.json")
    _ = (reads, side_reads) | "AllReads" >> beam.Flatten() | "Reads" >> _ToJson(parts / "reads.json")


def _event(element: tuple[str, int, int, pa.RecordBatch]) -> tuple[str, pa.RecordBatch]:
    return element[0], element[3]


def _without_duplicates(
    batches: beam.PCollection, spec: DataSpec, schema: pa.Schema, key: tuple[str, ...], shuffle: Any
) -> tuple[tuple[beam.PCollection, beam.PCollection], beam.PCollection]:
    """Duplicates by a declared key can lie on different days: a shuffle of their own brings them together.

    Returns the batches that are left and the counts of what went.
    """
    others = batches | "Actions" >> beam.Filter(lambda element: element[0] != spec.impressions)
    outputs = (
        batches
        | "Impressions" >> beam.Filter(lambda element: element[0] == spec.impressions)
        | "ShuffleDuplicates" >> shuffle(group_by=functools.partial(_by_key, key=key))
        | "KeepOne" >> beam.ParDo(_KeepOne(spec, schema, key)).with_outputs("counts", main="batches")
    )
    return (others, outputs.batches), outputs.counts


def _by_key(
    _source: str, batch: pa.RecordBatch, *, key: Sequence[str]
) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray]:
    return batch, np.zeros(batch.num_rows, np.int64), hash_rows(batch, key)


class _KeepOne(beam.DoFn):
    """The earliest row of each value of a declared key; of equal times, the first by content."""

    def __init__(self, spec: DataSpec, schema: pa.Schema, key: tuple[str, ...]) -> None:
        self._source = spec.impressions
        self._order = () if spec.roles.event_time is None else (spec.roles.event_time,)
        self._schema = schema
        self._key = key

    def process(self, element: Partition) -> Iterator[Any]:
        table = read_slices(element.slices, source=self._source, schema=self._schema)
        table = table.take(pa.array(np.argsort(hash_rows(table, table.column_names), kind="stable")))
        kept = duplicate_free(table, key=self._key, order=self._order)
        yield beam.pvalue.TaggedOutput("counts", {"counts": {"duplicates": table.num_rows - len(kept)}, "shards": []})
        for batch in table.take(pa.array(kept)).combine_chunks().to_batches():
            yield self._source, batch


def _by_period_and_key(
    source: str, batch: pa.RecordBatch, *, spec: DataSpec
) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray]:
    """Groups are periods; an action is repeated in each that holds an impression it can belong to."""
    actions = [label.action for label in spec.labels if label.action is not None]
    hashes = hash_rows(batch, actions[0].key if actions else _user_key(spec, batch))
    clock = spec.roles.event_time if source == spec.impressions else spec.sources[source].event_time
    if spec.roles.event_time is None or clock is None:
        return batch, np.full(batch.num_rows, WITHOUT_PERIOD, np.int64), hashes
    times = batch.column(clock).to_numpy(zero_copy_only=False).astype(np.int64)
    last = _periods(times, spec)
    if source == spec.impressions:
        return batch, last, hashes
    window_ms = max(round(action.window_s * MS_PER_S) for action in actions if action.source == source)
    first = _periods(times - window_ms, spec)
    repeats = last - first + 1
    index = np.repeat(np.arange(batch.num_rows), repeats)
    offsets = np.arange(len(index)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    return batch.take(pa.array(index)), first[index] + offsets, hashes[index]


def _user_key(spec: DataSpec, batch: pa.RecordBatch) -> Sequence[str]:
    """Without actions to join, rows of one user stay together; without a user, any spread by content will do."""
    for role in (spec.roles.user, spec.roles.row_id):
        if role is not None and role in batch.schema.names:
            return (role,)
    return tuple(batch.schema.names)


def _periods(times_ms: np.ndarray, spec: DataSpec) -> np.ndarray:
    return period_of(day_of(times_ms, time_zone=spec.time_zone), spec.period)


def _spill_side(element: tuple[str, int, int, pa.RecordBatch], folder: str) -> tuple[str, int, int, str]:
    source, number, block, batch = element
    return source, number, block, spill(batch, folder)


class _Join(beam.DoFn):
    """Joins one partition and writes a Parquet file for each split that has rows."""

    def __init__(self, *, spec: DataSpec, sources: dict[str, SourceSpec], folder: str) -> None:
        self._spec = spec
        self._schemas = {name: arrow_schema(source) for name, source in sources.items()}
        self._folder = folder
        self._sides: list[pa.Table] | None = None

    def process(self, element: Partition, side_files: Sequence[tuple[str, int, int, str]]) -> Iterator[Any]:
        spec = self._spec
        if self._sides is None:
            self._sides = [self._side(join.source, side_files) for join in spec.joins]
        names = [name for name in event_sources(spec) if name != spec.impressions]
        impressions = self._rows(element, spec.impressions)
        if impressions.num_rows == 0:  # actions alone: there is nothing here to label
            return
        joined = join_partition(
            impressions, spec=spec, actions={name: self._rows(element, name) for name in names}, sides=self._sides
        )
        period = "all" if spec.roles.event_time is None else period_name(element.group, spec.period)
        shards = []
        for split, rows in joined.rows.items():
            if rows.num_rows:
                name = f"{ROWS_FOLDER}/{split}/{period}-{element.index:05d}.parquet"
                _write_parquet(rows, Path(self._folder) / name)
                shards.append((split, period, name, rows.num_rows))
        report_rows(f"{self._folder}/{PROGRESS_FOLDER}", impressions.num_rows)
        yield {"counts": joined.counts, "shards": shards}

    def _rows(self, partition: Partition, source: str) -> pa.Table:
        return read_slices(partition.slices, source=source, schema=self._schemas[source])

    def _side(self, source: str, files: Sequence[tuple[str, int, int, str]]) -> pa.Table:
        paths = [path for name, _, _, path in sorted(files) if name == source]
        batches = [read_spilled(path) for path in paths]
        return pa.Table.from_batches(batches, schema=self._schemas[source]).combine_chunks()


def _write_parquet(table: pa.Table, path: Path) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    pq.write_table(table, temporary, compression="zstd", compression_level=1, row_group_size=1 << 17)
    temporary.replace(path)


class _ToJson(beam.PTransform):
    """Writes all elements, plain values, as one JSON list."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Builds the graph: collect, write."""
        return pcoll | beam.combiners.ToList() | beam.Map(_write_list, str(self._path))


def _write_list(values: list[Any], path: str) -> None:
    write_json(Path(path), values)

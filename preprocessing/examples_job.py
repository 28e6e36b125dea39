"""First Beam job: logs to labelled rows in Parquet, a file for each day, split and shard, in record order.

    files -> read, clean -> shuffle by (day, key) -> join, label, split -> rows/<split>/<day>-<shard>.parquet
                       \\-> rejects/<source>-<file>.parquet

What it writes is an artefact of its own: the raw joined rows that records, gate, parity and warm-up refer to.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.cleaning import REJECTS, arrow_schema, clean
from preprocessing.columnar import duplicate_free, hash_rows
from preprocessing.errors import DataError, LabelError, RejectBudgetError, SourceError
from preprocessing.joining import MS_PER_S, join_partition
from preprocessing.manifest import write_json
from preprocessing.runner import follow_progress, plain_errors, report_rows
from preprocessing.shuffle import Carrier, ColumnarShuffle, Partition, read_slices, read_spilled, spill
from preprocessing.sources import read_table_blocks
from preprocessing.spec import SPLITS, DataSpec, SourceSpec
from preprocessing.splits import day_name, day_of

__all__ = ["ROWS_FOLDER", "ExamplesSummary", "build_examples", "event_sources"]

BLOCK_BYTES = 16 << 20
ROWS_FOLDER = "rows"
REJECTS_FOLDER = "rejects"
WITHOUT_DAY = 0
_EVENT = tuple[str, pa.RecordBatch]


@dataclasses.dataclass(frozen=True)
class ExamplesSummary:
    """What the job read and wrote.

    Attributes:
        sources: of each source, rows read, rejected, and rejected by reason.
        counts: sums over all partitions: duplicates, unmatched joins, rows and positives by split, ...
        shards: of each split, (day, file relative to the artefact, rows), sorted.
    """

    sources: dict[str, dict[str, Any]]
    counts: dict[str, int]
    shards: dict[str, list[tuple[str, str, int]]]


def event_sources(spec: DataSpec) -> dict[str, SourceSpec]:
    """Returns the sources that are shuffled: the impressions and the action logs, as they must be cleaned.

    The clock of an event is required, and absurd if it lies before 1970.
    """
    names = {spec.impressions: spec.roles.event_time}
    for label in spec.labels:
        if label.action is not None:
            names[label.action.source] = spec.sources[label.action.source].event_time
    return {name: _with_clock(spec.sources[name], clock, None) for name, clock in names.items()}


def _with_clock(source: SourceSpec, clock: str | None, latest_ms: float | None) -> SourceSpec:
    if clock is None:
        return source
    column = source.columns[clock]
    bounds = {
        "required": True,
        "min": max(0.0, column.min if column.min is not None else 0.0),
        "max": min(bound for bound in (column.max, latest_ms, float(2**62)) if bound is not None),
    }
    columns = {**source.columns, clock: column.model_copy(update=bounds)}
    return source.model_copy(update={"columns": columns})


def build_examples(
    spec: DataSpec,
    files: dict[str, Sequence[str]],
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
        rows_per_shard: about the largest number of impressions of a day in one file.
        as_of_ms: the time of the run; later event times, beyond the tolerance, are rejects.
        pipeline: makes the Beam pipeline.
        carrier: how the shuffle moves rows.
        observe: told the number of rows that have passed the reader and the join, as it grows.

    Raises:
        DataError: nothing was read, too much was rejected, or a split came out empty or of one class.
    """
    for name in (ROWS_FOLDER, REJECTS_FOLDER, "scratch/spill", "scratch/parts", "scratch/progress"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        (folder / ROWS_FOLDER / split).mkdir(exist_ok=True)
    latest_ms = as_of_ms + spec.future_tolerance_s * MS_PER_S
    sources = {name: _with_latest(source, latest_ms, spec, name) for name, source in _needed(spec).items()}
    with plain_errors(), follow_progress(folder / "scratch" / "progress", observe), pipeline() as p:
        _graph(p, spec, sources, files, folder=folder, rows_per_shard=rows_per_shard, carrier=carrier)
    reads = json.loads((folder / "scratch" / "parts" / "reads.json").read_bytes())
    partitions = json.loads((folder / "scratch" / "parts" / "partitions.json").read_bytes())
    summary = _summarise(reads, partitions)
    _check(summary, spec, folder)
    return summary


def _needed(spec: DataSpec) -> dict[str, SourceSpec]:
    sides = {join.source: spec.sources[join.source] for join in spec.joins}
    return {**sides, **event_sources(spec)}


def _with_latest(source: SourceSpec, latest_ms: float, spec: DataSpec, name: str) -> SourceSpec:
    clock = spec.roles.event_time if name == spec.impressions else source.event_time
    return _with_clock(source, clock, latest_ms) if name in event_sources(spec) else source


def _graph(
    p: beam.Pipeline,
    spec: DataSpec,
    sources: dict[str, SourceSpec],
    files: dict[str, Sequence[str]],
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
    side_names = [join.source for join in spec.joins]
    read = _Read(sources=sources, folder=str(folder))
    numbered, reads = _read_files(p, "Events", read, {name: files[name] for name in event_sources(spec)})
    batches = numbered | "Batches" >> beam.Map(_event).with_output_types(_EVENT)
    results = []
    key = spec.sources[spec.impressions].duplicates
    if isinstance(key, tuple):
        schema = arrow_schema(sources[spec.impressions])
        kept, counts = _without_duplicates(batches, spec, schema, key, shuffle)
        batches = kept | "WithActions" >> beam.Flatten()
        results.append(counts)
    side_batches, side_reads = _read_files(p, "Sides", read, {name: files[name] for name in side_names})
    side_files = beam.pvalue.AsList(
        side_batches | "SpillSides" >> beam.Map(_spill_side, str(folder / "scratch" / "spill"))
    )
    joined = (
        batches
        | "Shuffle" >> shuffle(group_by=functools.partial(_by_day_and_key, spec=spec))
        | "Join" >> beam.ParDo(_Join(spec=spec, sources=sources, folder=str(folder)), side_files)
    )
    _ = (*results, joined) | "Results" >> beam.Flatten() | "Partitions" >> _ToJson(parts / "partitions.json")
    _ = (reads, side_reads) | "AllReads" >> beam.Flatten() | "Reads" >> _ToJson(parts / "reads.json")


def _event(element: tuple[str, int, int, pa.RecordBatch]) -> tuple[str, pa.RecordBatch]:
    return element[0], element[3]


def _read_files(
    p: beam.Pipeline, name: str, read: _Read, files: dict[str, Sequence[str]]
) -> tuple[beam.PCollection, beam.PCollection]:
    elements = [(source, i, path) for source, paths in files.items() for i, path in enumerate(paths)]
    outputs = (
        p
        | f"{name}Files" >> beam.Create(elements)
        | f"{name}Spread" >> beam.Reshuffle()
        | f"{name}Read" >> beam.ParDo(read).with_outputs("summary", main="batches")
    )
    return outputs.batches, outputs.summary


class _Read(beam.DoFn):
    """Reads and cleans one file: (source, batch) for its rows, a dead-letter file for its rejects."""

    def __init__(self, *, sources: dict[str, SourceSpec], folder: str) -> None:
        self._sources = sources
        self._folder = folder

    def process(self, element: tuple[str, int, str]) -> Iterator[Any]:
        source, number, path = element
        spec = self._sources[source]
        reasons: dict[str, int] = {}
        num_rows = block_number = 0
        with _DeadLetters(Path(self._folder) / REJECTS_FOLDER / f"{source}-{number:05d}.parquet") as dead:
            for block in read_table_blocks(path, spec, block_bytes=BLOCK_BYTES):
                cleaned = clean(block, spec, source=source, path=path)
                dead.write(cleaned.rejects)
                for reason in cleaned.rejects.column("reason").to_pylist():
                    reasons[reason] = reasons.get(reason, 0) + 1
                num_rows += cleaned.rows.num_rows + cleaned.rejects.num_rows
                report_rows(f"{self._folder}/scratch/progress", cleaned.rows.num_rows)
                yield source, number, block_number, cleaned.rows
                block_number += 1
        summary = {"source": source, "path": path, "rows": num_rows, "reasons": reasons}
        yield beam.pvalue.TaggedOutput("summary", summary)


class _DeadLetters:
    """A Parquet file of rejected rows that exists only if there are any, and only when complete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.{id(self)}")
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> _DeadLetters:
        return self

    def write(self, rejects: pa.RecordBatch) -> None:
        """Adds rows of the `REJECTS` schema."""
        if rejects.num_rows:
            self._writer = self._writer or pq.ParquetWriter(self._temporary, REJECTS, compression="zstd")
            self._writer.write_batch(rejects)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._writer is not None:
            self._writer.close()
            if kind is None:
                self._temporary.replace(self._path)


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
    return (others, outputs.batches | "Kept" >> beam.Map(_as_is).with_output_types(_EVENT)), outputs.counts


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


def _by_day_and_key(
    source: str, batch: pa.RecordBatch, *, spec: DataSpec
) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray]:
    """Groups are days; an action is repeated on each day that holds an impression it can belong to."""
    actions = [label.action for label in spec.labels if label.action is not None]
    key = actions[0].key if actions else (spec.roles.user,) if spec.roles.user in batch.schema.names else None
    hashes = hash_rows(batch, key or batch.schema.names)
    clock = spec.roles.event_time if source == spec.impressions else spec.sources[source].event_time
    if spec.roles.event_time is None or clock is None:
        return batch, np.full(batch.num_rows, WITHOUT_DAY, np.int64), hashes
    times = batch.column(clock).to_numpy(zero_copy_only=False).astype(np.int64)
    last = day_of(times, time_zone=spec.time_zone).astype(np.int64)
    if source == spec.impressions:
        return batch, last, hashes
    window_ms = max(round(action.window_s * MS_PER_S) for action in actions if action.source == source)
    first = day_of(times - window_ms, time_zone=spec.time_zone).astype(np.int64)
    repeats = last - first + 1
    index = np.repeat(np.arange(batch.num_rows), repeats)
    offsets = np.arange(len(index)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    return batch.take(pa.array(index)), first[index] + offsets, hashes[index]


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
        day = "all" if spec.roles.event_time is None else day_name(element.group)
        shards = []
        for split, rows in joined.rows.items():
            if rows.num_rows:
                name = f"{ROWS_FOLDER}/{split}/{day}-{element.index:05d}.parquet"
                _write_parquet(rows, Path(self._folder) / name)
                shards.append((split, day, name, rows.num_rows))
        report_rows(f"{self._folder}/scratch/progress", impressions.num_rows)
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


def _as_is(element: Any) -> Any:
    return element


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


def _summarise(reads: list[dict[str, Any]], partitions: list[dict[str, Any]]) -> ExamplesSummary:
    sources: dict[str, dict[str, Any]] = {}
    for read in sorted(reads, key=lambda read: (read["source"], read["path"])):
        total = sources.setdefault(read["source"], {"files": 0, "rows": 0, "rejected": 0, "reasons": {}})
        total["files"] += 1
        total["rows"] += read["rows"]
        total["rejected"] += sum(read["reasons"].values())
        for reason, count in read["reasons"].items():
            total["reasons"][reason] = total["reasons"].get(reason, 0) + count
    counts: dict[str, int] = {}
    shards: dict[str, list[tuple[str, str, int]]] = {split: [] for split in SPLITS}
    for partition in partitions:
        for name, count in partition["counts"].items():
            counts[name] = counts.get(name, 0) + count
        for split, day, path, num_rows in partition["shards"]:
            shards[split].append((day, path, num_rows))
    return ExamplesSummary(sources, dict(sorted(counts.items())), {split: sorted(shards[split]) for split in SPLITS})


def _check(summary: ExamplesSummary, spec: DataSpec, folder: Path) -> None:
    for name, total in summary.sources.items():
        if total["rows"] == 0:
            raise SourceError(f"data.sources.{name}: {total['files']} file(s) hold no row; there is nothing to do")
        share = total["rejected"] / total["rows"]
        if share > spec.max_reject_share or total["rejected"] == total["rows"]:
            reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(total["reasons"].items()))
            raise RejectBudgetError(
                f"data.sources.{name}: {total['rejected']} of {total['rows']} rows rejected ({share:.2%}), more than "
                f"data.max_reject_share = {spec.max_reject_share:.2%}: {reasons}; see {folder / REJECTS_FOLDER}"
            )
    for split in SPLITS:
        num_rows = summary.counts.get(f"{split}_rows", 0)
        if num_rows == 0:
            raise DataError(f"split {split!r} has no rows; data.split does not fit the days or values in the data")
        for label in spec.labels:
            positive = summary.counts[f"{split}_positive_{label.name}"]
            if positive in (0, num_rows):
                only = 1 if positive else 0
                raise LabelError(
                    f"label {label.name!r} is {only} in all {num_rows} rows of split {split!r}: nothing can be learned "
                    "from one class; look at data.labels, the action log's key and window, and data.split"
                )

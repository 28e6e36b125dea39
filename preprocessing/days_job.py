"""Second Beam job: ingested logs to labelled rows, a folder for each period.

    shards of impressions -> keys and times, shuffled by key -> attribution -\\
                     actions, shuffled by key -------------/                  -> by (period, shard)
    shards of impressions -> side tables, labels, weight, split  <-----------/
        -> ROOT/<key>/rows/<part>-<shard>.parquet, sorted by the hash of the row

Impressions of neighbouring periods take part in the attribution where an action could belong to them; they are not
written. What labels leave open is written apart, as `others`: it counts in point-in-time columns.
"""

from __future__ import annotations

import functools
import json
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.attribution import Attribution, attribute
from preprocessing.columnar import duplicate_free, hash_rows
from preprocessing.day_plan import DayPlan, earlier_periods, reach_of
from preprocessing.day_rows import ShardTask, event_schema, shard_rows, visible_rows
from preprocessing.inventory import Log, Range, num_shards, read_ranges
from preprocessing.joining import KNOWN_PREFIX, WEIGHT_FOUND, join_shard
from preprocessing.log_sources import HASH_COLUMN, MS_PER_S, actions_of, clock_of
from preprocessing.manifest import complete, write_json
from preprocessing.runner import MakePipeline, follow_progress, plain_errors, report_rows
from preprocessing.shuffle import Carrier, ColumnarShuffle, Partition, Slice, cut, read_slices
from preprocessing.spec import ActionLabel, ActionWeight, DataSpec
from preprocessing.splits import day_of, period_of

__all__ = ["ROWS_FOLDER", "SideFiles", "label_days", "to_json"]

ROWS_FOLDER = "rows"
_IMPRESSIONS, _FOUND = "__impressions", "__found"
_PLACE = pa.schema([("__period", pa.int64()), ("__shard", pa.int64()), ("__row", pa.int64())])
_ACTIONS_AT_A_TIME = 1 << 18

# Of each side table, where its rows lie, in the order of reading.
SideFiles = Mapping[str, Sequence[Range]]


def label_days(
    spec: DataSpec,
    plans: Sequence[DayPlan],
    *,
    logs: Mapping[str, Log],
    sides: SideFiles,
    root: Path,
    rows_per_shard: int,
    as_of_ms: int,
    pipeline: MakePipeline,
    carrier: Carrier = "files",
    observe: Callable[[int], None] = lambda rows: None,
) -> None:
    """Makes the folders of some periods below `root`; each is complete when all are.

    Args:
        spec: the data section of the config.
        plans: the periods to make.
        logs: the ingested impressions and actions.
        sides: the ingested side tables.
        root: where folders are named by their keys.
        rows_per_shard: about the largest number of impressions in memory at once.
        as_of_ms: the time of the run.
        pipeline: makes the Beam pipeline.
        carrier: how the shuffle moves rows.
        observe: told the number of rows joined so far.
    """
    work = root / f".job-{uuid.uuid4().hex}.partial"
    folders = {plan.number: work / plan.key for plan in plans}
    for folder in folders.values():
        (folder / ROWS_FOLDER).mkdir(parents=True)
    (work / "spill").mkdir()
    try:
        with plain_errors(), follow_progress(work / "progress", observe), pipeline() as p:
            graph = _Graph(spec, logs, sides, work, rows_per_shard=rows_per_shard, as_of_ms=as_of_ms, carrier=carrier)
            graph.build(p, plans)
        shards = json.loads((work / "shards.json").read_bytes())
        orphans = json.loads((work / "orphans.json").read_bytes())
        for plan in plans:
            content = _content(plan, [s for s in shards if s["period"] == plan.number], orphans)
            complete(folders[plan.number], root / plan.key, manifest={"stage": "days", "content": content})
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _content(plan: DayPlan, shards: list[dict[str, Any]], orphans: list[tuple[str, int, int]]) -> dict[str, Any]:
    """Returns what the manifest of a period says."""
    counts: dict[str, int] = {}
    for shard in shards:
        for name, count in shard["counts"].items():
            counts[name] = counts.get(name, 0) + count
    for label, period, count in orphans:
        if period == plan.number:
            name = f"orphans_{label}" if label else "orphans_of_weight"
            counts[name] = counts.get(name, 0) + count
    return {
        "number": plan.number,
        "period": plan.name,
        "counts": dict(sorted(counts.items())),
        "files": sorted(file for shard in shards for file in shard["files"]),
        "last_known_ms": max((shard["last_known_ms"] for shard in shards), default=-(2**63)),
    }


class _Graph:
    """Builds the graph; holds what its steps share."""

    def __init__(
        self,
        spec: DataSpec,
        logs: Mapping[str, Log],
        sides: SideFiles,
        work: Path,
        *,
        rows_per_shard: int,
        as_of_ms: int,
        carrier: Carrier,
    ) -> None:
        self._spec, self._logs, self._sides, self._work = spec, logs, sides, work
        self._rows_per_shard, self._as_of_ms, self._carrier = rows_per_shard, as_of_ms, carrier

    def build(self, p: beam.Pipeline, plans: Sequence[DayPlan]) -> None:
        """Adds the graph to a pipeline."""
        numbers = [plan.number for plan in plans]
        own = [task for plan in plans for task in self._tasks(plan.number, plan.shards)]
        tasks = p | "Shards" >> beam.Create([((task.period, task.shard), task) for task in own]) | beam.Reshuffle()
        found, orphans = self._attributions(p, numbers, own)
        join = _Join(
            self._spec,
            {plan.number: str(self._work / plan.key) for plan in plans},
            sides=self._sides,
            as_of_ms=self._as_of_ms,
            progress=str(self._work / "progress"),
        )
        done = {"task": tasks, "found": found} | "Meet" >> beam.CoGroupByKey() | "Join" >> beam.ParDo(join)
        _ = done | "ShardsDone" >> to_json(self._work / "shards.json")
        _ = orphans | "Orphans" >> to_json(self._work / "orphans.json")

    def _tasks(self, number: int, shards: int) -> list[ShardTask]:
        log = self._logs[self._spec.impressions]
        earlier = earlier_periods(self._spec, log, number)
        return [
            ShardTask(
                number,
                shard,
                tuple(log.ranges([number], shard=shard, shards=shards)),
                tuple(log.ranges(earlier, shard=shard, shards=shards)),
            )
            for shard in range(shards)
        ]

    def _attributions(
        self, p: beam.Pipeline, numbers: Sequence[int], own: Sequence[ShardTask]
    ) -> tuple[beam.PCollection, beam.PCollection]:
        """Returns slices of what actions bring to rows, by (period, shard), and the counts of orphans."""
        by_key: dict[tuple[str, ...], dict[str, ActionLabel]] = {}
        for name, action in actions_of(self._spec).items():
            by_key.setdefault(action.key, {})[name] = action
        found, orphans = [], []
        for index, (key, actions) in enumerate(by_key.items()):
            label = f"Attribution{index}"
            parts = (p | label >> self._shuffled(numbers, own, key, actions)) | f"{label}/Attribute" >> beam.ParDo(
                _Attribute(self._spec, numbers, key, actions)
            ).with_outputs("orphans", main="found")
            orphans.append(parts.orphans)
            spill = str(self._work / "spill")
            found.append(
                parts.found
                | f"{label}/Cut" >> beam.FlatMap(cut, group_by=by_place, carrier=self._carrier, folder=spill)
            )
        if not found:
            nothing = p | "NoActions" >> beam.Create([])
            return nothing, nothing
        return found | "Found" >> beam.Flatten(), orphans | "AllOrphans" >> beam.Flatten()

    def _shuffled(
        self, numbers: Sequence[int], own: Sequence[ShardTask], key: tuple[str, ...], actions: Mapping[str, ActionLabel]
    ) -> Any:
        """Returns a transform of a pipeline to partitions of impressions and actions with equal keys."""
        spec, log = self._spec, self._logs[self._spec.impressions]
        reach = reach_of(spec, self._logs, numbers)
        around = [n for n in reach.impressions if n not in set(numbers)]
        context = [
            task for n in around for task in self._tasks(n, num_shards(log.periods[n]["rows"], self._rows_per_shard))
        ]
        sources = sorted({action.source for action in actions.values()})
        pieces = [(s, r) for s in sources for r in _pieces(self._logs[s].ranges(reach.actions[s]))]
        project = _Project(spec, key, as_of_ms=self._as_of_ms)
        shuffle = ColumnarShuffle(
            group_by=functools.partial(_by_key, key=key),
            sized_by=_IMPRESSIONS,
            rows_per_partition=self._rows_per_shard,
            carrier=self._carrier,
            folder=self._work / "spill",
        )

        def expand(p: beam.Pipeline) -> beam.PCollection:
            rows = p | "Shards" >> beam.Create([*own, *context]) | "Spread" >> beam.Reshuffle() | beam.ParDo(project)
            events = (
                p
                | "Actions" >> beam.Create(pieces)
                | "SpreadActions" >> beam.Reshuffle()
                | "Read" >> beam.Map(_read_actions, spec=spec, as_of_ms=self._as_of_ms)
            )
            return (rows, events) | "Shuffle" >> shuffle

        return beam.ptransform_fn(expand)()


def _pieces(ranges: Sequence[Range]) -> Iterator[Range]:
    for path, start, rows in ranges:
        for first in range(0, rows, _ACTIONS_AT_A_TIME):
            yield path, start + first, min(_ACTIONS_AT_A_TIME, rows - first)


def _read_actions(element: tuple[str, Range], *, spec: DataSpec, as_of_ms: int) -> tuple[str, pa.RecordBatch]:
    source, piece = element
    table = read_ranges([piece], schema=event_schema(spec.sources[source]))
    return source, _one_batch(visible_rows(table, clock_of(spec, source), as_of_ms=as_of_ms))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _by_key(_: str, batch: pa.RecordBatch, *, key: Sequence[str]) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray]:
    return batch, np.zeros(batch.num_rows, np.int64), hash_rows(batch, key)


def by_place(_: str, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray]:
    """Groups results by the period and shard that they belong to."""
    return batch, batch.column("__period").to_numpy(), batch.column("__shard").to_numpy().astype(np.uint64)


class _Project(beam.DoFn):
    """What attribution must know of a shard's rows: keys, time, hash, and where the row is."""

    def __init__(self, spec: DataSpec, key: tuple[str, ...], *, as_of_ms: int) -> None:
        self._spec = spec
        clock = clock_of(spec, spec.impressions)
        self._columns = list(dict.fromkeys([*key, *([clock.event_time] if clock.event_time else []), HASH_COLUMN]))
        self._as_of_ms = as_of_ms

    def process(self, task: ShardTask) -> Iterator[tuple[str, pa.RecordBatch]]:
        rows = shard_rows(task, self._spec, as_of_ms=self._as_of_ms)[0].select(self._columns)
        places = (task.period, task.shard)
        for field, number in zip(_PLACE, places, strict=False):
            rows = rows.append_column(field, pa.array(np.full(rows.num_rows, number), pa.int64()))
        rows = rows.append_column(_PLACE.field("__row"), pa.array(np.arange(rows.num_rows)))
        yield _IMPRESSIONS, _one_batch(rows)


class _Attribute(beam.DoFn):
    """Attributes the actions of one partition to its impressions; emits the places that got any, and orphans."""

    def __init__(
        self, spec: DataSpec, numbers: Sequence[int], key: tuple[str, ...], actions: Mapping[str, ActionLabel]
    ) -> None:
        self._spec, self._key, self._actions = spec, key, dict(actions)
        self._numbers = np.array(sorted(numbers), np.int64)
        clock = clock_of(spec, spec.impressions)
        self._clock = clock
        declared = event_schema(spec.sources[spec.impressions])
        names = list(dict.fromkeys([*key, *([clock.event_time] if clock.event_time else []), HASH_COLUMN]))
        self._schema = pa.schema([declared.field(name) for name in names] + list(_PLACE))

    def process(self, partition: Partition) -> Iterator[Any]:
        rows = read_slices(partition.slices, source=_IMPRESSIONS, schema=self._schema)
        wanted = np.isin(rows["__period"].to_numpy(), self._numbers)
        for name, action in self._actions.items():
            events = self._events(partition, action.source)
            result = self._attribute(rows, events, action)
            yield from self._orphans(name, action.source, events, result)
            batch = _found(name, action, rows, result, wanted)
            if batch.num_rows:
                yield _FOUND + name, batch

    def _events(self, partition: Partition, source: str) -> pa.Table:
        events = read_slices(partition.slices, source=source, schema=event_schema(self._spec.sources[source]))
        if self._spec.sources[source].duplicates == "keep":
            return events
        key = self._spec.sources[source].duplicates
        kept = duplicate_free(
            events,
            key=None if key == "row" else key,
            order=[HASH_COLUMN],
            hashes=events[HASH_COLUMN].to_numpy() if key == "row" else None,
        )
        return events.take(pa.array(kept))

    def _attribute(self, rows: pa.Table, events: pa.Table, action: ActionLabel) -> Attribution:
        clock = clock_of(self._spec, action.source)
        return attribute(
            rows,
            events,
            key=self._key,
            impression_time=self._clock.event_time,
            action_time=clock.event_time,
            action_arrival=clock.arrival_time,
            window_ms=round(action.window_s * MS_PER_S),
            touch=action.touch,
            order=rows[HASH_COLUMN].to_numpy(),
            value=action.value if isinstance(action, ActionWeight) else None,
        )

    def _orphans(self, name: str, source: str, events: pa.Table, result: Attribution) -> Iterator[Any]:
        clock = clock_of(self._spec, source)
        lost = events.filter(pa.array(~result.matched))
        numbers = np.zeros(lost.num_rows, np.int64)
        if clock.event_time is not None:
            times = lost[clock.event_time].to_numpy().astype(np.int64)
            numbers = period_of(day_of(times, time_zone=self._spec.time_zone), self._spec.period)
        for number, count in zip(*np.unique(numbers, return_counts=True), strict=True):
            if number in self._numbers:
                yield beam.pvalue.TaggedOutput("orphans", (name, int(number), int(count)))


def _found(name: str, action: ActionLabel, rows: pa.Table, result: Attribution, wanted: np.ndarray) -> pa.RecordBatch:
    """Returns the places that actions brought something to, and what."""
    weighs = isinstance(action, ActionWeight)
    hit = np.flatnonzero((result.has_value if weighs else result.positive) & wanted)
    places = rows.select(_PLACE.names).take(pa.array(hit))
    column, values = (WEIGHT_FOUND, result.value[hit]) if weighs else (KNOWN_PREFIX + name, result.known_ms[hit])
    return _one_batch(places.append_column(column, pa.array(values)))


class _Join(beam.DoFn):
    """Makes the labelled rows of one shard and writes a Parquet file for each part that has rows."""

    def __init__(
        self, spec: DataSpec, folders: Mapping[int, str], *, sides: SideFiles, as_of_ms: int, progress: str
    ) -> None:
        self._spec, self._folders, self._files = spec, dict(folders), dict(sides)
        self._as_of_ms, self._progress = as_of_ms, progress
        self._sides: dict[str, pa.Table] | None = None

    def process(self, element: tuple[tuple[int, int], Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        _, met = element
        (task,) = met["task"]
        if self._sides is None:
            self._sides = {
                name: read_ranges(ranges, schema=event_schema(self._spec.sources[name])).combine_chunks()
                for name, ranges in self._files.items()
            }
        rows, counts = shard_rows(task, self._spec, as_of_ms=self._as_of_ms)
        joined = join_shard(
            rows, spec=self._spec, sides=self._sides, found=_places_found(met["found"]), as_of_ms=self._as_of_ms
        )
        files = []
        for part, table in joined.parts.items():
            if table.num_rows:
                name = f"{ROWS_FOLDER}/{part}-{task.shard:05d}.parquet"
                write_rows(table, Path(self._folders[task.period]) / name)
                files.append((part, name, table.num_rows))
        report_rows(self._progress, rows.num_rows)
        last = max((_last_known(table) for table in joined.parts.values()), default=-(2**63))
        yield {"period": task.period, "files": files, "counts": counts | joined.counts, "last_known_ms": last}


def _last_known(table: pa.Table) -> int:
    known = [pa.compute.max(table[name]).as_py() for name in table.column_names if name.startswith(KNOWN_PREFIX)]
    return max((value for value in known if value is not None), default=-(2**63))


def _places_found(pieces: Any) -> dict[str, tuple[np.ndarray, pa.Array]]:
    """Returns, by column, the rows of a shard that something was found for, and the values."""
    found: dict[str, list[pa.Table]] = {}
    for piece in sorted(pieces):
        part = Slice(*piece)
        table = read_slices([part], source=part.source, schema=None)
        found.setdefault(table.column_names[-1], []).append(table)
    tables = {name: pa.concat_tables(parts).combine_chunks() for name, parts in found.items()}
    return {name: (t["__row"].to_numpy(), t[name].combine_chunks()) for name, t in tables.items()}


def write_rows(table: pa.Table, path: Path) -> None:
    """Writes rows so that a reader sees all of them or no file."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    pq.write_table(table, temporary, compression="zstd", compression_level=1, row_group_size=1 << 17)
    temporary.replace(path)


def to_json(path: Path) -> beam.PTransform:
    """Returns a transform that writes all elements, plain values, as one JSON list."""

    def expand(pcoll: beam.PCollection) -> beam.PCollection:
        return pcoll | beam.combiners.ToList() | beam.Map(_write_list, str(path))

    return beam.ptransform_fn(expand)()


def _write_list(values: list[Any], path: str) -> None:
    write_json(Path(path), values)

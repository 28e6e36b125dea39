"""Which actions belong to which impressions, as a part of the second Beam job: both are brought together by key.

    shards of impressions -> keys and times -\\
                                              shuffled by key -> `attribution.attribute` -> by (period, shard)
    actions ---------------------------------/

Impressions of neighbouring periods take part where an action could belong to them; nothing is told of their rows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from preprocessing.attribution import Attribution, attribute
from preprocessing.columnar import duplicate_free, hash_rows
from preprocessing.day_plan import reach_of, shard_tasks
from preprocessing.day_rows import ShardTask, event_schema, shard_rows, visible_rows
from preprocessing.inventory import Log, Range, num_shards, read_ranges
from preprocessing.joining import KNOWN_PREFIX, WEIGHT_FOUND
from preprocessing.log_sources import HASH_COLUMN, MS_PER_S, actions_of, clock_of
from preprocessing.shuffle import Carrier, ColumnarShuffle, Partition, cut, read_slices
from preprocessing.spec import ActionLabel, ActionWeight, DataSpec
from preprocessing.splits import day_of, period_of

__all__ = ["Attributions", "by_place"]

_IMPRESSIONS, _FOUND = "__impressions", "__found"
_PLACE = pa.schema([("__period", pa.int64()), ("__shard", pa.int64()), ("__row", pa.int64())])
_ACTIONS_AT_A_TIME = 1 << 18


class Attributions:
    """Builds the part of the graph that tells what actions bring to the rows of some periods.

    Args:
        spec: the data section of the config.
        logs: the ingested impressions and actions.
        own: the shards of the periods to be labelled.
        rows_per_shard: about the largest number of impressions in memory at once.
        as_of_ms: the time of the run.
        carrier: how the shuffle moves rows.
        folder: where it spills them.
    """

    def __init__(
        self,
        spec: DataSpec,
        logs: Mapping[str, Log],
        own: Sequence[ShardTask],
        *,
        rows_per_shard: int,
        as_of_ms: int,
        carrier: Carrier,
        folder: Path,
    ) -> None:
        self._spec, self._logs, self._own = spec, logs, list(own)
        self._numbers = sorted({task.period for task in own})
        self._rows_per_shard, self._as_of_ms = rows_per_shard, as_of_ms
        self._carrier, self._folder = carrier, folder

    def build(self, p: beam.Pipeline) -> tuple[beam.PCollection, beam.PCollection]:
        """Returns slices of what actions bring to rows, by (period, shard), and the counts of orphans."""
        by_key: dict[tuple[str, ...], dict[str, ActionLabel]] = {}
        for name, action in actions_of(self._spec).items():
            by_key.setdefault(action.key, {})[name] = action
        spread = functools.partial(cut, group_by=by_place, carrier=self._carrier, folder=str(self._folder))
        found, orphans = [], []
        for index, (key, actions) in enumerate(by_key.items()):
            label = f"Attribution{index}"
            work = beam.ParDo(_Attribute(self._spec, self._numbers, key, actions))
            parts = (
                p
                | label >> self._shuffled(key, actions)
                | f"{label}/Attribute" >> work.with_outputs("orphans", main="found")
            )
            orphans.append(parts.orphans)
            found.append(parts.found | f"{label}/Cut" >> beam.FlatMap(spread))
        if not found:
            nothing = p | "NoActions" >> beam.Create([])
            return nothing, nothing
        return found | "Found" >> beam.Flatten(), orphans | "AllOrphans" >> beam.Flatten()

    def _shuffled(self, key: tuple[str, ...], actions: Mapping[str, ActionLabel]) -> Any:
        """Returns a transform of a pipeline to partitions of impressions and actions with equal keys."""
        reach = reach_of(self._spec, self._logs, self._numbers)
        shards = [*self._own, *self._context(reach.impressions)]
        sources = sorted({action.source for action in actions.values()})
        pieces = [(s, r) for s in sources for r in _pieces(self._logs[s].ranges(reach.actions[s]))]
        project = _Project(self._spec, key, as_of_ms=self._as_of_ms)
        shuffle = ColumnarShuffle(
            group_by=functools.partial(_by_key, key=key),
            sized_by=_IMPRESSIONS,
            rows_per_partition=self._rows_per_shard,
            carrier=self._carrier,
            folder=self._folder,
        )

        def expand(p: beam.Pipeline) -> beam.PCollection:
            rows = p | "Shards" >> beam.Create(shards) | "Spread" >> beam.Reshuffle() | beam.ParDo(project)
            events = (
                p
                | "Actions" >> beam.Create(pieces)
                | "SpreadActions" >> beam.Reshuffle()
                | "Read" >> beam.Map(_read_actions, spec=self._spec, as_of_ms=self._as_of_ms)
            )
            return (rows, events) | "Shuffle" >> shuffle

        return beam.ptransform_fn(expand)()

    def _context(self, numbers: Sequence[int]) -> list[ShardTask]:
        """Returns the shards of the periods within reach that are not to be labelled themselves."""
        log = self._logs[self._spec.impressions]
        around = [number for number in numbers if number not in set(self._numbers)]
        return [
            task
            for number in around
            for task in shard_tasks(
                self._spec, log, number, num_shards(log.periods[number]["rows"], self._rows_per_shard)
            )
        ]


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
        rows = shard_rows(task, self._spec, as_of_ms=self._as_of_ms, columns=self._columns)[0].select(self._columns)
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

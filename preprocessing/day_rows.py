"""The impressions of one shard of a period, as the job sees them: visible, once each, in their final order."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from preprocessing.block_dictionaries import BlockDictionaries
from preprocessing.cleaning import arrow_schema
from preprocessing.columnar import duplicate_free, key_codes
from preprocessing.inventory import Range, read_ranges
from preprocessing.log_sources import HASH_COLUMN, EventClock, clock_of
from preprocessing.spec import DataSpec, SourceSpec
from preprocessing.splits import day_of
from preprocessing.visibility import visible_ms

__all__ = ["ShardTask", "event_schema", "event_times", "shard_rows", "visible_rows"]

_DAY_MS = 86_400_000


@dataclasses.dataclass(frozen=True)
class ShardTask:
    """One shard of one period, and where its rows lie.

    Attributes:
        period: number of the period.
        shard: number of the shard within it.
        ranges: its impressions.
        earlier: impressions of earlier periods that may be the same by key.
        files: all files with rows of the period, if it has other shards.
    """

    period: int
    shard: int
    ranges: tuple[Range, ...]
    earlier: tuple[Range, ...] = ()
    files: tuple[str, ...] = ()


def event_schema(source: SourceSpec) -> pa.Schema:
    """Returns the columns of an ingested log: as cleaned, text by dictionary, and the hash of the row."""
    return arrow_schema(source, dictionaries=True).append(pa.field(HASH_COLUMN, pa.uint64()))


def event_times(table: pa.Table, clock: EventClock) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns int64 [rows] event times, and when each row was known; zeros without a clock."""
    if clock.event_time is None:
        zeros = np.zeros(table.num_rows, np.int64)
        return zeros, zeros
    event = table[clock.event_time].to_numpy().astype(np.int64)
    arrival = None if clock.arrival_time is None else table[clock.arrival_time].to_numpy().astype(np.int64)
    return event, visible_ms(event, arrival)


def visible_rows(table: pa.Table, clock: EventClock, *, as_of_ms: int) -> pa.Table:
    """Returns the rows that were known at the time of the run."""
    if clock.event_time is None:
        return table
    seen = event_times(table, clock)[1] <= as_of_ms
    return table if seen.all() else table.filter(pa.array(seen))


def shard_rows(
    task: ShardTask,
    spec: DataSpec,
    *,
    as_of_ms: int,
    columns: Sequence[str] | None = None,
    dictionaries: BlockDictionaries | None = None,
) -> tuple[pa.Table, dict[str, int]]:
    """Returns the rows of a shard sorted by hash, with `HASH_COLUMN`, and what was left out.

    The order follows from the content of the rows alone.

    Args:
        task: the shard.
        spec: the data section of the config.
        as_of_ms: what arrives later is not seen.
        columns: names of those that are wanted, at least; None for all.
        dictionaries: merged ones of the log, to be used again for other shards.
    """
    source, clock = spec.sources[spec.impressions], clock_of(spec, spec.impressions)
    if columns is not None:
        columns = _columns_needed(columns, source, clock)
    table = read_ranges(
        task.ranges, schema=event_schema(source), columns=columns, dictionaries=dictionaries, files=task.files
    )
    counts = {"rows": table.num_rows}
    table = visible_rows(table, clock, as_of_ms=as_of_ms)
    counts["not_yet_arrived"] = counts["rows"] - table.num_rows
    table, counts["outside_days"] = _within_days(table, spec, clock)
    distinct = _once_each(table, task, spec, clock, as_of_ms=as_of_ms)
    counts["duplicates"] = table.num_rows - distinct.num_rows
    return distinct.combine_chunks(), counts


def _columns_needed(wanted: Sequence[str], source: SourceSpec, clock: EventClock) -> Sequence[str] | None:
    """Returns the columns that it takes to find the rows; None for all: equal rows are told by all of them."""
    if source.duplicates == "row":
        return None
    key = () if source.duplicates == "keep" else source.duplicates
    return list(dict.fromkeys([*wanted, *key, *_clock_columns(clock), HASH_COLUMN]))


def _once_each(table: pa.Table, task: ShardTask, spec: DataSpec, clock: EventClock, *, as_of_ms: int) -> pa.Table:
    """Returns the rows sorted by hash, without those that the source calls duplicates."""
    source = spec.sources[spec.impressions]
    hashes = table[HASH_COLUMN].to_numpy()
    order = np.argsort(hashes, kind="stable")
    if source.duplicates == "row":
        table = table.take(pa.array(order)).combine_chunks()
        kept = duplicate_free(table, key=None, order=(), hashes=hashes[order])
        return table if len(kept) == table.num_rows else table.take(pa.array(kept))
    if source.duplicates != "keep":
        columns = [*source.duplicates, *_clock_columns(clock), HASH_COLUMN]
        earlier = read_ranges(task.earlier, schema=event_schema(source), columns=columns)
        earlier = visible_rows(earlier, clock, as_of_ms=as_of_ms)
        lookback_ms = spec.duplicate_lookback_days * _DAY_MS
        order = order[_first_of_key(table, earlier, source.duplicates, clock, lookback_ms=lookback_ms)[order]]
    return table.take(pa.array(order))


def _clock_columns(clock: EventClock) -> list[str]:
    return [name for name in dict.fromkeys((clock.event_time, clock.arrival_time)) if name is not None]


def _within_days(table: pa.Table, spec: DataSpec, clock: EventClock) -> tuple[pa.Table, int]:
    """Drops the days of a month or year that are out of range; days as periods are left out as a whole."""
    if spec.period == "day" or clock.event_time is None or spec.days.first is spec.days.last is None:
        return table, 0
    days = day_of(event_times(table, clock)[0], time_zone=spec.time_zone)
    inside = np.ones(len(days), np.bool_)
    if spec.days.first is not None:
        inside &= days >= np.datetime64(spec.days.first).astype(np.int64)
    if spec.days.last is not None:
        inside &= days <= np.datetime64(spec.days.last).astype(np.int64)
    return table.filter(pa.array(inside)), int((~inside).sum())


def _first_of_key(
    table: pa.Table, earlier: pa.Table, key: Sequence[str], clock: EventClock, *, lookback_ms: int
) -> npt.NDArray[np.bool_]:
    """Returns bool [rows]: whether no row with the same key came before it, by (time, hash), within the look-back.

    A null in the key makes a row equal to none.
    """
    names = [*key, *_clock_columns(clock), HASH_COLUMN]
    both = pa.concat_tables([earlier.select(names), table.select(names)]).combine_chunks()
    codes, _ = key_codes(both, both, key)
    times, _ = event_times(both, clock)
    order = np.lexsort((np.arange(len(codes)), both[HASH_COLUMN].to_numpy(), times, codes))
    same = (codes[order][1:] == codes[order][:-1]) & (codes[order][1:] >= 0)
    near = times[order][1:].view(np.uint64) - times[order][:-1].view(np.uint64) <= np.uint64(lookback_ms)
    repeated = np.zeros(len(codes), np.bool_)
    repeated[order[1:][same & near]] = True
    return ~repeated[earlier.num_rows :]

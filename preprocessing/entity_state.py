"""What is known of each key at a moment: the values of point-in-time columns, and the state to go on from.

A state is a table with a row for each key seen so far:

    the key columns     no nulls; rows are sorted by the hash of the key, so that equal states have equal bytes
    NAME (and ages)     the value of each point-in-time column at this moment: what a server looks up for a request
                        until the next state is published
    __impressions       int64: all impressions so far
    __positives_LABEL   int64: all impressions known to be positive so far
    __known_NAME        list<int64>, ms: when each value of a history became known

Of a key that has no row nothing is known: its counts are 0, its rates their priors, its histories empty.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from preprocessing.counters import Queries
from preprocessing.derived_spec import CountColumn, DerivedColumn, HistoryColumn, RateColumn
from preprocessing.entity_log import KNOWN_PREFIX, EntityLog, labels_used, total_column
from preprocessing.history import MS_PER_S, Slices

__all__ = ["state_at", "state_schema", "values_at", "whole_ms"]

_Ints = npt.NDArray[np.int64]
_Columns: TypeAlias = dict[str, pa.Array | pa.ChunkedArray]


def whole_ms(seconds: float | None) -> int | None:
    """Returns a duration in whole milliseconds."""
    return None if seconds is None else round(seconds * MS_PER_S)


def values_at(log: EntityLog, specs: Sequence[DerivedColumn], queries: Queries) -> _Columns:
    """Returns the columns of each spec, one value for each row that asks, in the order of the rows."""

    @functools.cache
    def until(label: str | None) -> _Ints:
        return log.counters[label].until(queries)

    @functools.cache
    def count(label: str | None, window_s: float | None) -> _Ints:
        counter = log.counters[label]
        return queries.spread(counter.count(queries, window_ms=whole_ms(window_s), until=until(label)))

    columns: _Columns = {}
    for spec in specs:
        if isinstance(spec, CountColumn):
            columns[spec.name] = pa.array(count(spec.label, spec.window_s))
        elif isinstance(spec, RateColumn):
            positives, impressions = count(spec.label, spec.window_s), count(None, spec.window_s)
            columns[spec.name] = pa.array(smoothed_rate(positives, impressions, spec=spec))
        else:
            entries = _slices(log, spec, queries)
            columns[spec.name] = _plain(entries.values())
            if spec.ages is not None:
                columns[spec.ages] = entries.ages()
    return columns


def smoothed_rate(positives: _Ints, impressions: _Ints, *, spec: RateColumn) -> npt.NDArray[np.float64]:
    """Returns (positives + prior * strength) / (impressions + strength); the prior itself where nothing is known."""
    rate = (positives + spec.prior * spec.strength) / (impressions + spec.strength)
    return np.where((positives == 0) & (impressions == 0), spec.prior, rate)


def _slices(log: EntityLog, spec: HistoryColumn, queries: Queries) -> Slices:
    return log.histories[spec.name].slices(queries, length=spec.length, horizon_ms=whole_ms(spec.horizon_s))


def state_at(log: EntityLog, specs: Sequence[DerivedColumn], time_ms: int) -> pa.Table:
    """Returns the state of what lies strictly before a time."""
    totals = _totals(log, specs, _same_moment(np.arange(log.keys.num_rows), time_ms, log))
    seen = np.flatnonzero(np.logical_or.reduce([total > 0 for total in totals.values()]))
    queries = _same_moment(seen, time_ms, log)
    columns: _Columns = dict(zip(log.keys.column_names, log.keys.take(pa.array(seen)).columns, strict=True))
    columns |= values_at(log, specs, queries)
    columns |= {name: pa.array(total[seen]) for name, total in totals.items()}
    for spec in specs:
        if isinstance(spec, HistoryColumn):
            columns[KNOWN_PREFIX + spec.name] = _slices(log, spec, queries).known()
    return pa.table(columns)


def _same_moment(codes: _Ints, time_ms: int, log: EntityLog) -> Queries:
    cutoffs = np.full(len(codes), time_ms, np.int64)
    return Queries(codes=codes, cutoffs=cutoffs, rows=np.arange(len(codes)), num_rows=len(codes), scale=log.scale)


def _totals(log: EntityLog, specs: Sequence[DerivedColumn], queries: Queries) -> dict[str, _Ints]:
    totals = {}
    for label in (None, *labels_used(specs)):
        counter = log.counters[label]
        totals[total_column(label)] = counter.count(queries, window_ms=None, until=counter.until(queries))
    return totals


def _plain(lists: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns lists with their elements as they are: the order of a dictionary would be that of the rows given."""
    if not pa.types.is_dictionary(lists.type.value_type):
        return lists
    chunks = [pa.ListArray.from_arrays(chunk.offsets, chunk.values.dictionary_decode()) for chunk in lists.chunks]
    return pa.chunked_array(chunks, pa.list_(lists.type.value_type.value_type))


def state_schema(rows: pa.Schema, specs: Sequence[DerivedColumn]) -> pa.Schema:
    """Returns the schema of a state of these columns, of rows with this schema."""
    fields = [(name, _plain_type(rows.field(name).type)) for name in specs[0].key]
    for spec in specs:
        if isinstance(spec, HistoryColumn):
            fields.append((spec.name, pa.list_(_plain_type(rows.field(spec.value).type))))
            fields += [(spec.ages, pa.list_(pa.int64()))] if spec.ages is not None else []
        else:
            fields.append((spec.name, pa.int64() if isinstance(spec, CountColumn) else pa.float64()))
    fields += [(total_column(label), pa.int64()) for label in (None, *labels_used(specs))]
    fields += [(KNOWN_PREFIX + one.name, pa.list_(pa.int64())) for one in specs if isinstance(one, HistoryColumn)]
    return pa.schema(fields)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind

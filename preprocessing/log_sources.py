"""Which sources a config uses, how each is cleaned, and which of them are logs of events with a clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from preprocessing.spec import ActionLabel, DataSpec, Period, SourceSpec

__all__ = [
    "HASH_COLUMN",
    "MS_PER_S",
    "EventClock",
    "SourceFile",
    "actions_of",
    "cleaned_source",
    "clock_of",
    "event_sources",
    "longest_window_ms",
    "side_sources",
]

MS_PER_S = 1000
HASH_COLUMN = "__hash"  # uint64, of all declared columns of the row
_LATEST_MS = float(2**62)


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """A file of a source, and what tells its content."""

    path: str
    fingerprint: str


@dataclasses.dataclass(frozen=True)
class EventClock:
    """How the rows of a log of events are placed in time.

    Attributes:
        event_time: timestamp column; None if events have no time.
        arrival_time: timestamp column; None if a row arrives as it happens.
        time_zone: whose calendar the periods follow.
        period: unit of time.
        allowed_lateness_ms: rows that arrive later than this are dropped and counted; None: none are.
        future_tolerance_ms: events later than their arrival, or than the run, by more than this are rejects.
        bucket_key: columns whose equal values meet in one bucket; empty: equal rows do.
    """

    event_time: str | None
    arrival_time: str | None
    time_zone: str
    period: Period
    allowed_lateness_ms: int | None
    future_tolerance_ms: int
    bucket_key: tuple[str, ...]


def actions_of(spec: DataSpec) -> dict[str, ActionLabel]:
    """Returns every declaration of actions: of labels by their names, of the weight under an empty name."""
    actions = {label.name: label.action for label in spec.labels if label.action is not None}
    return actions if spec.weight is None else {**actions, "": spec.weight}


def longest_window_ms(spec: DataSpec) -> int:
    """Returns the longest attribution window; 0 without actions."""
    return max((round(action.window_s * MS_PER_S) for action in actions_of(spec).values()), default=0)


def event_sources(spec: DataSpec) -> list[str]:
    """Returns the impressions, then the action logs, each once."""
    return list(dict.fromkeys([spec.impressions, *(action.source for action in actions_of(spec).values())]))


def side_sources(spec: DataSpec) -> list[str]:
    """Returns the side tables, each once, in the order of the joins."""
    return list(dict.fromkeys(join.source for join in spec.joins))


def clock_of(spec: DataSpec, source: str) -> EventClock:
    """Returns how the events of a log are placed in time."""
    declared = spec.sources[source]
    impressions = source == spec.impressions
    event_time = spec.roles.event_time if impressions else declared.event_time
    if spec.roles.event_time is None:  # impressions without a time: nothing can be placed
        event_time = None
    arrival = (spec.roles.arrival_time or declared.arrival_time) if impressions else declared.arrival_time
    return EventClock(
        event_time=event_time,
        arrival_time=arrival if event_time is not None else None,
        time_zone=spec.time_zone,
        period=spec.period,
        allowed_lateness_ms=None if spec.allowed_lateness_s is None else round(spec.allowed_lateness_s * MS_PER_S),
        future_tolerance_ms=round(spec.future_tolerance_s * MS_PER_S),
        bucket_key=declared.duplicates if impressions and isinstance(declared.duplicates, tuple) else (),
    )


def cleaned_source(spec: DataSpec, source: str) -> SourceSpec:
    """Returns a source as it is to be cleaned.

    The clock of an event is required, and absurd before 1970 or beyond any calendar. A sample weight below 0 is out
    of range.
    """
    declared = spec.sources[source]
    clocks: Sequence[str | None] = ()
    if source in event_sources(spec):
        clock = clock_of(spec, source)
        clocks = (clock.event_time, clock.arrival_time)
    columns = dict(declared.columns)
    for name in clocks:
        if name is not None:
            column = columns[name]
            latest = _LATEST_MS if column.max is None else min(_LATEST_MS, column.max)
            columns[name] = column.model_copy(
                update={"required": True, "min": max(0.0, column.min or 0.0), "max": latest}
            )
    for name in (spec.roles.weight, spec.weight.value if spec.weight and spec.weight.source == source else None):
        if name is not None and name in columns:
            columns[name] = columns[name].model_copy(update={"min": max(0.0, columns[name].min or 0.0)})
    return declared.model_copy(update={"columns": columns})

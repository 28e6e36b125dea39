"""Point-in-time columns by the definition: for each row a walk over all rows, in exact Python numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from preprocessing.spec import CountColumn, DerivedColumn, HistoryColumn, RateColumn

LEAST = -(2**63)


@dataclasses.dataclass(frozen=True)
class Row:
    """An impression; `known` by label, None where it never became positive."""

    user: bytes | None
    category: int | None
    item: int | None
    time: int
    visible: int
    known: tuple[int | None, int | None]  # of click, of buy
    cutoff: int
    query: bool
    order: int

    def key(self, names: Sequence[str]) -> tuple[Any, ...] | None:
        key = tuple(getattr(self, name) for name in names)
        return None if None in key else key

    def known_of(self, label: str) -> int | None:
        return self.known[("click", "buy").index(label)]


def table_of_rows(rows: Sequence[Row]) -> pa.Table:
    return pa.table(
        {
            "user": pa.array([row.user for row in rows], pa.binary()),
            "category": pa.array([row.category for row in rows], pa.int64()),
            "item": pa.array([row.item for row in rows], pa.int64()),
            "__time": pa.array([row.time for row in rows], pa.int64()),
            "__visible": pa.array([row.visible for row in rows], pa.int64()),
            "__known_click": pa.array([row.known[0] for row in rows], pa.int64()),
            "__known_buy": pa.array([row.known[1] for row in rows], pa.int64()),
            "__cutoff": pa.array([row.cutoff for row in rows], pa.int64()),
            "__query": pa.array([row.query for row in rows], pa.bool_()),
            "__order": pa.array([row.order for row in rows], pa.uint64()),
        }
    )


def events_before(rows: Sequence[Row], key: Any, names: Sequence[str], label: str | None, cutoff: int) -> list[Any]:
    """Returns (time, row) of the events of a key strictly before a cutoff."""
    found = []
    for row in rows:
        time = row.visible if label is None else row.known_of(label)
        if key is not None and row.key(names) == key and time is not None and time < cutoff:
            found.append((time, row))
    return found


def count(rows: Sequence[Row], key: Any, spec: Any, label: str | None, cutoff: int) -> int:
    since = LEAST if spec.window_s is None else max(cutoff - round(spec.window_s * 1000), LEAST)
    return sum(time >= since for time, _ in events_before(rows, key, spec.key, label, cutoff))


def history(rows: Sequence[Row], key: Any, spec: HistoryColumn, cutoff: int) -> list[tuple[int, Any]]:
    """Returns (known, value), newest first."""
    since = LEAST if spec.horizon_s is None else cutoff - round(spec.horizon_s * 1000)
    events = events_before(rows, key, spec.key, spec.label, cutoff)
    kept = [(time, row) for time, row in events if time >= since and getattr(row, spec.value) is not None]
    kept.sort(key=lambda one: (-one[0], -one[1].time, one[1].order))
    return [(time, getattr(row, spec.value)) for time, row in kept[: spec.length]]


def values(rows: Sequence[Row], key: Any, specs: Sequence[DerivedColumn], cutoff: int) -> dict[str, Any]:
    """Returns the value of each column of a key at a cutoff."""
    made: dict[str, Any] = {}
    for spec in specs:
        if isinstance(spec, CountColumn):
            made[spec.name] = count(rows, key, spec, spec.label, cutoff)
        elif isinstance(spec, RateColumn):
            positives, shown = count(rows, key, spec, spec.label, cutoff), count(rows, key, spec, None, cutoff)
            smoothed = (positives + spec.prior * spec.strength) / (shown + spec.strength)
            made[spec.name] = smoothed if positives or shown else spec.prior
        else:
            found = history(rows, key, spec, cutoff)
            made[spec.name] = [value for _, value in found]
            if spec.ages is not None:
                made[spec.ages] = [(cutoff - time) // 1000 for time, _ in found]
    return made


def columns_by_definition(rows: Sequence[Row], specs: Sequence[DerivedColumn]) -> list[dict[str, Any]]:
    return [values(rows, row.key(specs[0].key), specs, row.cutoff) for row in rows if row.query]


def state_by_definition(rows: Sequence[Row], specs: Sequence[DerivedColumn], end: int) -> dict[Any, dict[str, Any]]:
    """Returns the row of the state of each key."""
    names = specs[0].key
    labels = {spec.label for spec in specs if spec.label is not None}
    state: dict[Any, dict[str, Any]] = {}
    for key in {key for row in rows if (key := row.key(names)) is not None}:
        totals = {"__impressions": len(events_before(rows, key, names, None, end))}
        totals |= {f"__positives_{label}": len(events_before(rows, key, names, label, end)) for label in labels}
        if any(totals.values()):
            known = {
                f"__known_{spec.name}": [time for time, _ in history(rows, key, spec, end)]
                for spec in specs
                if isinstance(spec, HistoryColumn)
            }
            state[key] = dict(zip(names, key, strict=True)) | values(rows, key, specs, end) | totals | known
    return state

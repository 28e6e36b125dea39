"""The life of one version, and what to do next for a model: decisions without threads or clocks."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from serving.server.status import StatusError

__all__ = ["State", "VersionRecord", "aspire", "is_settled", "to_load", "to_unload"]

S = TypeVar("S")


class State(enum.IntEnum):
    """States of a version; the numbers are those of ModelVersionStatus.State."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


@dataclasses.dataclass
class VersionRecord(Generic[S]):
    """A version that was seen, whatever became of it.

    Attributes:
        aspired: whether the last poll wanted it.
        error: why it ended, if its load failed.
        attempts: loads that have failed.
        not_before_s: clock time before which it is not loaded again.
        in_flight: a load is running or queued.
        references: requests that hold the servable.
    """

    number: int
    path: Path
    state: State = State.START
    aspired: bool = True
    error: StatusError | None = None
    attempts: int = 0
    not_before_s: float = 0.0
    in_flight: bool = False
    references: int = 0
    servable: S | None = None


def aspire(records: dict[int, VersionRecord[S]], wanted: Mapping[int, Path]) -> None:
    """Updates the records of a model to what a poll found.

    A version that failed is tried again only if it was gone for a poll; one that is unloading is first finished.
    """
    for number, path in wanted.items():
        record = records.get(number)
        if record is None or (record.state is State.END and not record.aspired):
            records[number] = VersionRecord(number, path)
        elif record.state is not State.UNLOADING:
            record.aspired = True
    for number, record in records.items():
        if number in wanted:
            continue
        record.aspired = False
        if record.state in {State.START, State.LOADING} and not record.in_flight:
            record.state = State.END


def to_unload(records: Iterable[VersionRecord[S]]) -> list[VersionRecord[S]]:
    """Returns the available versions to retire: those not aspired, once an aspired one serves or none is wanted."""
    known = list(records)
    aspired = [record for record in known if record.aspired]
    if aspired and not any(record.state is State.AVAILABLE for record in aspired):
        return []
    return [record for record in known if record.state is State.AVAILABLE and not record.aspired]


def to_load(records: Iterable[VersionRecord[S]], *, now_s: float) -> list[VersionRecord[S]]:
    """Returns the versions whose load is due, newest first."""
    due = [
        record
        for record in records
        if record.aspired
        and record.state in {State.START, State.LOADING}
        and not record.in_flight
        and record.not_before_s <= now_s
    ]
    return sorted(due, key=lambda record: record.number, reverse=True)


def is_settled(records: Iterable[VersionRecord[S]]) -> bool:
    """Returns whether a model has a version available, or all that it wants have failed."""
    known = list(records)
    if any(record.state is State.AVAILABLE for record in known):
        return True
    aspired = [record for record in known if record.aspired]
    return bool(aspired) and all(record.state is State.END for record in aspired)

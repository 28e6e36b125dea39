"""Rules of a config about point-in-time columns and what they need: a clock, labels with a time, keys and values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pipeline.config_columns import KEPT_IN_HISTORIES, late_columns, named, unknown
from preprocessing.derived_spec import DerivedColumn, HistoryColumn, columns_made
from preprocessing.source_spec import ColumnSpec
from preprocessing.spec import DataSpec

__all__ = ["check_derived"]


def check_derived(data: DataSpec, columns: Mapping[str, ColumnSpec]) -> Iterator[str]:
    """Yields a line for each broken rule; `columns` are the declared ones of the joined rows."""
    yield from _check_clock(data)
    late = late_columns(data)
    taken = dict.fromkeys(columns, "a declared column")
    for i, derived in enumerate(data.derived):
        path = f"data.derived[{i}] ({derived.name})"
        for name in columns_made(derived):
            if name in taken:
                yield f"{path}: the name {name!r} is taken by {taken[name]}"
            elif name.startswith("__"):
                yield f"{path}: names that begin with __ are kept for preprocessing; rename {name!r}"
            taken.setdefault(name, "an earlier point-in-time column")
        yield from _check_reads(path, derived, columns, late=late)
        yield from _check_label(path, derived.label, data)


def _check_clock(data: DataSpec) -> Iterator[str]:
    if data.roles.event_time is not None:
        return
    users = [f"data.derived[{i}] ({derived.name})" for i, derived in enumerate(data.derived)]
    users += ["data.freshness: day"] if data.freshness == "day" else []
    users += [f"data.joins[{i}].valid_from" for i, join in enumerate(data.joins) if join.valid_from is not None]
    for user in users:
        yield f"{user}: needs to know when an impression was; name data.roles.event_time"


def _check_reads(
    path: str, derived: DerivedColumn, columns: Mapping[str, ColumnSpec], *, late: Mapping[str, str]
) -> Iterator[str]:
    reads = [(f"{path}.key", column) for column in derived.key]
    for part, column in reads:
        yield from named(part, column, columns)
    if isinstance(derived, HistoryColumn):
        reads.append((f"{path}.value", derived.value))
        yield from named(f"{path}.value", derived.value, columns, types=KEPT_IN_HISTORIES)
    for part, column in reads:
        if column in late:
            yield f"{part}: column {column!r} is {late[column]}, which is not known when an impression is shown"


def _check_label(path: str, name: str | None, data: DataSpec) -> Iterator[str]:
    if name is None:
        return
    labels = {label.name: (i, label) for i, label in enumerate(data.labels)}
    if name not in labels:
        yield unknown(f"{path}.label", name, "label", labels)
        return
    place, label = labels[name]
    if label.action is None and label.delay_s is None:
        yield (
            f"{path}.label: {name!r} comes from a column and has no time of its own; "
            f"data.labels[{place}].delay_s says from when it is known"
        )

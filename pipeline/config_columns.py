"""The columns that the parts of a config may name, and the lines that say what is wrong with a name."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import cast

from preprocessing.derived_spec import DerivedColumn, HistoryColumn, RateColumn
from preprocessing.explode import columns_after
from preprocessing.source_spec import ColumnSpec, ColumnType, SourceSpec
from preprocessing.spec import DataSpec

__all__ = [
    "KEPT_IN_HISTORIES",
    "NUMBERS",
    "TOKENS",
    "declared_columns",
    "joined_columns",
    "late_columns",
    "named",
    "timestamp",
    "unknown",
]

TOKENS = {"string", "int64", "bool"}
KEPT_IN_HISTORIES = {"string", "int64", "float64"}
NUMBERS = {"int64", "float64", "bool"}
_MOST_NAMES = 40  # in one message


def declared_columns(data: DataSpec) -> dict[str, ColumnSpec]:
    """Returns the declared columns of the joined rows: of the impressions, exploded, then of each side table."""
    columns = columns_after(data.sources[data.impressions])
    for join in data.joins:
        for name, spec in data.sources[join.source].columns.items():
            columns.setdefault(name, spec)
    return columns


def joined_columns(data: DataSpec) -> dict[str, ColumnSpec]:
    """Returns all columns that a feature may be made of: the declared ones, then the point-in-time ones."""
    columns = declared_columns(data)
    for derived in data.derived:
        columns |= _derived_columns(derived, columns)
    return columns


def _derived_columns(derived: DerivedColumn, columns: Mapping[str, ColumnSpec]) -> dict[str, ColumnSpec]:
    if isinstance(derived, HistoryColumn):
        value = columns.get(derived.value)
        kept = value.type if value is not None and value.type in KEPT_IN_HISTORIES else "string"
        made = {derived.name: ColumnSpec(type=cast(ColumnType, f"list<{kept}>"))}
        return made | ({derived.ages: ColumnSpec(type="list<int64>")} if derived.ages else {})
    return {derived.name: ColumnSpec(type="float64" if isinstance(derived, RateColumn) else "int64")}


def late_columns(data: DataSpec) -> dict[str, str]:
    """Returns the columns that say what is not known when an impression is shown, each with what it is."""
    columns = {}
    for label in data.labels:
        if label.action is None:
            columns[label.comparison()[0]] = f"the label {label.name!r}"
    impressions = data.sources[data.impressions]
    arrivals = [data.roles.arrival_time, impressions.arrival_time]
    arrivals += [data.sources[join.source].arrival_time for join in data.joins]
    for arrival in arrivals:
        if arrival is not None and arrival != data.roles.event_time:
            columns.setdefault(arrival, "an arrival time")
    return columns


def unknown(path: str, name: str, what: str, known: Collection[str]) -> str:
    """Returns the line for a name that does not exist, with the nearest one that does."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else _some_of(sorted(known))
    return f"{path}: no {what} {name!r}; {hint}"


def _some_of(names: Sequence[str]) -> str:
    if len(names) <= _MOST_NAMES:
        return f"there are: {', '.join(names)}"
    return f"there are {len(names)}, such as {', '.join(names[:: len(names) // 5][:5])}"


def named(
    path: str, name: str, columns: Mapping[str, ColumnSpec], *, of: str = "", types: Collection[str] = ()
) -> Iterator[str]:
    """Yields a line if there is no such column, or its type is none of `types` (none given: any but a list).

    Args:
        path: dotted path of the key that names it.
        name: the column.
        columns: those that there are.
        of: whose columns these are, such as " of the action log".
        types: types that will do.
    """
    if name not in columns:
        yield unknown(path, name, f"column{of}", columns)
        return
    kind = columns[name].type
    if types and kind not in types:
        yield f"{path}: column {name!r} is {kind}, and must be {' or '.join(sorted(types))}"
    elif not types and kind.startswith("list<"):
        yield f"{path}: column {name!r} is {kind}, and a list is not one value; name another column"


def timestamp(path: str, name: str | None, source: SourceSpec) -> Iterator[str]:
    """Yields a line if a clock that is given is no timestamp column of its source."""
    if name is not None:
        yield from named(path, name, source.columns, types={"timestamp"})

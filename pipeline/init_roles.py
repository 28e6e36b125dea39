"""How sources belong together, as far as names and values tell: impressions, action logs, side tables, labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import init_names as names
from pipeline.init_labels import binary_columns, guess_label
from pipeline.init_parts import ActionLog, LabelGuess, RoleGuess, SideTable
from pipeline.init_sources import Table
from preprocessing.guess import ColumnGuess

__all__ = ["ActionLog", "LabelGuess", "Plan", "RoleGuess", "SideTable", "plan_roles"]

_IMPRESSIONS = frozenset(
    ("impression", "impressions", "exposure", "exposures", "log", "logs", "rating", "ratings", "interaction")
)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything found out about a folder of logs."""

    impressions: Table
    roles: RoleGuess
    sides: tuple[SideTable, ...]
    actions: tuple[ActionLog, ...]
    label: LabelGuess
    left_out: tuple[tuple[str, str], ...]


def plan_roles(tables: Sequence[Table]) -> Plan:
    """Returns which table plays which part.

    Raises:
        SourceError: if nothing could be a label.
    """
    impressions = max(tables, key=_impression_score)
    roles = _roles(impressions)
    sides, actions, left_out = [], [], []
    used_tables = [impressions]
    for table in (table for table in tables if table is not impressions):
        twin = next((used for used in used_tables if set(used.columns) == set(table.columns)), None)
        if twin is not None:
            left_out.append(
                (table.name, f"has the columns of {twin.name}: add its files to that one's paths if it is more of it")
            )
            continue
        action = _action_log(table, impressions, roles)
        if action is not None:
            actions.append(action)
            continue
        side = _side_table(table, impressions, roles)
        reason = "shares no key with the impressions" if side is None else _refused(side, roles)
        if side is None or reason:
            left_out.append((table.name, reason))
        else:
            sides.append(side)
            used_tables.append(table)
    label = guess_label(impressions, roles, actions)
    return Plan(impressions, roles, tuple(sides), tuple(actions), label, tuple(left_out))


def _impression_score(table: Table) -> tuple[float, int]:
    columns = table.columns
    found = sum(4 for entity in (names.USER, names.ITEM) if _entity(columns, entity) is not None)
    found += 3 if _times(columns) else 0
    parts = set(names.words(table.name))
    found += 1 if parts & _IMPRESSIONS else 0
    found -= 2 if parts & names.ACTION else 0
    return found + (1 if binary_columns(columns) else 0), table.rows


def _entity(columns: Mapping[str, ColumnGuess], entity: frozenset[str]) -> str | None:
    """Returns the column that identifies an entity; of equally good names the one with more values."""
    scored = [
        (names.entity_score(name, entity), column.distinct, name)
        for name, column in columns.items()
        if column.type in ("string", "int64") and not column.is_binary
    ]
    best = max(scored, default=(0, 0, ""))
    return best[2] if best[0] else None


def _times(columns: Mapping[str, ColumnGuess]) -> list[str]:
    """Returns the columns that could be the time of an event, the finest first."""
    times = [
        name
        for name, column in columns.items()
        if column.type == "timestamp" and column.missing_share < 0.5 and not set(names.words(name)) & names.ARRIVAL
    ]
    return sorted(
        times, key=lambda name: (columns[name].date_only, columns[name].missing_share, -columns[name].distinct)
    )


def _arrival(columns: Mapping[str, ColumnGuess]) -> str | None:
    return next((n for n, c in columns.items() if c.type == "timestamp" and set(names.words(n)) & names.ARRIVAL), None)


def _roles(table: Table) -> RoleGuess:
    columns = table.columns
    user, item = _entity(columns, names.USER), _entity(columns, names.ITEM)
    taken = {user, item}
    row_id = next((n for n, c in columns.items() if _is_row_id(n, c) and n not in taken), None)
    requests = [n for n in columns if names.entity_score(n, names.REQUEST) >= 2 and n not in (row_id, *taken)]
    positions = [n for n, c in columns.items() if set(names.words(n)) & names.POSITION and c.type == "int64"]
    return RoleGuess(
        row_id=row_id,
        request=next((n for n in requests if columns[n].type in ("string", "int64")), None),
        user=user,
        item=item if item != user else None,
        event_time=next(iter(_times(columns)), None),
        arrival_time=_arrival(columns) if _times(columns) else None,
        position=next(iter(positions), None),
    )


def _is_row_id(name: str, column: ColumnGuess) -> bool:
    return names.is_identifier(name) and column.is_unique and column.type in ("string", "int64")


def _shared(table: Table, impressions: Table, wanted: Iterable[str | None]) -> list[str]:
    return [name for name in wanted if name is not None and name in table.columns and name in impressions.columns]


def _action_log(table: Table, impressions: Table, roles: RoleGuess) -> ActionLog | None:
    """Returns a table as an action log if it has a time and names impressions; several rows may name one."""
    times = _times(table.columns)
    if not times or roles.event_time is None:
        return None
    by_row = _shared(table, impressions, [roles.row_id])
    by_pair = _shared(table, impressions, [roles.user, roles.item])
    key = by_row or (by_pair if len(by_pair) == 2 else [])
    if not key or (len(key) == 2 and any(table.columns[name].is_unique for name in key)):
        return None
    return ActionLog(table, tuple(key), times[0], _arrival(table.columns))


def _side_table(table: Table, impressions: Table, roles: RoleGuess) -> SideTable | None:
    candidates = []
    for own, column in table.columns.items():
        if not column.is_unique or column.type not in ("string", "int64"):
            continue
        for name, other in impressions.columns.items():
            overlap = _overlap(column, other)
            if names.same_name(own, name) and overlap > 0:
                candidates.append((2.0 + overlap, own, name))
            elif name in (roles.user, roles.item) and own == "id" and overlap >= 0.9 and _is_of(table.name, name):
                candidates.append((1.0 + overlap, own, name))
    best = max(candidates, default=None)
    return SideTable(table, best[1], best[2]) if best else None


def _is_of(table: str, column: str) -> bool:
    """Returns whether a table is named after the entity of a column: users, user_id."""
    return any(part.rstrip("s") in names.words(column) for part in names.words(table))


def _overlap(side: ColumnGuess, column: ColumnGuess) -> float:
    """Returns the share of a column's distinct values that the side table has."""
    if column.type not in ("string", "int64"):
        return 0.0
    values = pc.unique(column.values.drop_null())
    return float(pc.mean(pc.is_in(values, value_set=side.values.drop_null()).cast(pa.int8())).as_py() or 0.0)


def _refused(side: SideTable, roles: RoleGuess) -> str:
    """Returns why a table that could be joined should not be, as far as names tell; empty if it may."""
    if side.key == roles.row_id:
        return "one row for each impression: if it is known only afterwards it leaks; join it if it is not"
    numbers = [
        name for name, column in side.table.columns.items() if column.numbers is not None and name != side.own_key
    ]
    feedback = [name for name in numbers if set(names.words(name)) & (names.FEEDBACK | {"show", "impression"})]
    if len(feedback) >= 3 and len(feedback) >= 0.6 * len(numbers):
        return (
            f"{len(feedback)} of its {len(numbers)} numbers ({', '.join(feedback[:3])}, ...) seem to count feedback: "
            "if the days they cover include labelled ones they leak; join it if they end before"
        )
    return ""

"""Columns of the sources as a config declares them, the features made of them, and what is said beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline import init_names as names
from pipeline.init_features import Proposal, fit_name, propose
from pipeline.init_leaks import leak_reason
from pipeline.init_roles import ActionLog, Plan, SideTable
from pipeline.init_sources import Table
from preprocessing.guess import ColumnGuess

__all__ = ["Line", "SourceLines", "action_lines", "impression_lines", "side_lines"]

_TOKENS = ("categorical", "hashed")
_LEAK = "result of the impression? then it must not be a feature"
_POSITION = "known only once the row is placed: leave it out if it is not when serving"


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a config: a value, and a comment."""

    value: Mapping[str, Any] | str
    comment: str = ""


@dataclasses.dataclass(frozen=True)
class SourceLines:
    """What a config says of a source.

    Attributes:
        table: the source.
        columns: declared columns by their names.
        features: of these columns.
        left_out: columns that make no feature, with the reason.
    """

    table: Table
    columns: Mapping[str, Line]
    features: tuple[Line, ...]
    left_out: tuple[tuple[str, str], ...]


def impression_lines(plan: Plan) -> SourceLines:
    """Returns the columns of the impressions, all of them: an exact duplicate is then a row equal in all columns."""
    table, clocks = plan.impressions, (plan.roles.event_time, plan.roles.arrival_time)
    required = {plan.label.source_column, *(plan.label.action.key if plan.label.action is not None else ())}
    lines: dict[str, Line] = {}
    features: list[Line] = []
    left_out: list[tuple[str, str]] = []
    for name, column in table.columns.items():
        verdict = _judge(name, _declared(name, table), column, plan)
        spec = _declaration(name, table, column, verdict, required=name in required, clock=name in clocks)
        lines[_declared(name, table)] = Line(spec, verdict.comment)
        features += verdict.features
        left_out += [(_declared(name, table), verdict.reason)] if verdict.reason else []
    return SourceLines(table, lines, tuple(features), tuple(left_out))


@dataclasses.dataclass(frozen=True)
class _Verdict:
    """Features of a column, why it makes none, and what is said beside its declaration."""

    features: tuple[Line, ...] = ()
    reason: str = ""
    comment: str = ""

    @property
    def is_tokens(self) -> bool:
        """Whether the values are tokens, whatever they look like."""
        return any(isinstance(line.value, Mapping) and line.value["kind"] in _TOKENS for line in self.features)


def _judge(name: str, declared: str, column: ColumnGuess, plan: Plan) -> _Verdict:
    """Returns what becomes of a column of the impressions."""
    roles, label = plan.roles, plan.label
    if name == label.source_column:
        return _Verdict(comment="the label")
    if name in (roles.row_id, roles.request, roles.event_time, roles.arrival_time):
        return _Verdict()
    entity = name in (roles.user, roles.item)
    leak = "" if entity else leak_reason(name, column, label.values)
    if leak:
        return _Verdict(reason=f"suspected leak: {leak}", comment=_LEAK)
    if name == roles.position and column.numbers is not None:
        size = int(np.nanmax(column.numbers)) + 1
        return _Verdict((Line({"name": fit_name(declared), "kind": "integer", "size": max(1, size)}, _POSITION),))
    return _verdict(propose(declared, column, rows=plan.impressions.rows, entity=entity))


def _verdict(proposal: Proposal) -> _Verdict:
    if not proposal.features:
        return _Verdict(reason=proposal.comment)
    return _Verdict(tuple(Line(feature, proposal.comment) for feature in proposal.features))


def action_lines(action: ActionLog) -> SourceLines:
    """Returns the columns of an action log that matter: key and clocks."""
    table, clocks = action.table, (action.event_time, action.arrival_time)
    wanted = [*action.key, *(clock for clock in clocks if clock is not None)]
    columns = {}
    for name in wanted:
        spec = _declaration(
            name, table, table.columns[name], _Verdict(), required=name in action.key, clock=name in clocks
        )
        columns[_declared(name, table)] = Line(spec)
    return SourceLines(table, columns, (), ())


def side_lines(side: SideTable, *, taken: Mapping[str, str], key: str) -> SourceLines:
    """Returns the columns of a side table that make features, and its key.

    Args:
        side: the table.
        taken: names of columns that other sources declare.
        key: name of the key in the impressions, as declared.
    """
    table = side.table
    own = table.columns[side.own_key]
    columns = {key: Line(_declaration(side.own_key, table, own, _Verdict(), declared=key, required=True))}
    features: list[Line] = []
    left_out: list[tuple[str, str]] = []
    for name, column in table.columns.items():
        if name == side.own_key:
            continue
        declared = _declared(name, table)
        declared = f"{table.name}_{declared}" if declared in taken or declared in columns else declared
        verdict = _verdict(propose(declared, column, rows=table.rows))
        if verdict.features:
            columns[declared] = Line(_declaration(name, table, column, verdict, declared=declared))
            features += verdict.features
        else:
            left_out.append((declared, verdict.reason))
    return SourceLines(table, columns, tuple(features), tuple(left_out))


def _declared(name: str, table: Table) -> str:
    """Returns the name of a column in the config; a dot reaches into nested values of formats that have them."""
    nested = table.sample.format in ("jsonl", "parquet")
    return fit_name(name.replace(".", "_") if nested else name)


def _declaration(
    name: str,
    table: Table,
    column: ColumnGuess,
    verdict: _Verdict,
    *,
    declared: str | None = None,
    required: bool = False,
    clock: bool = False,
) -> Mapping[str, Any]:
    """Returns a column as a config declares it; identifiers and tokens are text, whatever they look like."""
    as_text = verdict.is_tokens or (names.is_identifier(name) and column.type == "int64")
    spec: dict[str, Any] = {"type": "string" if as_text else column.type}
    if spec["type"] == "timestamp" and column.unit not in (None, "ms"):
        spec["unit"] = column.unit
    if column.delimiter is not None:
        spec["delimiter"] = column.delimiter
    declared = declared or _declared(name, table)
    if declared != name:
        spec["source_name"] = name
    if column.missing:
        spec["missing"] = list(column.missing)
    if required:
        spec["required"] = True
    if column.invalid_share > 0 and not (as_text or required or clock):
        spec["on_invalid"] = "missing"
    return spec

"""Lists of items, such as what a user watched: they share the embedding table of the item itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.init_columns import Line, SourceLines
from pipeline.init_roles import Plan
from preprocessing.guess import ColumnGuess

__all__ = ["share_item_table"]

# Shares of the items that a list must hold, and of its own values that must be items: small numbers look alike.
_OF_ITEMS, _OF_VALUES = 0.2, 0.4


def share_item_table(
    plan: Plan, impressions: SourceLines, sides: Sequence[tuple[str, SourceLines]]
) -> list[tuple[str, SourceLines]]:
    """Returns the side tables; lists of items read the item's table, under the same rules for its vocabulary."""
    item = plan.roles.item
    owner = next((line.value for line in impressions.features if _reads(line, item)), None)
    if item is None or not isinstance(owner, Mapping) or owner["kind"] != "categorical":
        return list(sides)
    known = pc.unique(plan.impressions.columns[item].values.drop_null())
    return [(key, _shared(lines, known, owner)) for key, lines in sides]


def _reads(line: Line, column: str | None) -> bool:
    return isinstance(line.value, Mapping) and column in (line.value.get("column"), line.value["name"])


def _shared(lines: SourceLines, known: pa.Array, owner: Mapping[str, Any]) -> SourceLines:
    features = tuple(
        Line(_with_table(line.value, owner), "of items: shares their table")
        if isinstance(line.value, Mapping) and _holds_items(line.value, lines, known)
        else line
        for line in lines.features
    )
    return dataclasses.replace(lines, features=features)


def _holds_items(feature: Mapping[str, Any], lines: SourceLines, known: pa.Array) -> bool:
    if feature["kind"] != "multivalued":
        return False
    declared = feature.get("column", feature["name"])
    value = lines.columns[declared].value
    name = value.get("source_name", declared) if isinstance(value, Mapping) else declared
    column: ColumnGuess = lines.table.columns[name]
    elements = pc.unique(column.values.flatten().drop_null())
    both = pc.sum(pc.is_in(known, value_set=elements).cast(pa.int64())).as_py() or 0
    return bool(both > 1 and both >= _OF_ITEMS * len(known) and both >= _OF_VALUES * len(elements))


def _with_table(feature: Mapping[str, Any], owner: Mapping[str, Any]) -> dict[str, Any]:
    shared = {name: value for name, value in feature.items() if name != "min_count"}
    shared["table"] = owner["name"]
    return {**shared, **({"min_count": owner["min_count"]} if "min_count" in owner else {})}

"""Types by which Arrow is likely to read JSON lines, told from the first of them, and the columns in what it read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.nested import array_at, value_at
from preprocessing.spec import ColumnSpec

__all__ = ["LIST_ELEMENTS", "flat_batch", "guess_schema"]

LIST_ELEMENTS = {"list<string>": pa.binary(), "list<int64>": pa.int64(), "list<float64>": pa.float64()}
_LIST = None  # in a path or a tree of keys: what follows is in the elements of a list


def guess_schema(
    objects: Sequence[dict[str, Any]], columns: Mapping[str, ColumnSpec], *, literal: frozenset[str]
) -> pa.Schema | None:
    """Returns a schema with every column, nested where its name is a path; None if no schema can hold them all.

    Args:
        objects: some of the rows.
        columns: by name or dotted path.
        literal: the dotted names that may stand as keys in some row.
    """
    tree: dict[Any, Any] = {}
    for name, column in columns.items():
        kind = _guess_type(objects, name, column)
        if "." not in name or name in literal:
            if name in tree:
                return None
            tree[name] = kind
        steps = _steps(objects, name) if "." in name else [name]
        if _LIST in steps and (column.type not in LIST_ELEMENTS or name in literal):
            return None
        if "." in name and not _plant(tree, steps, kind):
            return None
    return pa.schema([(name, _type_of_tree(node)) for name, node in tree.items()])


def _steps(objects: Sequence[dict[str, Any]], name: str) -> list[str | None]:
    """Returns the parts of a path, with `_LIST` after each part but the last that holds lists."""
    *parts, last = name.split(".")
    steps: list[str | None] = []
    values: list[Any] = list(objects)
    for part in parts:
        steps.append(part)
        values = [value.get(part) for value in values if isinstance(value, dict)]
        if any(isinstance(value, list) for value in values):
            steps.append(_LIST)
            values = [element for value in values if isinstance(value, list) for element in value]
    return [*steps, last]


def _plant(tree: dict[Any, Any], steps: Sequence[str | None], kind: pa.DataType) -> bool:
    """Adds a leaf to a tree of keys; returns False where a key would be leaf and branch, or list and struct."""
    for step in steps[:-1]:
        if not isinstance(tree, dict) or (tree and (_LIST in tree) != (step is _LIST)):
            return False
        if step is _LIST and pa.types.is_list(kind):
            kind = kind.value_type
        tree = tree.setdefault(step, {})
    if not isinstance(tree, dict) or _LIST in tree or steps[-1] in tree:
        return False
    tree[steps[-1]] = kind
    return True


def _type_of_tree(node: Any) -> pa.DataType:
    if not isinstance(node, dict):
        return node
    if _LIST in node:
        return pa.list_(_type_of_tree(node[_LIST]))
    return pa.struct([(name, _type_of_tree(inner)) for name, inner in node.items()])


def flat_batch(batch: pa.RecordBatch, columns: Mapping[str, ColumnSpec]) -> pa.RecordBatch:
    """Returns the columns by their dotted names; a value under the whole name goes before the nested one."""
    return pa.RecordBatch.from_arrays([_column_at(batch, name) for name in columns], names=list(columns))


def _column_at(batch: pa.RecordBatch, name: str) -> pa.Array:
    root, *parts = name.split(".")
    literal = batch.column(name) if name in batch.schema.names else None
    nested = array_at(batch.column(root), parts) if parts and root in batch.schema.names else None
    if literal is not None and nested is not None:
        return pc.if_else(literal.is_valid(), literal, nested)
    found = literal if literal is not None else nested
    return pa.nulls(batch.num_rows) if found is None else found


def _natural_type(column: ColumnSpec) -> pa.DataType:
    if column.type in LIST_ELEMENTS:
        return pa.binary() if column.delimiter is not None else pa.list_(LIST_ELEMENTS[column.type])
    if column.type == "timestamp":
        return {"iso": pa.binary(), "s": pa.float64()}.get(column.unit, pa.int64())
    return {"string": pa.binary(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_()}[column.type]


def _guess_type(objects: Sequence[dict[str, Any]], name: str, column: ColumnSpec) -> pa.DataType:
    values = [value_at(row, name) for row in objects]
    seen = {_type_of(value, column) for value in values if value is not None}
    return seen.pop() if len(seen) == 1 else _natural_type(column)


def _type_of(value: Any, column: ColumnSpec) -> pa.DataType:
    """Returns the type of a value if Arrow gives it the same meaning as its text has, else one that Arrow refuses.

    What a row becomes must not depend on the rows around it: a list in a column of strings is JSON text, for example,
    and a truth value in a column of numbers is a fault.
    """
    if isinstance(value, list):
        if column.type not in LIST_ELEMENTS:
            return _natural_type(column)
        known = {_scalar_type(element, column) for element in value if element is not None}
        inner = known.pop() if len(known) == 1 else None
        return pa.list_(inner) if inner is not None else _natural_type(column)
    kind = _scalar_type(value, column)
    splits = column.type not in LIST_ELEMENTS or column.delimiter is not None
    return kind if kind is not None and (splits or kind != pa.binary()) else _natural_type(column)


def _scalar_type(value: Any, column: ColumnSpec) -> pa.DataType | None:
    if isinstance(value, str):
        return pa.binary()
    if isinstance(value, bool):
        return pa.bool_() if "string" in column.type or column.type == "bool" else None
    if isinstance(value, bytes):  # a number
        whole = value.lstrip(b"-").isdigit() and "float64" not in column.type and column.unit != "s"
        return pa.int64() if whole else pa.float64() if "string" not in column.type else None
    return None

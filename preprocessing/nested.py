"""Values by dotted path: a.b.c is the key `a.b.c` if there is one, else c in b in a.

A path goes through lists: of `items: [{id: 1}, {id: 2}]` the path `items.id` is the list `[1, 2]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["array_at", "is_any_list", "key_paths", "leaf_paths", "list_array", "value_at"]


def value_at(row: dict[str, Any], name: str) -> Any:
    """Returns the value of a JSON object at a name or a dotted path; None where there is none."""
    found = row.get(name)
    return _walk(row, name.split(".")) if found is None and "." in name else found


def _walk(value: Any, parts: Sequence[str]) -> Any:
    if not parts:
        return value
    if isinstance(value, list):
        return [_walk(element, parts) for element in value]
    return _walk(value.get(parts[0]), parts[1:]) if isinstance(value, dict) else None


def key_paths(value: Any, prefix: str = "") -> Iterator[str]:
    """Yields the dotted paths of all keys of a JSON object, those above others included."""
    if isinstance(value, list):
        value = next((element for element in value if isinstance(element, dict)), None)
    if isinstance(value, dict):
        for key, inner in value.items():
            yield prefix + key
            yield from key_paths(inner, f"{prefix}{key}.")


def array_at(array: pa.Array, parts: Sequence[str]) -> pa.Array | None:
    """Returns the part of a nested array at a path; None if its type has no such part.

    A part of a null struct is null, a part of a null list is a null list.
    """
    if not parts:
        return array
    if is_any_list(array.type):
        elements = array_at(array.flatten(), parts)
        return None if elements is None else list_array(elements, like=array)
    index = array.type.get_field_index(parts[0]) if pa.types.is_struct(array.type) else -1
    return array_at(pc.struct_field(array, indices=[index]), parts[1:]) if index >= 0 else None


def is_any_list(kind: pa.DataType) -> bool:
    """Returns whether a type is one of Arrow's list types that `flatten` understands."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def list_array(elements: pa.Array, *, like: pa.Array) -> pa.Array:
    """Returns lists of `elements`, with the lengths and nulls of the lists `like` (of any list type)."""
    sizes = pc.fill_null(pc.list_value_length(like), 0).to_numpy().astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), elements, mask=like.is_null())


def leaf_paths(schema: pa.Schema) -> list[tuple[str, ...]]:
    """Returns the path of each leaf of a schema, in the order of Parquet's leaf columns; lists add no part."""
    return [path for field in schema for path in _leaves(field.type, (field.name,))]


def _leaves(kind: pa.DataType, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(field.type, (*path, field.name))
    elif pa.types.is_map(kind):
        yield from _leaves(kind.key_type, (*path, "key"))
        yield from _leaves(kind.item_type, (*path, "value"))
    elif hasattr(kind, "value_type") and not pa.types.is_dictionary(kind):
        yield from _leaves(kind.value_type, path)
    else:
        yield path

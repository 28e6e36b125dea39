"""Arrow arrays of many types as arrays of few: what conversion has to know."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["plain"]


def plain(values: pa.Array) -> pa.Array:
    """Returns the array without dictionary or runs, all text as binary, and decimals and the like as text."""
    kind = values.type
    inner = _unwrapped(values)
    if inner is not None:
        return plain(inner)
    if pa.types.is_null(kind) or _is_text(kind):
        return values.cast(pa.binary())
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return values.cast(pa.list_(kind.value_type))
    return values.cast(pa.float32()) if pa.types.is_float16(kind) else values


def _unwrapped(values: pa.Array) -> pa.Array | None:
    """Returns the values under an encoding or in an exact type of their own, or None where they are plain."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return values.dictionary_decode()
    if pa.types.is_run_end_encoded(kind):
        return pc.run_end_decode(values)
    if isinstance(kind, pa.BaseExtensionType):
        return values.storage
    return values.cast(pa.string()) if pa.types.is_decimal(kind) else None


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary_view(kind)
    )

"""The keys of a request: values as JSON or Python holds them, in the types that a state is keyed by.

The same conversions as of any other column of a request: text or whole numbers as their digits, and the missing
marker of a type is no key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from preprocessing.errors import ServingError
from preprocessing.schema import MISSING_INT64, MISSING_STRING
from serving.features_hash import Key, KeyPart
from serving.features_layout import KeySet, KeyType

__all__ = ["distinct_keys", "key_of"]


def key_of(row: Mapping[str, Any], key_set: KeySet, *, position: int) -> Key | None:
    """Returns the key of a row, None where a part of it is missing.

    Raises:
        ServingError: if a part is of another type.
    """
    parts = []
    for name, kind in zip(key_set.key, key_set.types, strict=True):
        value = row.get(name)
        try:
            part = None if value is None else _part(value, kind)
        except (TypeError, ValueError, OverflowError) as error:
            raise ServingError(
                f"row {position}: {name!r} is a key of {_names(key_set)} and must be {kind}, got {value!r} ({error})"
            ) from error
        if part is None:
            return None
        parts.append(part)
    return tuple(parts)


def _names(key_set: KeySet) -> str:
    return ", ".join(one.name for one in key_set.columns)


def _part(value: Any, kind: KeyType) -> KeyPart | None:
    if kind == "string":
        text = _text(value)
        return None if text == MISSING_STRING else text
    if isinstance(value, float | np.floating) and math.isnan(value):
        return None
    if kind == "float64":
        return float(value) + 0.0
    number = int(value)
    if number != value and not isinstance(value, str):
        raise ValueError("it has a fraction")
    if not -(2**63) <= number < 2**63:
        raise OverflowError("beyond 64 bits")
    return None if number == MISSING_INT64 else number


def _text(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, bool | float) or not isinstance(value, int | np.integer):
        raise TypeError("give text, or an integer that is meant as its digits")
    return str(value).encode("ascii")


def distinct_keys(
    rows: Sequence[Mapping[str, Any]], places: Sequence[int], key_set: KeySet
) -> tuple[dict[Key, list[int]], list[int]]:
    """Returns the keys of some rows, each once, with the rows that have it; and the rows without a key.

    Raises:
        ServingError: if a part of a key is of another type.
    """
    given: dict[Any, list[int]] = {}
    first, *more = key_set.key
    try:
        for place in places:
            row = rows[place]
            value = row.get(first)
            raw: Any = (value, value.__class__)  # True and 1 are one key of a dict, and not one value
            for name in more:
                value = row.get(name)
                raw += (value, value.__class__)
            given.setdefault(raw, []).append(place)
    except TypeError:  # a list, which no dict holds: the conversion below says where
        given = {place: [place] for place in places}
    found: dict[Key, list[int]] = {}
    keyless: list[int] = []
    for members in given.values():  # candidates share their user: each value is converted once
        key = key_of(rows[members[0]], key_set, position=members[0])
        if key is None:
            keyless += members
        else:
            found.setdefault(key, []).extend(members)
    return found, keyless

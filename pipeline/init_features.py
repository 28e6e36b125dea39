"""From columns to proposed features: how each is encoded, or why it is left out."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from pipeline import init_names as names
from preprocessing.guess import ColumnGuess

__all__ = ["Proposal", "fit_name", "propose"]

_MANY = 1_000_000  # distinct values: beyond, a hash instead of a vocabulary
_HASH_BUCKETS = 1 << 20
_FEW_VALUES = 50
_SKEWED = 20.0


@dataclasses.dataclass(frozen=True)
class Proposal:
    """Features of one column, and what is to be said of it.

    Attributes:
        features: as a config declares them; empty if the column is left out.
        comment: why it is left out, or what to decide.
    """

    features: tuple[Mapping[str, Any], ...]
    comment: str = ""


def fit_name(name: str) -> str:
    """Returns a name that a config takes for a feature or a column."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_") or "column"


def _is_tokens(name: str, column: ColumnGuess) -> bool:
    """Returns whether a column of numbers is a column of tokens: identifiers, codes, and few different numbers."""
    if column.numbers is None or column.type == "string":
        return column.type == "string"
    if names.is_identifier(name):
        return True
    quantity = bool(set(names.words(name)) & names.QUANTITY)
    return column.whole and not quantity and column.distinct <= _FEW_VALUES and not column.is_binary


def propose(name: str, column: ColumnGuess, *, rows: int, entity: bool = False) -> Proposal:
    """Returns the features of a column.

    Args:
        name: of the column as declared.
        column: as guessed.
        rows: of the whole source, about.
        entity: whether it identifies the user or the item, so that many values are no reason to leave it out.
    """
    reason = _useless(name, column, entity=entity)
    if reason:
        return Proposal((), reason)
    if column.is_list:
        return Proposal((_list_feature(name, column),))
    if not _is_tokens(name, column) and column.numbers is not None:
        return Proposal(_numeric_features(name, column))
    return _token_feature(name, column, rows=rows, entity=entity)


def _useless(name: str, column: ColumnGuess, *, entity: bool) -> str:
    """Returns why nothing can be learned from a column; empty if something can."""
    if column.missing_share == 1.0 or column.distinct == 0:
        return "no values"
    if column.distinct == 1 and column.missing_share < 0.001:
        return "always the same"
    if column.type == "timestamp":
        return "a time: an age would be a feature, the date itself is not"
    if set(names.words(name)) & names.CALENDAR and column.numbers is not None and not entity:
        return "a calendar column: the clock's hour_of_day and day_of_week say it"
    return ""


def _list_feature(name: str, column: ColumnGuess) -> dict[str, Any]:
    lengths = pc.list_value_length(column.values).fill_null(0).to_numpy(zero_copy_only=False)
    longest = max(1, min(50, math.ceil(np.quantile(lengths, 0.99)))) if len(lengths) else 8
    least = {"min_count": 5} if column.distinct > 1000 else {}
    return {"name": fit_name(name), "kind": "multivalued", **_column(name), **least, "max_length": longest}


def _column(name: str) -> dict[str, str]:
    return {} if fit_name(name) == name else {"column": name}


def _numeric_features(name: str, column: ColumnGuess) -> tuple[dict[str, Any], ...]:
    numbers = column.numbers if column.numbers is not None else np.zeros(0)
    known = numbers[~np.isnan(numbers)]
    head = {"name": fit_name(name), "kind": "numeric", **_column(name)}
    skewed = column.distinct > _FEW_VALUES and _is_skewed(known)
    features = [{**head, **({"log1p": True} if skewed else {})}]
    if column.distinct > _FEW_VALUES:
        features.append({"name": f"{fit_name(name)}_bucket", "kind": "numeric", "column": name, "buckets": 16})
    return tuple(features)


def _is_skewed(known: npt.NDArray[np.float64]) -> bool:
    """Returns whether the largest numbers dwarf the usual ones."""
    if not len(known) or known.min() < 0:
        return False
    low, median, high = np.quantile(known, [0.05, 0.5, 0.99])
    spread = max(median - low, 1e-12)
    return bool(high > _SKEWED * max(median, 1.0) or (high - median) > _SKEWED * spread)


def _token_feature(name: str, column: ColumnGuess, *, rows: int, entity: bool) -> Proposal:
    share = column.distinct / max(1, column.rows)
    if not entity and column.distinct > _FEW_VALUES and share > (0.95 if names.is_identifier(name) else 0.5):
        return Proposal((), f"nearly every row has a value of its own ({column.distinct} in {column.rows} rows)")
    head = {"name": fit_name(name), **_column(name)}
    if share * rows > _MANY and share > 0.2:
        return Proposal(({**head, "kind": "hashed", "buckets": _HASH_BUCKETS},), "very many values: hashed")
    least = 5 if column.distinct > 1000 and not entity else 2 if column.distinct > _FEW_VALUES else 1
    return Proposal(({**head, "kind": "categorical", **({"min_count": least} if least > 1 else {})},))

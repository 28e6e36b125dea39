"""Checks of features against each other and against the columns they read; no data is needed."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

import pyarrow as pa

from preprocessing.errors import ConfigError
from preprocessing.raw_values import is_list, raw_dtype
from preprocessing.spec import (
    CategoricalFeature,
    CrossedFeature,
    DayOfWeekFeature,
    FeatureSpec,
    HashedFeature,
    HourOfDayFeature,
    IntegerFeature,
    MultivaluedFeature,
    NumericFeature,
    columns_of,
    table_of,
)

__all__ = ["check_columns", "check_tables"]


def _layout(feature: FeatureSpec) -> tuple[object, ...]:
    """Returns what features that share a table must have in common."""
    if isinstance(feature, CategoricalFeature | MultivaluedFeature):
        return ("vocabulary", feature.min_count, feature.max_size, feature.oov_buckets)
    if isinstance(feature, HashedFeature | CrossedFeature):
        return ("hashed", feature.buckets)
    if isinstance(feature, IntegerFeature):
        return ("integer", feature.size)
    return (feature.kind, feature.name)


def check_tables(features: Sequence[FeatureSpec]) -> None:
    """Checks that features which share a table lay out its rows alike.

    Raises:
        ConfigError: naming the two that do not.
    """
    owners: dict[str, FeatureSpec] = {}
    for feature in features:
        table = table_of(feature)
        if table is None:
            continue
        owner = owners.setdefault(table, feature)
        if _layout(owner) != _layout(feature):
            raise ConfigError(
                f"features.{feature.name}: it shares table {table!r} with {owner.name!r}, so both must be of kinds and "
                f"settings that lay out its rows alike; {owner.name!r} has {_layout(owner)}, {feature.name!r} has "
                f"{_layout(feature)}; make them equal or give one a table of its own"
            )


def check_columns(feature: FeatureSpec, raw_types: Mapping[str, pa.DataType]) -> None:
    """Checks that the columns of a feature are there, and of a type that its kind reads.

    Raises:
        ConfigError: naming the feature and the column.
    """
    for name in columns_of(feature):
        if name not in raw_types:
            near = difflib.get_close_matches(name, raw_types, n=1)
            hint = f"; the nearest is {near[0]!r}" if near else f"; there are {', '.join(sorted(raw_types))}"
            raise ConfigError(f"features.{feature.name}: the joined rows have no column {name!r}{hint}")
        kind = raw_types[name]
        if is_list(kind) != isinstance(feature, MultivaluedFeature):
            advice = "use kind multivalued" if is_list(kind) else "declare the column as list<string> with a delimiter"
            raise ConfigError(
                f"features.{feature.name}: kind {feature.kind} cannot read column {name!r} of type {kind}; {advice}"
            )
        if raw_dtype(kind) not in _readable(feature):
            raise ConfigError(
                f"features.{feature.name}: kind {feature.kind} reads {' or '.join(_readable(feature))} columns, "
                f"{name!r} is {kind}; declare another type or another kind"
            )


def _readable(feature: FeatureSpec) -> tuple[str, ...]:
    if isinstance(feature, NumericFeature):
        return ("int64", "float32")
    if isinstance(feature, IntegerFeature | HourOfDayFeature | DayOfWeekFeature):
        return ("int64",)
    return ("string", "int64")

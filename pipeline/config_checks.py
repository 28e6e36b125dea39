"""Rules that hold between the parts of a config: names that must exist, types that must fit."""

from __future__ import annotations

import difflib
import zoneinfo
from collections.abc import Collection, Iterator, Mapping, Sequence

from preprocessing.spec import (
    CategoricalFeature,
    ColumnSpec,
    ColumnSplit,
    CrossedFeature,
    DataSpec,
    FeatureSpec,
    HashedFeature,
    HashSplit,
    IntegerFeature,
    MultivaluedFeature,
    TimeSplit,
    columns_of,
    table_of,
)

__all__ = ["check_config", "joined_columns"]

_TOKENS = {"string", "int64", "bool"}
_TYPES_OF_KIND = {
    "categorical": _TOKENS,
    "hashed": _TOKENS,
    "crossed": _TOKENS,
    "integer": {"int64", "bool"},
    "numeric": {"int64", "float64", "bool"},
    "multivalued": {"list<string>", "list<int64>"},
    "hour_of_day": {"timestamp"},
    "day_of_week": {"timestamp"},
}


def check_config(*, data: DataSpec, features: Sequence[FeatureSpec], gate_metrics: Sequence[str]) -> list[str]:
    """Returns a line for each broken rule, each with its dotted path; an empty list if all is well."""
    problems = list(_check_zone(data)) + list(_check_sources(data))
    if problems:  # what follows would only repeat them
        return problems
    columns = joined_columns(data)
    return [
        *_check_roles(data, columns),
        *_check_labels(data, columns),
        *_check_split(data, columns),
        *_check_features(data, features, columns),
        *_check_tables(features),
        *_check_gate(data, gate_metrics),
    ]


def joined_columns(data: DataSpec) -> dict[str, ColumnSpec]:
    """Returns the declared columns of the joined rows: those of the impressions, then of each side table."""
    columns = dict(data.sources[data.impressions].columns)
    for join in data.joins:
        for name, spec in data.sources[join.source].columns.items():
            columns.setdefault(name, spec)
    return columns


def _unknown(path: str, name: str, what: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(sorted(known))}"
    return f"{path}: no {what} {name!r}; {hint}"


def _check_zone(data: DataSpec) -> Iterator[str]:
    try:
        zoneinfo.ZoneInfo(data.time_zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        yield _unknown("data.time_zone", data.time_zone, "time zone", zoneinfo.available_timezones())


def _check_sources(data: DataSpec) -> Iterator[str]:
    for name, source in data.sources.items():
        if isinstance(source.duplicates, tuple):
            for column in source.duplicates:
                if column not in source.columns:
                    yield _unknown(f"data.sources.{name}.duplicates", column, "column", source.columns)
        if source.event_time is not None and source.event_time not in source.columns:
            yield _unknown(f"data.sources.{name}.event_time", source.event_time, "column", source.columns)
    if data.impressions not in data.sources:
        yield _unknown("data.impressions", data.impressions, "source", data.sources)
        return
    actions = {label.action.source for label in data.labels if label.action is not None}
    if data.impressions in actions:
        yield f"data.labels: {data.impressions!r} holds the impressions, so it cannot be their action log as well"
    taken = {name: data.impressions for name in data.sources[data.impressions].columns}
    for i, join in enumerate(data.joins):
        if join.source not in data.sources:
            yield _unknown(f"data.joins[{i}].source", join.source, "source", data.sources)
            continue
        if join.source in (data.impressions, *actions):
            yield (
                f"data.joins[{i}].source: {join.source!r} is a log of events, not a side table; "
                "declare the files a second time to join them"
            )
            continue
        yield from _check_join(f"data.joins[{i}]", join.source, join.key, data.sources[join.source].columns, taken)


def _check_join(
    path: str, source: str, key: Sequence[str], columns: Mapping[str, ColumnSpec], taken: dict[str, str]
) -> Iterator[str]:
    for column in key:
        if column not in columns:
            yield _unknown(f"{path}.key", column, f"column of source {source!r}", columns)
        if column not in taken:
            yield _unknown(f"{path}.key", column, "column to join from", taken)
    for column in columns:
        if column not in key and column in taken:
            yield (
                f"{path}: column {column!r} is in {taken[column]!r} and in {source!r}; "
                "give one of them another name, with source_name for the name in the file"
            )
        taken.setdefault(column, source)


def _check_roles(data: DataSpec, columns: Mapping[str, ColumnSpec]) -> Iterator[str]:
    for role, column in data.roles:
        if column is not None and column not in columns:
            yield _unknown(f"data.roles.{role}", column, "column", columns)
    for role in ("event_time", "arrival_time"):
        column = getattr(data.roles, role)
        if column in columns and columns[column].type != "timestamp":
            yield f"data.roles.{role}: column {column!r} must be a timestamp, it is {columns[column].type}"
    event_time = data.roles.event_time
    if event_time in columns and event_time not in data.sources[data.impressions].columns:
        yield f"data.roles.event_time: {event_time!r} must be a column of the impressions"
    weight = data.roles.weight
    if weight is not None and weight in columns and columns[weight].type not in _TYPES_OF_KIND["numeric"]:
        yield f"data.roles.weight: column {weight!r} must be a number, it is {columns[weight].type}"


def _check_labels(data: DataSpec, columns: Mapping[str, ColumnSpec]) -> Iterator[str]:
    names = [label.name for label in data.labels]
    for i, label in enumerate(data.labels):
        path = f"data.labels[{i}]"
        if names.index(label.name) != i:
            yield f"{path}.name: {label.name!r} is taken by an earlier label"
        if label.action is None:
            column = label.comparison()[0]
            if column not in columns:
                yield _unknown(f"{path}.{'column' if label.column else 'when'}", column, "column", columns)
            elif columns[column].type not in _TYPES_OF_KIND["numeric"]:
                yield f"{path}: column {column!r} must be a number, it is {columns[column].type}"
            continue
        source = data.sources.get(label.action.source)
        if source is None:
            yield _unknown(f"{path}.action.source", label.action.source, "source", data.sources)
            continue
        if source.event_time is None and data.roles.event_time is not None:
            yield f"data.sources.{label.action.source}.event_time: is required for an action log"
        for column in label.action.key:
            if column not in source.columns:
                yield _unknown(f"{path}.action.key", column, "column of the action log", source.columns)
            if column not in data.sources[data.impressions].columns:
                yield _unknown(f"{path}.action.key", column, "column of the impressions", columns)
    keys = {label.action.key for label in data.labels if label.action is not None}
    if len(keys) > 1:
        yield "data.labels: all labels from action logs must have the same key, since rows are joined in one pass"


def _check_split(data: DataSpec, columns: Mapping[str, ColumnSpec]) -> Iterator[str]:
    split = data.split
    if isinstance(split, TimeSplit) and data.roles.event_time is None:
        yield "data.split: a split by time needs data.roles.event_time"
    names = split.key if isinstance(split, HashSplit) else (split.column,) if isinstance(split, ColumnSplit) else ()
    for name in names:
        if name not in columns:
            yield _unknown("data.split", name, "column", columns)


def _check_features(
    data: DataSpec, features: Sequence[FeatureSpec], columns: Mapping[str, ColumnSpec]
) -> Iterator[str]:
    label_columns = {label.comparison()[0]: label.name for label in data.labels if label.action is None}
    names = [feature.name for feature in features]
    for i, feature in enumerate(features):
        path = f"features[{i}] ({feature.name})"
        if names.index(feature.name) != i:
            yield f"{path}: the name is taken by an earlier feature"
        for column in columns_of(feature):
            if column not in columns:
                yield _unknown(f"{path}.column", column, "column", columns)
            elif column in label_columns:
                yield f"{path}: column {column!r} is the label {label_columns[column]!r}; a label cannot be a feature"
            elif columns[column].type not in _TYPES_OF_KIND[feature.kind]:
                wanted = " or ".join(sorted(_TYPES_OF_KIND[feature.kind]))
                yield f"{path}: kind {feature.kind} needs {wanted}, column {column!r} is {columns[column].type}"


def _check_tables(features: Sequence[FeatureSpec]) -> Iterator[str]:
    """Features that share a table must agree on what its rows mean."""
    owners: dict[str, FeatureSpec] = {}
    for i, feature in enumerate(features):
        table = table_of(feature)
        if table is None:
            continue
        owner = owners.setdefault(table, feature)
        if _layout(owner) != _layout(feature):
            yield (
                f"features[{i}] ({feature.name}): shares table {table!r} with {owner.name!r} but differs in what its "
                f"rows are ({_layout(feature)} against {_layout(owner)}); make them equal or give it a table of its own"
            )


def _layout(feature: FeatureSpec) -> tuple[object, ...]:
    if isinstance(feature, CategoricalFeature | MultivaluedFeature):
        return ("vocabulary", feature.min_count, feature.max_size, feature.oov_buckets)
    if isinstance(feature, HashedFeature | CrossedFeature):
        return ("hashed", feature.buckets)
    if isinstance(feature, IntegerFeature):
        return ("integer", feature.size)
    return (feature.kind, feature.name)


def _check_gate(data: DataSpec, gate_metrics: Sequence[str]) -> Iterator[str]:
    for i, metric in enumerate(gate_metrics):
        if metric == "gauc" and data.roles.user is None:
            yield f"gate[{i}].metric: gauc is a mean over users, so it needs data.roles.user"

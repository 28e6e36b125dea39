"""Rules that hold between the parts of a config: names that must exist, types that must fit.

Each part has a file of its own: sources and joins, labels and actions, point-in-time columns, features.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator, Mapping, Sequence

from models.config import ModelSpec
from pipeline.config_columns import NUMBERS, declared_columns, joined_columns, unknown
from pipeline.derived_checks import check_derived
from pipeline.evaluate_checks import check_evaluation, check_label_names
from pipeline.evaluate_spec import EvaluateSpec, GateRule
from pipeline.feature_checks import check_attention, check_features, check_position
from pipeline.label_checks import check_labels
from pipeline.source_checks import check_sources
from pipeline.train_spec import TrainSpec
from preprocessing.explode import columns_after
from preprocessing.spec import ColumnSpec, ColumnSplit, DataSpec, FeatureSpec, HashSplit

__all__ = ["check_config", "joined_columns"]


def check_config(
    *,
    data: DataSpec,
    features: Sequence[FeatureSpec],
    model: ModelSpec,
    train: TrainSpec,
    evaluate: EvaluateSpec,
    gate: Sequence[GateRule],
) -> list[str]:
    """Returns a line for each broken rule, each with its dotted path; an empty list if all is well."""
    problems = list(_check_zone(data)) + list(check_sources(data))
    if problems:  # what follows would only repeat them
        return problems
    columns, joined = declared_columns(data), joined_columns(data)
    return [
        *_check_roles(data, columns),
        *check_labels(data, columns),
        *check_derived(data, columns),
        *_check_days(data, columns),
        *_check_limits(data),
        *check_features(data, features, columns=joined),
        *check_attention(features, model.attention),
        *check_position(features, model.position),
        *check_evaluation(data, evaluate, gate, columns=joined),
        *check_label_names(data, train, gate),
    ]


def _check_zone(data: DataSpec) -> Iterator[str]:
    try:
        zoneinfo.ZoneInfo(data.time_zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        yield unknown("data.time_zone", data.time_zone, "time zone", zoneinfo.available_timezones())


def _check_roles(data: DataSpec, columns: Mapping[str, ColumnSpec]) -> Iterator[str]:
    for role, column in data.roles:
        if column is not None and column not in columns:
            yield unknown(f"data.roles.{role}", column, "column", columns)
    own = columns_after(data.sources[data.impressions])
    for role in ("event_time", "arrival_time"):
        column = getattr(data.roles, role)
        if column in columns and columns[column].type != "timestamp":
            yield f"data.roles.{role}: column {column!r} must be a timestamp, it is {columns[column].type}"
        if column in columns and column not in own:
            yield f"data.roles.{role}: {column!r} must be a column of the impressions"
    weight = data.roles.weight
    if weight is not None and weight in columns and columns[weight].type not in NUMBERS:
        yield f"data.roles.weight: column {weight!r} must be a number, it is {columns[weight].type}"


def _check_days(data: DataSpec, columns: Mapping[str, ColumnSpec]) -> Iterator[str]:
    split = data.split
    if data.time_split() is not None and data.roles.event_time is None:
        yield "data.split: a split by time needs data.roles.event_time"
    names = split.key if isinstance(split, HashSplit) else (split.column,) if isinstance(split, ColumnSplit) else ()
    for name in names:
        if name not in columns:
            yield unknown("data.split", name, "column", columns)
    first, last = data.days.first, data.days.last
    if first is not None and last is not None and last < first:
        yield f"data.days: last, {last}, is before first, {first}"


def _check_limits(data: DataSpec) -> Iterator[str]:
    labels = [label.name for label in data.labels]
    for i, check in enumerate(data.checks):
        of_label = check.measure == "label_rate"
        known = labels if of_label else list(joined_columns(data))
        if check.column != "*" and check.column not in known:
            yield unknown(f"data.checks[{i}].column", check.column, "label" if of_label else "column", known)

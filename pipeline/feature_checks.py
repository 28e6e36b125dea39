"""Rules of a config about features: columns that exist and fit, nothing that is known too late, tables that agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from models.config import AttentionSpec, PositionSpec
from pipeline.config_columns import NUMBERS, TOKENS, late_columns, unknown
from preprocessing.spec import (
    CategoricalFeature,
    ColumnSpec,
    CrossedFeature,
    DataSpec,
    FeatureSpec,
    HashedFeature,
    IntegerFeature,
    MultivaluedFeature,
    columns_of,
    table_of,
)

__all__ = ["check_attention", "check_features", "check_position"]

_TYPES_OF_KIND = {
    "categorical": TOKENS,
    "hashed": TOKENS,
    "crossed": TOKENS,
    "integer": {"int64", "bool"},
    "numeric": NUMBERS,
    "multivalued": {"list<string>", "list<int64>"},
    "bucketed_list": {"list<int64>", "list<float64>"},
    "hour_of_day": {"timestamp"},
    "day_of_week": {"timestamp"},
}


def check_features(
    data: DataSpec, features: Sequence[FeatureSpec], *, columns: Mapping[str, ColumnSpec]
) -> Iterator[str]:
    """Yields a line for each broken rule; `columns` are all of the joined rows, point-in-time ones too."""
    late = late_columns(data)
    names = [feature.name for feature in features]
    for i, feature in enumerate(features):
        path = f"features[{i}] ({feature.name})"
        if names.index(feature.name) != i:
            yield f"{path}: the name is taken by an earlier feature"
        for column in columns_of(feature):
            if column not in columns:
                yield unknown(f"{path}.column", column, "column", columns)
            elif column in late:
                noun = "a label cannot be a feature" if "label" in late[column] else "it is not known in time"
                yield f"{path}: column {column!r} is {late[column]}; {noun}"
            elif columns[column].type not in _TYPES_OF_KIND[feature.kind]:
                wanted = " or ".join(sorted(_TYPES_OF_KIND[feature.kind]))
                yield f"{path}: kind {feature.kind} needs {wanted}, column {column!r} is {columns[column].type}"
    yield from _check_tables(features)


def check_attention(features: Sequence[FeatureSpec], attention: AttentionSpec) -> Iterator[str]:
    """Yields a line for each pair of names that `model.attention` cannot hold against each other."""
    path = "model.attention.targets"
    lists = {one.name: one for one in features if isinstance(one, MultivaluedFeature)}
    ids = {one.name: one for one in features if table_of(one) and not isinstance(one, MultivaluedFeature)}
    for name, target in attention.targets.items():
        if name not in lists:
            yield unknown(path, name, "feature that is a list of tokens", lists)
        elif target not in ids:
            yield unknown(f"{path}.{name}", target, "feature with one id", ids)
        elif table_of(lists[name]) != table_of(ids[target]):
            yield (
                f"{path}.{name}: {name!r} is in table {table_of(lists[name])!r} and {target!r} in "
                f"{table_of(ids[target])!r}; they are compared by their rows: give both the same `table`"
            )


def check_position(features: Sequence[FeatureSpec], position: PositionSpec | None) -> Iterator[str]:
    """Yields a line if `model.position` names no feature that can be one."""
    integers = {one.name: one for one in features if isinstance(one, IntegerFeature)}
    if position is None:
        return
    if position.feature not in integers:
        yield unknown("model.position.feature", position.feature, "feature of kind integer", integers)
    elif position.kind == "fixed" and position.value >= integers[position.feature].size:
        yield (
            f"model.position.value: {position.value} is none of the values 0 to "
            f"{integers[position.feature].size - 1} of feature {position.feature!r}"
        )


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

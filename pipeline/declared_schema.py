"""The schema that a config promises, before there is a dataset: table sizes as far as they are declared."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from preprocessing import vocabulary
from preprocessing.feature_spec import (
    BucketedListFeature,
    CategoricalFeature,
    CrossedFeature,
    DayOfWeekFeature,
    FeatureSpec,
    HashedFeature,
    HourOfDayFeature,
    IntegerFeature,
    MultivaluedFeature,
    NumericFeature,
    table_of,
)
from preprocessing.schema import DatasetSchema, IdField, ListField, TableSchema

__all__ = ["Declared", "declared_schema"]


@dataclasses.dataclass(frozen=True)
class Declared:
    """A schema; `bounded` names tables that have at most these rows, `unknown` those of which only the data will tell.

    An unknown table is counted with the rows that it has at least: missing and out of vocabulary.
    """

    schema: DatasetSchema
    bounded: tuple[str, ...]
    unknown: tuple[str, ...]


def declared_schema(features: Sequence[FeatureSpec], *, labels: Sequence[str]) -> Declared:
    """Returns what is known of the inputs and tables of these features."""
    rows: dict[str, int] = {}
    bounded: set[str] = set()
    unknown: set[str] = set()
    for feature in features:
        table = table_of(feature)
        if table is None:
            continue
        count, limit = _rows(feature)
        rows[table] = max(count, rows.get(table, 0))
        bounded |= {table} if limit == "at most" else set()
        unknown |= {table} if limit == "unknown" else set()
    schema = DatasetSchema(
        raw_columns=(),
        id_fields=tuple(
            IdField(name=f.name, table=table)
            for f in features
            if (table := table_of(f)) is not None and not isinstance(f, MultivaluedFeature | BucketedListFeature)
        ),
        list_fields=tuple(
            ListField(name=f.name, table=table_of(f) or f.name, length=f.max_length, pooling=f.pooling)
            for f in features
            if isinstance(f, MultivaluedFeature | BucketedListFeature)
        ),
        dense=tuple(name for feature in features for name in _dense(feature)),
        tables=tuple(TableSchema(name=name, num_rows=count) for name, count in rows.items()),
        labels=tuple(labels),
    )
    return Declared(schema, tuple(sorted(bounded - unknown)), tuple(sorted(unknown)))


def _rows(feature: FeatureSpec) -> tuple[int, str]:
    """Returns rows of a feature's table and whether that is 'exact', 'at most' or 'unknown'."""
    if isinstance(feature, CategoricalFeature | MultivaluedFeature):
        rows = vocabulary.vocabulary_rows(feature.max_size or 0, num_oov=feature.oov_buckets)
        return rows, "unknown" if feature.max_size is None else "at most"
    if isinstance(feature, NumericFeature):
        if isinstance(feature.buckets, int):  # equal quantiles fall together
            return vocabulary.bucket_rows(feature.buckets - 1), "at most"
        return vocabulary.bucket_rows(len(feature.buckets or ())), "exact"
    return _fixed_rows(feature), "exact"


_Fixed = HashedFeature | CrossedFeature | IntegerFeature | BucketedListFeature | HourOfDayFeature | DayOfWeekFeature


def _fixed_rows(feature: _Fixed) -> int:
    match feature:
        case HashedFeature() | CrossedFeature():
            return vocabulary.hashed_rows(feature.buckets)
        case IntegerFeature():
            return vocabulary.integer_rows(feature.size)
        case BucketedListFeature():
            return vocabulary.bucket_rows(len(feature.boundaries))
        case HourOfDayFeature():
            return vocabulary.period_rows(24)
        case DayOfWeekFeature():
            return vocabulary.period_rows(7)


def _dense(feature: FeatureSpec) -> tuple[str, ...]:
    if not isinstance(feature, NumericFeature) or feature.buckets is not None:
        return ()
    return (feature.name, f"{feature.name} missing") if feature.indicator else (feature.name,)

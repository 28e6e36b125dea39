"""What the transform will do, as a value: schema, constants and vocabularies, computed without TensorFlow."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa

from preprocessing import vocabulary
from preprocessing.analysis import FeatureState, State, log_clip
from preprocessing.errors import DataError
from preprocessing.raw_values import raw_dtype
from preprocessing.schema import DatasetSchema, IdField, ListField, RawColumn, TableSchema
from preprocessing.spec import (
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
    columns_of,
    table_of,
)
from preprocessing.string_tensor import serialise_strings
from preprocessing.time_zones import zone_offsets
from preprocessing.token_counts import TokenCounts, merge_counts
from preprocessing.vocabulary import Vocabulary

__all__ = ["FeaturePlan", "TransformPlan", "count_tables", "indicator_name", "plan_transform"]

_FORMAT = 1
# A float32 has 24 bits: a spread below this share of the mean is rounding, as is one that float32 cannot hold.
_LEAST_DEVIATION = 1e-7
_LEAST_FLOAT = 1e-30
_TIME_FEATURES = (HourOfDayFeature, DayOfWeekFeature)


@dataclasses.dataclass(frozen=True)
class FeaturePlan:
    """A feature and the constants learned for it.

    Attributes:
        feature: as declared.
        fill: takes the place of a missing number, after clip and log1p.
        mean: subtracted from a number.
        deviation: divides it afterwards; never 0.
        boundaries: rising; of a number cut into buckets.
    """

    feature: FeatureSpec
    fill: float = 0.0
    mean: float = 0.0
    deviation: float = 1.0
    boundaries: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True)
class TransformPlan:
    """Everything that the transform is made from.

    Attributes:
        schema: of the dataset that it writes.
        features: in the order of the config.
        vocabularies: by table.
        time_zone: of hours and days.
    """

    schema: DatasetSchema
    features: tuple[FeaturePlan, ...]
    vocabularies: dict[str, Vocabulary]
    time_zone: str

    def canonical(self) -> dict[str, Any]:
        """Returns a JSON value that is equal for equal transforms, and for nothing else."""
        uses_time = any(isinstance(plan.feature, _TIME_FEATURES) for plan in self.features)
        return {
            "format": _FORMAT,
            "schema": self.schema.model_dump(mode="json"),
            "features": [
                {
                    "feature": plan.feature.model_dump(mode="json"),
                    "fill": plan.fill,
                    "mean": plan.mean,
                    "deviation": plan.deviation,
                    "boundaries": list(plan.boundaries),
                }
                for plan in self.features
            ],
            "vocabularies": {
                name: {
                    "num_oov": words.num_oov,
                    "num_tokens": len(words.tokens),
                    "sha256": hashlib.sha256(serialise_strings(words.tokens)).hexdigest(),
                }
                for name, words in sorted(self.vocabularies.items())
            },
            "time_zone": self.time_zone,
            "zone_offsets": dataclasses.asdict(zone_offsets(self.time_zone)) if uses_time else None,
        }


def indicator_name(feature: str) -> str:
    """Returns the name of the dense input that is 1 where the feature is missing."""
    return f"{feature}:missing"


def plan_transform(
    features: Sequence[FeatureSpec],
    state: State,
    *,
    time_zone: str,
    labels: Sequence[str],
    raw_types: Mapping[str, pa.DataType],
    vocabularies: Mapping[str, Vocabulary] | None = None,
    negative_keep: float = 1.0,
) -> TransformPlan:
    """Returns the plan of a transform.

    Args:
        features: as declared and checked, in the order of the config.
        state: of the training split.
        time_zone: IANA name, of hours and days.
        labels: names of the labels, in order.
        raw_types: Arrow type of each column of the joined rows.
        vocabularies: of each table that has one; None: built from `state`.
        negative_keep: share of the negative training rows that is kept.

    Raises:
        DataError: if the training split had no rows.
    """
    for feature in features:
        if feature.name not in state.features or state.features[feature.name].num_rows == 0:
            raise DataError(
                "the training split has no rows to learn from; check data.split against the days of the logs"
            )
    vocabularies = dict(vocabularies or _vocabularies(features, state))
    plans = tuple(_plan_feature(feature, state.features[feature.name]) for feature in features)
    schema = DatasetSchema(
        raw_columns=_raw_columns(features, raw_types),
        id_fields=tuple(
            IdField(name=feature.name, table=table)
            for feature in features
            if (table := table_of(feature)) is not None and not _is_list(feature)
        ),
        list_fields=tuple(
            ListField(
                name=feature.name,
                table=table_of(feature) or feature.name,
                length=feature.max_length,
                pooling=feature.pooling,
            )
            for feature in features
            if _is_list(feature)
        ),
        dense=tuple(name for feature in features for name in _dense_names(feature)),
        tables=_tables(plans, vocabularies),
        labels=tuple(labels),
        negative_keep=negative_keep,
    )
    return TransformPlan(schema=schema, features=plans, vocabularies=vocabularies, time_zone=time_zone)


def _is_list(feature: FeatureSpec) -> TypeGuard[MultivaluedFeature | BucketedListFeature]:
    return isinstance(feature, MultivaluedFeature | BucketedListFeature)


def _vocabularies(features: Sequence[FeatureSpec], state: State) -> dict[str, Vocabulary]:
    """Returns a fresh vocabulary for each table that has one."""
    return {
        table: vocabulary.build(counts, min_count=owner.min_count, max_size=owner.max_size, num_oov=owner.oov_buckets)
        for table, (owner, counts) in count_tables(features, state).items()
    }


def count_tables(
    features: Sequence[FeatureSpec], state: State
) -> dict[str, tuple[CategoricalFeature | MultivaluedFeature, TokenCounts]]:
    """Returns, for each table with a vocabulary, a feature that declares it and the counts of all that share it."""
    shared: dict[str, list[CategoricalFeature | MultivaluedFeature]] = {}
    for feature in features:
        if isinstance(feature, CategoricalFeature | MultivaluedFeature):
            shared.setdefault(feature.table or feature.name, []).append(feature)
    return {
        table: (
            members[0],
            merge_counts([tokens for one in members if (tokens := state.features[one.name].tokens) is not None]),
        )
        for table, members in shared.items()
    }


def _plan_feature(feature: FeatureSpec, state: FeatureState) -> FeaturePlan:
    if isinstance(feature, BucketedListFeature):
        return FeaturePlan(feature=feature, boundaries=feature.boundaries)
    if not isinstance(feature, NumericFeature):
        return FeaturePlan(feature=feature)
    if feature.buckets is not None:
        return FeaturePlan(feature=feature, boundaries=_boundaries(feature.buckets, state))
    mean, deviation = (state.moments.mean, state.moments.deviation()) if state.moments is not None else (0.0, 0.0)
    varies = deviation > _LEAST_DEVIATION * abs(mean) and deviation > _LEAST_FLOAT
    return FeaturePlan(
        feature=feature,
        fill=_fill(feature, mean),
        mean=mean if feature.standardise else 0.0,
        deviation=deviation if feature.standardise and varies else 1.0,
    )


def _boundaries(buckets: int | tuple[float, ...], state: FeatureState) -> tuple[float, ...]:
    if isinstance(buckets, tuple):
        return buckets
    return state.histogram.boundaries(buckets) if state.histogram is not None else ()


def _fill(feature: NumericFeature, mean: float) -> float:
    """Returns what a missing number becomes before standardising: the mean, or the given value clipped and logged."""
    if isinstance(feature.missing, str):
        return mean
    return float(log_clip(np.array([feature.missing]), clip=feature.clip, log1p=feature.log1p)[0])


def _raw_columns(features: Sequence[FeatureSpec], raw_types: Mapping[str, pa.DataType]) -> tuple[RawColumn, ...]:
    """Returns the columns read, in the order of their first use; a list is as long as its longest reader wants."""
    lengths: dict[str, int | None] = {}
    for feature in features:
        for name in columns_of(feature):
            length = feature.max_length if _is_list(feature) else None
            known = lengths.get(name)
            lengths[name] = length if known is None or length is None else max(known, length)
    return tuple(
        RawColumn(name=name, dtype=raw_dtype(raw_types[name]) or "float32", length=length)
        for name, length in lengths.items()
    )


def _dense_names(feature: FeatureSpec) -> tuple[str, ...]:
    if not isinstance(feature, NumericFeature) or feature.buckets is not None:
        return ()
    return (feature.name, indicator_name(feature.name)) if feature.indicator else (feature.name,)


def _tables(plans: Sequence[FeaturePlan], vocabularies: Mapping[str, Vocabulary]) -> tuple[TableSchema, ...]:
    rows = {
        table: vocabularies[table].num_rows if table in vocabularies else _num_rows(plan)
        for plan in plans
        if (table := table_of(plan.feature)) is not None
    }
    return tuple(TableSchema(name=name, num_rows=num_rows) for name, num_rows in rows.items())


def _num_rows(plan: FeaturePlan) -> int:
    feature = plan.feature
    if isinstance(feature, HashedFeature | CrossedFeature):
        return vocabulary.hashed_rows(feature.buckets)
    if isinstance(feature, IntegerFeature):
        return vocabulary.integer_rows(feature.size)
    if isinstance(feature, HourOfDayFeature):
        return vocabulary.period_rows(24)
    if isinstance(feature, DayOfWeekFeature):
        return vocabulary.period_rows(7)
    return vocabulary.bucket_rows(len(plan.boundaries))

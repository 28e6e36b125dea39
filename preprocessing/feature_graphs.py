"""From raw values to ids or dense inputs, in TensorFlow ops: one function a feature, elementwise.

Only stock ops, so that any model server runs them. Missing markers are those of `schema.RawColumn`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import tensorflow as tf

from preprocessing import vocabulary
from preprocessing.schema import MISSING_INT64, MISSING_STRING
from preprocessing.spec import (
    BucketedListFeature,
    CategoricalFeature,
    CrossedFeature,
    DayOfWeekFeature,
    HashedFeature,
    HourOfDayFeature,
    IntegerFeature,
    MultivaluedFeature,
    NumericFeature,
)
from preprocessing.time_zones import ZoneOffsets, zone_offsets
from preprocessing.transform_plan import FeaturePlan

__all__ = ["FeatureGraph", "TokenIds", "feature_graph"]

FeatureGraph: TypeAlias = Callable[..., tf.Tensor]
TokenIds: TypeAlias = Callable[[tf.Tensor], tf.Tensor]

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_THURSDAY = 3  # 1970-01-01
_MAX_TIME_MS = 2**53  # beyond any date; keeps sums from overflowing


def feature_graph(plan: FeaturePlan, *, tables: Mapping[str, TokenIds], time_zone: str) -> FeatureGraph:
    """Returns the function of a feature: raw columns of one shape to int64 ids of that shape.

    A number that is not cut into buckets becomes float32 [..., 1], or [..., 2] with its indicator.
    """
    feature = plan.feature
    if isinstance(feature, HourOfDayFeature | DayOfWeekFeature):
        offsets = zone_offsets(time_zone)
        period = _hour if isinstance(feature, HourOfDayFeature) else _weekday
        return lambda times: _or_missing(times, vocabulary.PERIOD_OFFSET + period(_local_ms(times, offsets)))
    if isinstance(feature, NumericFeature) and feature.buckets is None:
        return lambda values: _number(values, plan, feature)
    if isinstance(feature, NumericFeature | BucketedListFeature):
        return lambda values: _bucket(values, plan.boundaries)
    return _token_graph(feature, tables)


def _token_graph(
    feature: CategoricalFeature | MultivaluedFeature | HashedFeature | IntegerFeature | CrossedFeature,
    tables: Mapping[str, TokenIds],
) -> FeatureGraph:
    if isinstance(feature, CategoricalFeature | MultivaluedFeature):
        token_ids = tables[feature.table or feature.name]
        return lambda values: _or_missing(values, token_ids(_text(values)))
    if isinstance(feature, IntegerFeature):
        return lambda values: _or_missing(values, _integer(values, feature.size))
    if isinstance(feature, HashedFeature):
        return lambda values: _or_missing(values, _hash(_text(values), feature.buckets))
    return lambda *columns: _crossed(columns, feature.buckets)


def _text(values: tf.Tensor) -> tf.Tensor:
    """Returns tokens: bytes as they are, integers in decimal."""
    return values if values.dtype == tf.string else tf.strings.as_string(values)


def _is_missing(values: tf.Tensor) -> tf.Tensor:
    if values.dtype == tf.string:
        return tf.equal(values, MISSING_STRING)
    if values.dtype == tf.int64:
        return tf.equal(values, MISSING_INT64)
    return ~tf.math.is_finite(values)


def _or_missing(values: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    return tf.where(_is_missing(values), tf.constant(vocabulary.MISSING_ID, tf.int64), ids)


def _hash(tokens: tf.Tensor, buckets: int) -> tf.Tensor:
    return vocabulary.HASH_OFFSET + tf.strings.to_hash_bucket_fast(tokens, buckets)


def _integer(values: tf.Tensor, size: int) -> tf.Tensor:
    inside = (values >= 0) & (values < size)
    # Clipped first: the sum of an extreme integer and the offset would overflow.
    ids = vocabulary.INTEGER_OFFSET + tf.clip_by_value(values, tf.constant(0, tf.int64), tf.constant(size, tf.int64))
    return tf.where(inside, ids, tf.constant(vocabulary.INTEGER_OOV_ID, tf.int64))


def _crossed(columns: tuple[tf.Tensor, ...], buckets: int) -> tf.Tensor:
    """Hashes values one after another, each led by its length: ("a", "bc") and ("ab", "c") stay apart."""
    texts = [_text(column) for column in columns]
    parts = [part for text in texts for part in (tf.strings.as_string(tf.strings.length(text)), text)]
    ids = _hash(tf.strings.join(parts, separator=":"), buckets)
    for column in columns:
        ids = _or_missing(column, ids)
    return ids


def _local_ms(times_ms: tf.Tensor, offsets: ZoneOffsets) -> tf.Tensor:
    """Returns the clock of the zone as milliseconds, as if it were UTC."""
    times_ms = tf.clip_by_value(times_ms, tf.constant(-_MAX_TIME_MS, tf.int64), tf.constant(_MAX_TIME_MS, tf.int64))
    offset_ms = tf.constant(offsets.offsets_ms, tf.int64)
    if not offsets.transitions_ms:
        return times_ms + offset_ms[0]
    transitions = tf.constant(offsets.transitions_ms, tf.int64)
    flat = tf.reshape(times_ms, [-1])
    period = tf.searchsorted(transitions, flat, side="right")
    return times_ms + tf.reshape(tf.gather(offset_ms, period), tf.shape(times_ms))


def _hour(local_ms: tf.Tensor) -> tf.Tensor:
    return tf.math.floordiv(tf.math.floormod(local_ms, _DAY_MS), _HOUR_MS)


def _weekday(local_ms: tf.Tensor) -> tf.Tensor:
    return tf.math.floormod(tf.math.floordiv(local_ms, _DAY_MS) + _THURSDAY, 7)


def _float(values: tf.Tensor) -> tf.Tensor:
    """Returns float32 numbers, NaN where missing."""
    nan = tf.constant(float("nan"), tf.float32)
    return tf.where(_is_missing(values), nan, tf.cast(values, tf.float32))


def _bucket(values: tf.Tensor, boundaries: tuple[float, ...]) -> tf.Tensor:
    if boundaries:
        # NaN has no bucket: 0 stands in for it, and is replaced by the missing id.
        present = tf.where(_is_missing(values), tf.zeros_like(values), values)
        buckets = tf.raw_ops.Bucketize(input=tf.cast(present, tf.float32), boundaries=list(boundaries))
        ids = vocabulary.BUCKET_OFFSET + tf.cast(buckets, tf.int64)
    else:
        ids = tf.fill(tf.shape(values), tf.constant(vocabulary.BUCKET_OFFSET, tf.int64))
    return _or_missing(values, ids)


def _number(values: tf.Tensor, plan: FeaturePlan, feature: NumericFeature) -> tf.Tensor:
    missing = _is_missing(values)
    numbers = _float(values)
    if feature.clip is not None:
        numbers = tf.clip_by_value(numbers, *feature.clip)
    if feature.log1p:
        numbers = tf.sign(numbers) * tf.math.log1p(tf.abs(numbers))
    numbers = tf.where(missing, tf.constant(plan.fill, tf.float32), numbers)
    numbers = (numbers - plan.mean) / plan.deviation
    outputs = [numbers, tf.cast(missing, tf.float32)] if feature.indicator else [numbers]
    return tf.stack(outputs, axis=-1)

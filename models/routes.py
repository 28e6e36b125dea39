"""How the rows that a replica looks up on one shelf come to it, and how their gradients go to who holds the rows.

Each kind of shelf and exchange has its way, all with the same two ends: `gather` gives the looked-up rows, and
`arriving` the rows to update here with the sums of their gradients over all replicas. Letters: `n` positions of
one replica, `U` distinct rows among them, `V` distinct rows to update on this replica, `D` width, `R` replicas,
`S` shards. Row g of a shelf is row g div S of shard g mod S.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from models.exchange import Exchange
from models.replicas import Replicas
from models.sparse_optimizers import Distinct, distinct_rows, sum_duplicates

__all__ = ["Arriving", "Route", "all_hear_all", "held_here", "on_one_replica", "to_copies", "to_owners"]

Shards = Sequence[tf.Variable]  # [rows of the shard, D], one for each local replica


@dataclasses.dataclass(frozen=True)
class Arriving:
    """Rows [V] of the local shard, distinct, and what makes their sums [V, D] of this replica's gradients [n, D]."""

    rows: tf.Tensor
    sums: Callable[[tf.Tensor], tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Route:
    """The way of a replica's positions on one shelf: `gather` gives [n, D]; `arriving` belongs to training steps."""

    gather: Callable[[Shards], tf.Tensor]
    arriving: Callable[[], Arriving]


@dataclasses.dataclass(frozen=True)
class _Buckets:
    """Rows [U] ordered by owner, how many each of S owners has, and where each position's row is among them [n]."""

    rows: tf.Tensor
    counts: tf.Tensor
    place: tf.Tensor

    @property
    def distinct(self) -> Distinct:
        """The positions by row, for sums."""
        place = tf.cast(self.place, tf.int64)
        return Distinct(self.rows, tf.stack([place, tf.range(tf.size(place, tf.int64))], axis=1))


def on_one_replica(rows: tf.Tensor) -> Route:
    """Returns the way where one replica holds everything."""

    def arriving() -> Arriving:
        distinct = distinct_rows(rows)
        return Arriving(distinct.rows, lambda gradients: sum_duplicates(gradients, distinct))

    return Route(lambda shards: tf.gather(shards[0], rows), arriving)


def to_copies(rows: tf.Tensor, *, replicas: Replicas, exchange: Exchange, dedupe: bool) -> Route:
    """Returns the way where each replica has a copy of all rows: gradients go to all replicas.

    With `dedupe` they are summed before they travel.
    """

    def arriving() -> Arriving:
        if not dedupe:
            total = distinct_rows(replicas.all_rows(rows))
            return Arriving(total.rows, lambda gradients: sum_duplicates(replicas.all_rows(gradients), total))
        own = distinct_rows(rows)
        shared = exchange.share(own.rows, at_most=tf.size(rows))
        total = distinct_rows(shared(own.rows))
        return Arriving(total.rows, lambda gradients: sum_duplicates(shared(sum_duplicates(gradients, own)), total))

    return Route(lambda shards: tf.gather(shards[replicas.local_index()], rows), arriving)


def to_owners(
    rows: tf.Tensor, *, replicas: Replicas, exchange: Exchange, dedupe: bool, travels_as: tf.DType | None
) -> Route:
    """Returns the way where indices go to the owners and rows come back: what one asks for nobody else hears.

    Args:
        rows: int [n].
        replicas: S of them.
        exchange: between them.
        dedupe: whether a row is asked for once, and its gradients are summed before they travel.
        travels_as: dtype of rows and gradients on the way; None: as they are.
    """
    buckets = _buckets(rows, num_shards=replicas.count, dedupe=dedupe)
    counts = exchange.counts(buckets.counts, at_most=tf.size(rows))
    asked = exchange.send(buckets.rows // replicas.count, counts)

    def gather(shards: Shards) -> tf.Tensor:
        own = tf.gather(shards[replicas.local_index()], asked)
        answers = tf.cast(exchange.send(_narrowed(own, travels_as), counts.back()), own.dtype)
        return tf.gather(answers, buckets.place)

    def arriving() -> Arriving:
        distinct = distinct_rows(asked)

        def sums(gradients: tf.Tensor) -> tf.Tensor:
            own = sum_duplicates(gradients, buckets.distinct)
            arrived = exchange.send(_narrowed(own, travels_as), counts)
            return sum_duplicates(tf.cast(arrived, gradients.dtype), distinct)

        return Arriving(distinct.rows, sums)

    return Route(gather, arriving)


def all_hear_all(rows: tf.Tensor, *, replicas: Replicas, travels_as: tf.DType | None) -> Route:
    """Returns the way by arrays of one size: all indices to all replicas, and a sum in which one term is not 0."""
    num_own = tf.size(rows)
    everyones = replicas.all_rows(rows)  # [R n]
    mine = tf.where(everyones % replicas.count == tf.cast(replicas.index(), rows.dtype))  # int64 [m, 1]
    local = tf.gather_nd(everyones, mine) // replicas.count

    def gather(shards: Shards) -> tf.Tensor:
        own = tf.gather(shards[replicas.local_index()], local)
        shape = tf.stack([tf.size(everyones), own.shape[1]])
        spread = tf.scatter_nd(mine, own, tf.cast(shape, tf.int64))
        (total,) = replicas.all_sum([_narrowed(spread, travels_as)])
        first = replicas.index() * num_own
        return tf.cast(total[first : first + num_own], own.dtype)

    def arriving() -> Arriving:
        distinct = distinct_rows(local)

        def sums(gradients: tf.Tensor) -> tf.Tensor:
            arrived = tf.cast(replicas.all_rows(_narrowed(gradients, travels_as)), gradients.dtype)
            return sum_duplicates(tf.gather_nd(arrived, mine), distinct)

        return Arriving(distinct.rows, sums)

    return Route(gather, arriving)


def held_here(rows: tf.Tensor, *, num_shards: int, refuse: Callable[[], Arriving]) -> Route:
    """Returns the way outside of any replica, in a process that holds all shards: for inference."""
    buckets = _buckets(rows, num_shards=num_shards, dedupe=True)
    by_shard = tf.split(buckets.rows // num_shards, buckets.counts, num=num_shards)

    def gather(shards: Shards) -> tf.Tensor:
        found = [tf.gather(shard, local) for shard, local in zip(shards, by_shard, strict=True)]
        return tf.gather(tf.concat(found, axis=0), buckets.place)

    return Route(gather, refuse)


def _buckets(rows: tf.Tensor, *, num_shards: int, dedupe: bool) -> _Buckets:
    distinct, place = tf.unique(rows) if dedupe else (rows, tf.range(tf.size(rows)))
    by_owner = tf.dynamic_partition(tf.range(tf.size(distinct)), tf.cast(distinct % num_shards, tf.int32), num_shards)
    order = tf.concat(by_owner, axis=0)
    counts = tf.stack([tf.size(one) for one in by_owner])
    return _Buckets(tf.gather(distinct, order), counts, tf.gather(tf.math.invert_permutation(order), place))


def _narrowed(values: tf.Tensor, dtype: tf.DType | None) -> tf.Tensor:
    return values if dtype is None else tf.cast(values, dtype)

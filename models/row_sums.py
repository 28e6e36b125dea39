"""Gradients of table rows as they arrive where the rows are: summed over all replicas, not applied yet.

Letters: `V` distinct rows of one shard, `D` width.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

__all__ = ["RowSums"]


@dataclasses.dataclass(frozen=True)
class RowSums:
    """What one replica is to apply to a group's rows on one shelf.

    Attributes:
        group: the weight group.
        shelf: the shelf's number in the plan.
        rows: int [V], distinct, of the local shard.
        sums: float [V, D].
        counts: float [V], positions of the global batch that look each up; None: nobody asks.
        everywhere: whether all replicas have the same of it, instead of each its own rows.
    """

    group: str
    shelf: int
    rows: tf.Tensor
    sums: tf.Tensor
    counts: tf.Tensor | None
    everywhere: bool

    def only_if(self, condition: tf.Tensor) -> RowSums:
        """Returns the same where a scalar bool is true, else no rows."""
        kept = tf.where(condition, tf.size(self.rows), 0)
        counts = None if self.counts is None else self.counts[:kept]
        return dataclasses.replace(self, rows=self.rows[:kept], sums=self.sums[:kept], counts=counts)

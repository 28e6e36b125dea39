"""Several training steps as one TensorFlow function, under any synchronous strategy of one machine.

Shapes: P rows of a padded global batch, R replicas, N steps of an execution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from models.ranking_model import RankingModel

__all__ = ["Execute", "build_execute", "build_score"]

# (iterator over global batches, steps done before, learning rate scales float32 [N]) -> losses float64 [N]
Execute = Callable[[Any, tf.Tensor, tf.Tensor], tf.Tensor]


def build_execute(
    model: RankingModel, strategy: tf.distribute.Strategy, batch_spec: Mapping[str, tf.TensorSpec]
) -> Execute:
    """Returns the function that runs a step for each learning rate scale it is given.

    Args:
        model: built under `strategy`.
        strategy: its replicas each take their slice of a batch.
        batch_spec: of the iterators' batches; P must be a multiple of R.
    """
    num_replicas = strategy.num_replicas_in_sync

    def replica_step(batch: dict[str, tf.Tensor], step: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        share = _slice_of_replica(batch, num_replicas)
        return model.train_step(share, step=step, learning_rate_scale=scale)["loss"]

    @tf.function(
        input_signature=[
            tf.data.IteratorSpec(dict(batch_spec)),
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec([None], tf.float32),
        ]
    )
    def execute(iterator: Any, first_step: tf.Tensor, scales: tf.Tensor) -> tf.Tensor:
        count = tf.size(scales, tf.int64)
        losses = tf.TensorArray(tf.float64, size=tf.cast(count, tf.int32), element_shape=[])
        for index in tf.range(count):
            shares = strategy.run(replica_step, args=(next(iterator), first_step + index, scales[index]))
            loss = strategy.reduce(tf.distribute.ReduceOp.SUM, shares, axis=None)
            losses = losses.write(tf.cast(index, tf.int32), tf.cast(loss, tf.float64))
        return losses.stack()

    execute.get_concrete_function()  # traced now, so that the time of steps is theirs
    traced: Execute = execute
    return traced


def build_score(model: RankingModel) -> Callable[[Any], tf.Tensor]:
    """Returns the function from a parsed batch to probabilities float32 [B, K]."""
    score: Callable[[Any], tf.Tensor] = tf.function(lambda batch: tf.sigmoid(model.logits(batch)))
    return score


def _slice_of_replica(batch: dict[str, tf.Tensor], num_replicas: int) -> dict[str, tf.Tensor]:
    """Returns rows r P / R to (r + 1) P / R of a batch in replica r."""
    if num_replicas == 1:
        return batch
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    return {
        name: tf.reshape(value, [num_replicas, value.shape[0] // num_replicas, *value.shape[1:]])[replica]
        for name, value in batch.items()
    }

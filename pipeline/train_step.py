"""Several training steps as one TensorFlow function, under any synchronous strategy; and scores of a batch.

Shapes: P rows of a padded batch of this process, R its replicas, N steps of an execution, K labels,
C `RankingModel.suspects`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from models.ranking_model import RankingModel
from preprocessing.schema import LABELS_KEY, WEIGHT_KEY

__all__ = ["Execute", "Score", "build_execute", "build_score", "step_figures"]

# (iterator over global batches, steps done before, learning rate scales float32 [N]) -> `step_figures` [N, 2 + C]
Execute = Callable[[Any, tf.Tensor, tf.Tensor], tf.Tensor]
Score = Callable[[Mapping[str, tf.Tensor]], tf.Tensor]


def build_execute(
    model: RankingModel, strategy: tf.distribute.Strategy, batch_spec: Mapping[str, tf.TensorSpec]
) -> Execute:
    """Returns the function that runs a step for each learning rate scale it is given.

    Args:
        model: built under `strategy`.
        strategy: its replicas in this process each take their slice of a batch.
        batch_spec: of the iterators' batches; P must be a multiple of R.
    """
    num_replicas = _replicas_here(strategy)

    def replica_step(batch: dict[str, tf.Tensor], step: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        share = _slice_of_replica(batch, num_replicas)
        return step_figures(model.train_step(share, step=step, learning_rate_scale=scale))

    @tf.function(
        input_signature=[
            tf.data.IteratorSpec(dict(batch_spec)),
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec([None], tf.float32),
        ]
    )
    def execute(iterator: Any, first_step: tf.Tensor, scales: tf.Tensor) -> tf.Tensor:
        count = tf.size(scales, tf.int64)
        figures = tf.TensorArray(tf.float64, size=tf.cast(count, tf.int32), element_shape=[2 + len(model.suspects)])
        for index in tf.range(count):
            shares = strategy.run(replica_step, args=(next(iterator), first_step + index, scales[index]))
            total = strategy.reduce(tf.distribute.ReduceOp.SUM, shares, axis=None)
            figures = figures.write(tf.cast(index, tf.int32), total)
        return figures.stack()

    execute.get_concrete_function()  # traced now, so that the time of steps is theirs
    traced: Execute = execute
    return traced


def build_score(model: RankingModel, strategy: tf.distribute.Strategy) -> Score:
    """Returns the function from a parsed batch, of which each replica takes its slice, to what all replicas found.

    That is float32 [P', 2 K + 1], P' the rows of all processes in order: probabilities, labels and weight. Every
    process has to call it for every batch.
    """
    num_replicas = _replicas_here(strategy)

    def replica_score(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        share = _slice_of_replica(batch, num_replicas)
        found = [tf.sigmoid(model.logits(share)), share[LABELS_KEY], share[WEIGHT_KEY]]
        return model.replicas.all_rows(tf.concat(found, axis=1))

    @tf.function
    def score(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        return strategy.experimental_local_results(strategy.run(replica_score, args=(batch,)))[0]

    traced: Score = score
    return traced


def step_figures(outputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns float64 [2 + C] of the outputs of a step: the loss, how many ids were out of range, and the suspects."""
    figures = [tf.cast(outputs["loss"], tf.float64), tf.cast(outputs["out_of_range"], tf.float64)]
    return tf.concat([tf.stack(figures), outputs["suspects"]], axis=0)


def _replicas_here(strategy: tf.distribute.Strategy) -> int:
    return len(strategy.extended.worker_devices)


def _slice_of_replica(batch: dict[str, tf.Tensor], num_replicas: int) -> dict[str, tf.Tensor]:
    """Returns rows r P / R to (r + 1) P / R of a batch in replica r of this process."""
    if num_replicas == 1:
        return batch
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group % num_replicas
    return {
        name: tf.reshape(value, [num_replicas, value.shape[0] // num_replicas, *value.shape[1:]])[replica]
        for name, value in batch.items()
    }

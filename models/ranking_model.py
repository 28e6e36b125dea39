"""A ranking model: tables, network and optimizers, with one training step and one way to score.

Letters: `B` batch of one replica, `P` positions, `D` width, `K` labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf

from models.config import ModelSpec, OptimizersSpec
from models.dense_optimizer import DenseOptimizer
from models.embedding_plan import EMBEDDING, FIRST_ORDER
from models.lookup import Lookup
from models.loss import loss_share, sampling_offset
from models.mode import Inputs, Mode, Training
from models.partitioned_tables import PartitionedTables
from models.replicas import Replicas
from models.tables import EmbeddingTables
from models.weights import WeightMaker
from preprocessing.schema import DENSE_KEY, LABELS_KEY, WEIGHT_KEY, DatasetSchema

__all__ = ["Network", "RankingModel"]

Batch = Mapping[str, tf.Tensor]
Network = Callable[[Inputs, Mode], tf.Tensor]
Gradients = tuple[tf.Tensor, dict[str, tf.Tensor], dict[str, tf.Tensor]]


class RankingModel:
    """A model on the replicas of this process. Made by `build.build_model`."""

    def __init__(
        self,
        schema: DatasetSchema,
        spec: ModelSpec,
        *,
        optimizers: OptimizersSpec,
        tables: EmbeddingTables | PartitionedTables,
        network: Network,
        weights: WeightMaker,
        replicas: Replicas,
    ) -> None:
        self.schema = schema
        self.spec = spec
        self.optimizers = optimizers
        self.tables = tables
        self.replicas = replicas
        self._network = network
        self._weights = weights
        self._lookup = Lookup(schema, tables.plan)
        self._sampling_offset = sampling_offset(schema.negative_keep)
        self._dense_optimizer = DenseOptimizer(optimizers.dense, weights.trainable, replicas=replicas)
        self._compute_dtype = tf.bfloat16 if spec.precision == "mixed_bfloat16" else weights.dtype
        self._compute = tf.function(self._gradients, jit_compile=True) if spec.jit_compile else self._gradients

    @property
    def dense_variables(self) -> dict[str, tf.Variable]:
        """The network's weights and batch-norm statistics by name."""
        return {**self._weights.trainable, **self._weights.statistics}

    @property
    def dense_slots(self) -> dict[str, dict[str, tf.Variable]]:
        """The state of the dense optimizer: slot name, then weight name."""
        return self._dense_optimizer.slots

    @property
    def inference_variables(self) -> list[tf.Variable]:
        """All variables that `logits` reads outside of a replica: what an exported model must track."""
        return [*self.tables.weights(), *self.dense_variables.values()]

    def train_step(self, batch: Batch, *, step: tf.Tensor, learning_rate_scale: tf.Tensor) -> dict[str, tf.Tensor]:
        """Updates tables and dense weights by one global batch; returns this replica's part of the loss.

        Called on every replica, inside `strategy.run` within a `tf.function`; plainly if there is no strategy.

        Args:
            batch: this replica's slice, keys of `preprocessing.schema`. Rows of weight 0 change nothing. All
                replicas have slices of one size, in the order of the global batch.
            step: int64 scalar, number of updates before this one.
            learning_rate_scale: float scalar, multiplies the learning rate of every group.

        Returns:
            `loss`, whose sum over replicas is the weighted mean over the global batch; `weight`, the sum of this
            replica's weights; and `out_of_range`, how many of its ids no table had (looked up as out of vocabulary).
        """
        weight = tf.cast(batch[WEIGHT_KEY], self._weights.dtype)
        own_weight = tf.reduce_sum(weight)
        (global_weight,) = self.replicas.all_sum([own_weight])
        positions = self._lookup.positions(self._lookup.ids(batch), dtype=weight.dtype, live=weight > 0)
        routes = self.tables.routes(positions.rows)
        loss, of_rows, of_weights = self._compute(
            self.tables.gather(routes),
            position_weights=positions.weights,
            dense=self._dense(batch),
            labels=tf.cast(batch[LABELS_KEY], weight.dtype),
            weight=weight,
            global_weight=global_weight,
            step=step,
        )
        self._dense_optimizer.apply(of_weights, step=step, scale=learning_rate_scale)
        self.tables.update(routes, of_rows, step=step, scale=learning_rate_scale)
        return {"loss": loss, "weight": own_weight, "out_of_range": positions.out_of_range}

    def logits(self, batch: Batch) -> tf.Tensor:
        """Returns float32 [B, K] for inference: no dropout, moving averages, full precision, any B.

        Inside of `strategy.run` all replicas call it; outside, this process must hold all rows of all tables.
        They are the log-odds of the full data, whatever share of the negatives was trained on.
        """
        positions = self._lookup.positions(self._lookup.ids(batch), dtype=self._weights.dtype)
        rows = self.tables.gather(self.tables.routes(positions.rows))
        inputs = self._inputs(rows, positions.weights, self._dense(batch))
        return tf.cast(self._network(inputs, Mode(self._weights.dtype)), tf.float32)

    def _dense(self, batch: Batch) -> tf.Tensor:
        if self.schema.dense:
            return tf.cast(batch[DENSE_KEY], self._weights.dtype)
        first = self._lookup.ids(batch)
        return tf.zeros([tf.shape(first)[0], 0], self._weights.dtype)

    def _inputs(self, rows: Mapping[str, tf.Tensor], weights: tf.Tensor | None, dense: tf.Tensor) -> Inputs:
        pooled = {group: self._lookup.pool(values, weights) for group, values in rows.items()}
        first_order = tf.squeeze(pooled[FIRST_ORDER], axis=2) if FIRST_ORDER in pooled else None
        return Inputs(pooled[EMBEDDING], first_order, dense)

    def _gradients(
        self,
        rows: dict[str, tf.Tensor],
        *,
        position_weights: tf.Tensor | None,
        dense: tf.Tensor,
        labels: tf.Tensor,
        weight: tf.Tensor,
        global_weight: tf.Tensor,
        step: tf.Tensor,
    ) -> Gradients:
        """Returns the loss share, and its gradients by looked-up rows [B, P, D] and by dense weights."""
        live = tf.cast(weight > 0, weight.dtype)
        mode = Mode(self._compute_dtype, Training(step=step, live=live, replicas=self.replicas))
        with tf.GradientTape() as tape:
            tape.watch(rows)
            logits = self._network(self._inputs(rows, position_weights, dense), mode)
            loss = loss_share(logits + self._sampling_offset, labels, weight=weight, global_weight=global_weight)
        of_rows, of_weights = tape.gradient(
            loss, (rows, self._weights.trainable), unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return loss, of_rows, of_weights

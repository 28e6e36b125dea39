"""A ranking model: tables, network and optimizers, with one training step and one way to score.

Letters: `B` batch of one replica, `P` positions, `D` width, `K` labels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from models.accumulation import Gradients, in_parts
from models.attention import TargetAttention
from models.clipping import clipped_by_value, norm_factor, sum_of_squares
from models.config import ModelSpec, OptimizersSpec
from models.dense_optimizer import DenseOptimizer
from models.embedding_plan import EMBEDDING, FIRST_ORDER
from models.inference_tables import InferenceTables
from models.lookup import Lookup
from models.loss import loss_share, sampling_offset
from models.loss_scale import LossScale
from models.mode import Inputs, Mode, Training
from models.partitioned_tables import PartitionedTables
from models.position import FixedPosition, PositionTower
from models.replicas import Replicas
from models.row_sums import RowSums
from models.split_inputs import SplitInputs
from models.suspects import Suspects
from models.tables import EmbeddingTables, Routes
from models.weights import WeightMaker
from preprocessing.errors import TrainingError
from preprocessing.schema import DENSE_KEY, LABELS_KEY, WEIGHT_KEY, DatasetSchema

__all__ = ["Network", "RankingModel"]

Batch = Mapping[str, tf.Tensor]
Network = Callable[[Inputs, Mode], tf.Tensor]
_COMPUTE_DTYPES = {"mixed_bfloat16": tf.bfloat16, "mixed_float16": tf.float16}


class RankingModel:
    """A model on the replicas of this process. Made by `build.build_model`."""

    def __init__(
        self,
        schema: DatasetSchema,
        spec: ModelSpec,
        *,
        optimizers: OptimizersSpec,
        tables: EmbeddingTables | PartitionedTables | InferenceTables,
        network: Network,
        weights: WeightMaker,
        replicas: Replicas,
        attention: TargetAttention | None = None,
        position: FixedPosition | PositionTower | None = None,
        label_weights: Sequence[float] | None = None,
        accumulate_steps: int = 1,
    ) -> None:
        self.schema = schema
        self.spec = spec
        self.optimizers = optimizers
        self.tables = tables
        self.replicas = replicas
        self._network = network
        self._attention = attention
        self._weights = weights
        self._lookup = Lookup(schema, tables.plan)
        self._fixed = position if isinstance(position, FixedPosition) else None
        self._tower = position if isinstance(position, PositionTower) else None
        self._label_weights = label_weights or (1.0,) * len(schema.labels)
        self._sampling_offset = sampling_offset(schema.negative_keep)
        self._dense_optimizer = DenseOptimizer(optimizers.dense, weights.trainable, replicas=replicas)
        self._suspects = Suspects(schema, groups=tables.groups, weights=tuple(weights.trainable))
        self._loss_scale = LossScale(weights, replicas) if spec.precision == "mixed_float16" else None
        self._num_parts = accumulate_steps
        self._compute_dtype = _COMPUTE_DTYPES.get(spec.precision, weights.dtype)
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

    @property
    def needs_whole_rows(self) -> bool:
        """Whether fields are looked at beside others, or left out, before the network: no side goes alone."""
        return self._attention is not None or self._tower is not None

    @property
    def suspects(self) -> tuple[str, ...]:
        """What a loss that is not finite may come from, in the order of `train_step`'s output."""
        return self._suspects.names

    def loss_scale_figures(self) -> dict[str, float]:
        """Returns `loss_scale` and `skipped_steps` as they are now; nothing without loss scaling."""
        return {} if self._loss_scale is None else self._loss_scale.figures()

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
            replica's weights; `out_of_range`, how many of its ids no table had (looked up as out of vocabulary); and
            `suspects`, float64, 1 for each of `suspects` that is not finite and made the loss so.
        """
        weight = tf.cast(batch[WEIGHT_KEY], self._weights.dtype)
        own_weight = tf.reduce_sum(weight)
        (global_weight,) = self.replicas.all_sum([own_weight])
        positions = self._lookup.positions(self._lookup.ids(batch), dtype=weight.dtype, live=weight > 0)
        routes = self.tables.routes(positions.rows)
        rows, dense = self.tables.gather(routes), self._dense(batch)
        labels = tf.cast(batch[LABELS_KEY], weight.dtype)
        per_row = {"position_weights": positions.weights, "dense": dense, "labels": labels, "weight": weight}
        whole = {"global_weight": global_weight, "step": step}
        if self._num_parts == 1:
            loss, of_rows, of_weights = self._compute(rows, first_row=None, **per_row, **whole)
        else:
            first_row = tf.cast(self.replicas.index(), tf.int64) * tf.shape(weight, tf.int64)[0]
            loss, of_rows, of_weights = in_parts(
                self._compute, rows, num_parts=self._num_parts, first_row=first_row, per_row=per_row, whole=whole
            )
        variables = {name: tf.convert_to_tensor(variable) for name, variable in self._weights.trainable.items()}
        suspects = self._suspects.found(loss, dense=dense, labels=labels, weight=weight, rows=rows, weights=variables)
        finite = None
        if self._loss_scale is not None:
            finite = self._loss_scale.all_finite([*of_rows.values(), *of_weights.values()])
            loss = tf.where(self._loss_scale.exhausted(finite), tf.constant(float("nan"), loss.dtype), loss)
        self._update(routes, of_rows, of_weights, step=step, scale=learning_rate_scale, only_if=finite)
        return {"loss": loss, "weight": own_weight, "out_of_range": positions.out_of_range, "suspects": suspects}

    def _update(
        self,
        routes: Routes,
        of_rows: Mapping[str, tf.Tensor],
        of_weights: Mapping[str, tf.Tensor],
        *,
        step: tf.Tensor,
        scale: tf.Tensor,
        only_if: tf.Tensor | None,
    ) -> None:
        """Sums gradients over replicas, clips them, and updates; does nothing if `only_if` is false."""
        weights, rows = self._clipped(self._dense_optimizer.summed(of_weights), self.tables.summed(routes, of_rows))
        if self._loss_scale is not None and only_if is not None:
            rows = [one.only_if(only_if) for one in rows]
            self._loss_scale.follow(only_if)
        self._dense_optimizer.apply(weights, step=step, scale=scale, only_if=only_if)
        self.tables.update(rows, step=step, scale=scale)

    def _clipped(
        self, weights: dict[str, tf.Tensor], rows: list[RowSums]
    ) -> tuple[dict[str, tf.Tensor], list[RowSums]]:
        """Returns gradients within the limits of `optimizers.clipping`."""
        spec = self.optimizers.clipping
        weights = {name: clipped_by_value(gradient, spec.value) for name, gradient in weights.items()}
        if spec.include_tables:
            rows = [dataclasses.replace(one, sums=clipped_by_value(one.sums, spec.value)) for one in rows]
        if spec.global_norm is None:
            return weights, rows
        squares = sum_of_squares(list(weights.values()), dtype=self._weights.dtype)
        if spec.include_tables:
            squares += self._squares_of_rows(rows)
        factor = norm_factor(squares, limit=spec.global_norm)
        weights = {name: gradient * factor for name, gradient in weights.items()}
        if spec.include_tables:
            rows = [dataclasses.replace(one, sums=one.sums * factor) for one in rows]
        return weights, rows

    def _squares_of_rows(self, rows: Sequence[RowSums]) -> tf.Tensor:
        """Returns the squared length of the gradients of all rows, on whichever replica they are; the same on all."""
        dtype = self._weights.dtype
        own = sum_of_squares([one.sums for one in rows if not one.everywhere], dtype=dtype)
        (others,) = self.replicas.all_sum([own])
        return others + sum_of_squares([one.sums for one in rows if one.everywhere], dtype=dtype)

    def logits(self, batch: Batch) -> tf.Tensor:
        """Returns float32 [B, K] for inference: no dropout, moving averages, full precision, any B.

        Inside of `strategy.run` all replicas call it; outside, this process must hold all rows of all tables.
        They are the log-odds of the full data, whatever share of the negatives was trained on.
        """
        positions = self._lookup.positions(
            self._served(self._lookup.ids(batch), self.schema), dtype=self._weights.dtype
        )
        rows = self.tables.gather(self.tables.routes(positions.rows))
        inputs = self._inputs(rows, positions.weights, self._dense(batch), compute_dtype=self._weights.dtype)
        return self.network_logits(inputs if self._tower is None else self._tower.without(inputs))

    def _served(self, ids: tf.Tensor, schema: DatasetSchema) -> tf.Tensor:
        return ids if self._fixed is None else self._fixed.served(ids, schema)

    def network_logits(self, inputs: Inputs) -> tf.Tensor:
        """Returns float32 [B, K] of looked-up fields and numbers, for inference."""
        return tf.cast(self._network(inputs, Mode(self._weights.dtype)), tf.float32)

    def split_logits(self, split: SplitInputs) -> tf.Tensor | None:
        """Returns float32 [Q N, K] for inference; None if the network cannot take the two sides apart."""
        of_sides = getattr(self._network, "of_sides", None)
        return None if of_sides is None else tf.cast(of_sides(split, Mode(self._weights.dtype)), tf.float32)

    def inputs_of(self, batch: Batch, part: DatasetSchema, *, lookup: Lookup, num_rows: tf.Tensor) -> Inputs:
        """Returns what the network is given for some of its fields and numbers.

        Args:
            batch: their inputs, B rows.
            part: names them; it may have no fields, or no numbers.
            lookup: of `part`.
            num_rows: B, int32 scalar.

        Raises:
            TrainingError: if this model is not one for inference, or a field cannot be pooled alone.
        """
        if self.needs_whole_rows:
            raise TrainingError("target attention and a position tower look at whole rows: use `logits`")
        if not isinstance(self.tables, InferenceTables):
            raise TrainingError("parts of a row are looked up in a model that build_inference_model made")
        dtype = self._weights.dtype
        dense = tf.cast(batch[DENSE_KEY], dtype) if part.dense else tf.zeros([num_rows, 0], dtype)
        if lookup.num_fields:
            positions = lookup.positions(self._served(lookup.ids(batch), part), dtype=dtype)
            rows = self.tables.lookup(positions.rows)
            pooled = {group: lookup.pool(values, positions.weights) for group, values in rows.items()}
        else:
            pooled = {group: tf.zeros([num_rows, 0, self.tables.width(group)], dtype) for group in self.tables.groups}
        first_order = tf.squeeze(pooled[FIRST_ORDER], axis=2) if FIRST_ORDER in pooled else None
        return Inputs(pooled[EMBEDDING], first_order, dense)

    def _dense(self, batch: Batch) -> tf.Tensor:
        if self.schema.dense:
            return tf.cast(batch[DENSE_KEY], self._weights.dtype)
        first = self._lookup.ids(batch)
        return tf.zeros([tf.shape(first)[0], 0], self._weights.dtype)

    def _inputs(
        self,
        rows: Mapping[str, tf.Tensor],
        weights: tf.Tensor | None,
        dense: tf.Tensor,
        *,
        compute_dtype: tf.DType,
    ) -> Inputs:
        pooled = {group: self._lookup.pool(values, weights) for group, values in rows.items()}
        if self._attention is not None and weights is not None:
            pooled[EMBEDDING] = self._attention(
                pooled[EMBEDDING], rows[EMBEDDING], weights, compute_dtype=compute_dtype
            )
        first_order = tf.squeeze(pooled[FIRST_ORDER], axis=2) if FIRST_ORDER in pooled else None
        return Inputs(pooled[EMBEDDING], first_order, dense)

    def _gradients(
        self,
        rows: dict[str, tf.Tensor],
        *,
        first_row: tf.Tensor | None,
        position_weights: tf.Tensor | None,
        dense: tf.Tensor,
        labels: tf.Tensor,
        weight: tf.Tensor,
        global_weight: tf.Tensor,
        step: tf.Tensor,
    ) -> Gradients:
        """Returns the loss share, and its gradients by looked-up rows [B, P, D] and by dense weights."""
        live = tf.cast(weight > 0, weight.dtype)
        mode = Mode(self._compute_dtype, Training(step=step, live=live, replicas=self.replicas, first_row=first_row))
        with tf.GradientTape() as tape:
            tape.watch(rows)
            inputs = self._inputs(rows, position_weights, dense, compute_dtype=mode.compute_dtype)
            if self._tower is None:
                logits = self._network(inputs, mode)
            else:
                logits = self._network(self._tower.without(inputs), mode) + self._tower.logits(inputs, mode)
            loss = loss_share(
                logits + self._sampling_offset,
                labels,
                weight=weight,
                global_weight=global_weight,
                label_weights=self._label_weights,
            )
            target = loss if self._loss_scale is None else self._loss_scale.scaled(loss)
        of_rows, of_weights = tape.gradient(
            target, (rows, self._weights.trainable), unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        if self._loss_scale is not None:
            of_rows, of_weights = tf.nest.map_structure(self._loss_scale.unscaled, (of_rows, of_weights))
        return loss, of_rows, of_weights

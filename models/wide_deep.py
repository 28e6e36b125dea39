"""Wide & Deep: a linear model and a deep one, trained together. Cheng et al. (2016)."""

from __future__ import annotations

import tensorflow as tf

from models.config import ModelSpec
from models.layers import MLP, Dense
from models.mode import Inputs, Mode
from models.split_inputs import SplitInputs
from models.weights import WeightMaker
from preprocessing.errors import TrainingError

__all__ = ["Linear", "WideDeep", "deep_input"]


class Linear:
    """Sum of the fields' first-order weights, plus x w of the numbers, plus a bias for each label."""

    def __init__(self, make: WeightMaker, *, num_dense: int, num_labels: int) -> None:
        self._bias = make.constant("linear/bias", (num_labels,))
        self._dense = make.constant("linear/kernel", (num_dense, 1)) if num_dense else None

    def __call__(self, inputs: Inputs) -> tf.Tensor:
        """Returns [B, K]."""
        if inputs.first_order is None:
            raise TrainingError("a linear part needs the first_order group: list it for this network in models.build")
        fields = tf.reduce_sum(inputs.first_order, axis=1, keepdims=True)
        numbers = 0.0 if self._dense is None else tf.matmul(inputs.dense, self._dense)
        return fields + numbers + self._bias

    def of_sides(self, split: SplitInputs) -> tf.Tensor:
        """Returns [Q N, K]."""
        parts = []
        for side in split.sides:
            if side.inputs.first_order is None:
                raise TrainingError("a linear part needs the first_order group")
            part = tf.reduce_sum(side.inputs.first_order, axis=1, keepdims=True)
            if self._dense is not None:
                part += tf.matmul(side.inputs.dense, tf.gather(self._dense, side.dense))
            parts.append(part)
        return split.added(*parts) + self._bias


def deep_input(inputs: Inputs) -> tf.Tensor:
    """Returns the fields' vectors side by side, then the numbers: [B, F D + N]."""
    num_fields, width = int(inputs.embedding.shape[1]), int(inputs.embedding.shape[2])
    if not num_fields:  # a side of a split network may have numbers alone
        return inputs.dense
    flat = tf.reshape(inputs.embedding, [-1, num_fields * width])
    return tf.concat([flat, inputs.dense], axis=1) if inputs.dense.shape[1] else flat


class WideDeep:
    """logit = wide + deep, equation 3; crossed features are fields like others and reach both parts."""

    def __init__(self, make: WeightMaker, spec: ModelSpec, *, num_fields: int, num_dense: int, num_labels: int) -> None:
        self._wide = Linear(make, num_dense=num_dense, num_labels=num_labels)
        self._mlp = MLP(make, spec, fan_in=num_fields * spec.embedding_dim + num_dense)
        self._head = Dense(make, "head", fan_in=self._mlp.width, fan_out=num_labels)

    def __call__(self, inputs: Inputs, mode: Mode) -> tf.Tensor:
        """Returns logits [B, K]."""
        return self._wide(inputs) + self._head(self._mlp(deep_input(inputs), mode))

    def of_sides(self, split: SplitInputs, mode: Mode) -> tf.Tensor:
        """Returns logits [Q N, K], for inference."""
        user, candidate = deep_input(split.user.inputs), deep_input(split.candidate.inputs)
        return self._wide.of_sides(split) + self._head(self._mlp.of_sides(split, user, candidate, mode))

"""DeepFM: linear part, factorisation machine and deep part on the same embeddings. Guo et al. (2017)."""

from __future__ import annotations

import tensorflow as tf

from models.config import ModelSpec
from models.interactions import factorisation_machine, factorisation_machine_of_sides
from models.layers import MLP, Dense
from models.mode import Inputs, Mode
from models.split_inputs import SplitInputs
from models.weights import WeightMaker
from models.wide_deep import Linear, deep_input

__all__ = ["DeepFM"]


class DeepFM:
    """logit = linear + FM + deep, equation 1; with several labels the deep part has a head for each."""

    def __init__(self, make: WeightMaker, spec: ModelSpec, *, num_fields: int, num_dense: int, num_labels: int) -> None:
        self._linear = Linear(make, num_dense=num_dense, num_labels=num_labels)
        self._dense_vectors = (
            make.uniform("fm/dense", (num_dense, spec.embedding_dim), scale=spec.embedding_init_scale)
            if num_dense
            else None
        )
        self._mlp = MLP(make, spec, fan_in=num_fields * spec.embedding_dim + num_dense)
        self._head = Dense(make, "head", fan_in=self._mlp.width, fan_out=num_labels)

    def __call__(self, inputs: Inputs, mode: Mode) -> tf.Tensor:
        """Returns logits [B, K]."""
        pairs = factorisation_machine(
            inputs.embedding, dense=inputs.dense, dense_vectors=self._dense_vectors, trains=mode.training is not None
        )
        return self._linear(inputs) + pairs + self._head(self._mlp(deep_input(inputs), mode))

    def of_sides(self, split: SplitInputs, mode: Mode) -> tf.Tensor:
        """Returns logits [Q N, K], for inference."""
        user, candidate = deep_input(split.user.inputs), deep_input(split.candidate.inputs)
        pairs = factorisation_machine_of_sides(split, dense_vectors=self._dense_vectors)
        return self._linear.of_sides(split) + pairs + self._head(self._mlp.of_sides(split, user, candidate, mode))

"""DLRM, on the dot interaction of TensorFlow Recommenders. Naumov et al. (2019), section 2.1."""

from __future__ import annotations

import tensorflow as tf
from tensorflow_recommenders.layers.feature_interaction import DotInteraction

from models.config import ModelSpec
from models.layers import MLP, Dense
from models.mode import Inputs, Mode
from models.weights import WeightMaker

__all__ = ["DLRM"]


class DLRM:
    """logit = top([z, <v_i, v_j> for i < j]): v are the fields' vectors and z, what the bottom MLP makes of numbers."""

    def __init__(self, make: WeightMaker, spec: ModelSpec, *, num_fields: int, num_dense: int, num_labels: int) -> None:
        num_vectors, width = num_fields + bool(num_dense), spec.embedding_dim
        self._bottom = (
            MLP(make, spec, fan_in=num_dense, name="bottom", units=(*spec.bottom_units, width)) if num_dense else None
        )
        self._dots = DotInteraction(dtype=make.dtype.name)
        self._top = MLP(make, spec, fan_in=num_vectors * (num_vectors - 1) // 2 + (width if num_dense else 0))
        self._head = Dense(make, "head", fan_in=self._top.width, fan_out=num_labels)

    def __call__(self, inputs: Inputs, mode: Mode) -> tf.Tensor:
        """Returns logits [B, K]."""
        of_numbers = [] if self._bottom is None else [self._bottom(inputs.dense, mode)]
        dots = self._dots([*of_numbers, *tf.unstack(inputs.embedding, axis=1)])
        return self._head(self._top(tf.concat([*of_numbers, dots], axis=1), mode))

"""DCN-v2 in its parallel form, on the cross layer of TensorFlow Recommenders. Wang et al. (2021)."""

from __future__ import annotations

import tensorflow as tf
from tensorflow_recommenders.layers.feature_interaction import Cross

from models.config import ModelSpec
from models.layers import MLP, Dense
from models.mode import Inputs, Mode
from models.weights import WeightMaker
from models.wide_deep import deep_input

__all__ = ["DCN"]


class DCN:
    """logit = head of [cross network, deep network]; x' = x0 * (W x + b) + x, equation 1."""

    def __init__(self, make: WeightMaker, spec: ModelSpec, *, num_fields: int, num_dense: int, num_labels: int) -> None:
        width = num_fields * spec.embedding_dim + num_dense
        self._cross: list[Cross] = []
        for i in range(spec.cross_layers):
            self._add_cross(make, f"cross/{i}", width=width)
        self._mlp = MLP(make, spec, fan_in=width)
        self._head = Dense(make, "head", fan_in=width + self._mlp.width, fan_out=num_labels)

    def _add_cross(self, make: WeightMaker, name: str, *, width: int) -> None:
        layer = Cross(dtype=make.dtype.name)

        def build() -> dict[str, tf.Variable]:
            layer.build((None, width))
            layer(tf.zeros((1, width), make.dtype), tf.zeros((1, width), make.dtype))
            return {f"{name}/{'kernel' if len(w.shape) == 2 else 'bias'}": w for w in layer.weights}

        make.adopt(build)
        self._cross.append(layer)

    def __call__(self, inputs: Inputs, mode: Mode) -> tf.Tensor:
        """Returns logits [B, K]."""
        first = crossed = deep_input(inputs)
        for layer in self._cross:
            crossed = layer(first, crossed)
        return self._head(tf.concat([crossed, self._mlp(first, mode)], axis=1))

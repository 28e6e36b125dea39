"""Networks as a user would bring them: one that keeps to the contract, and some that do not."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras as keras

from models.config import ModelSpec
from models.layers import Dense
from models.mode import Inputs, Mode
from models.weights import WeightMaker

NOT_A_CLASS = 3


class Tower:
    """One layer of a framework's own over all vectors, a product with the numbers, and the linear weights."""

    reads_first_order = True

    def __init__(self, make: WeightMaker, spec: ModelSpec, *, num_fields: int, num_dense: int, num_labels: int) -> None:
        self._scale = float(spec.params.get("scale", 1.0))
        self._hidden = keras.layers.Dense(5, activation="tanh", dtype=make.dtype.name)

        def build() -> dict[str, tf.Variable]:
            self._hidden.build((None, num_fields * spec.embedding_dim))
            return {"tower/kernel": self._hidden.kernel, "tower/bias": self._hidden.bias}

        make.adopt(build)
        self._head = Dense(make, "head", fan_in=5 + num_dense, fan_out=num_labels)

    def __call__(self, inputs: Inputs, mode: Mode) -> tf.Tensor:
        flat = tf.reshape(inputs.embedding, [-1, inputs.embedding.shape[1] * inputs.embedding.shape[2]])
        hidden = tf.concat([self._hidden(flat), inputs.dense], axis=1)
        linear = tf.reduce_sum(inputs.first_order, axis=1, keepdims=True)
        deep = self._head(tf.cast(hidden, mode.compute_dtype))
        return self._scale * tf.cast(deep, linear.dtype) + linear


class Few:
    """It takes too few arguments."""

    def __init__(self, make: WeightMaker, spec: ModelSpec) -> None: ...


class Flat:
    """It drops the axis of the labels."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __call__(self, inputs: Inputs, _: Mode) -> tf.Tensor:
        return tf.reduce_sum(inputs.embedding, axis=[1, 2])


class Hoarder:
    """It has a weight that nobody would train."""

    def __init__(self, make: WeightMaker, *_: Any, **__: Any) -> None:
        self._weight = tf.Variable(1.0, dtype=make.dtype, name="hoarded")

    def __call__(self, inputs: Inputs, _: Mode) -> tf.Tensor:
        return self._weight * tf.reduce_sum(inputs.embedding, axis=[1, 2])[:, None]

"""The dense weights of a network: made by name, with first values that follow from (seed, name) alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from models.replicas import Replicas

__all__ = ["WeightMaker", "initial_generator"]


def initial_generator(seed: int, name: str) -> np.random.Generator:
    """Returns the random generator of one weight."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little"))


class WeightMaker:
    """Makes variables that are equal on all replicas, and keeps them by name."""

    def __init__(self, replicas: Replicas, *, seed: int, dtype: tf.DType) -> None:
        self._replicas = replicas
        self.seed = seed
        self.dtype = dtype
        self.trainable: dict[str, tf.Variable] = {}
        self.statistics: dict[str, tf.Variable] = {}

    def _variable(self, name: str, value: NDArray[np.floating], *, trainable: bool) -> tf.Variable:
        with self._replicas.scope():
            return tf.Variable(value.astype(self.dtype.name), trainable=trainable, name=name)

    def glorot(self, name: str, *, fan_in: int, fan_out: int) -> tf.Variable:
        """Returns a kernel [fan_in, fan_out], uniform in +-sqrt(6 / (fan_in + fan_out)); Glorot and Bengio (2010)."""
        return self.uniform(name, (fan_in, fan_out), scale=float(np.sqrt(6.0 / (fan_in + fan_out))))

    def uniform(self, name: str, shape: tuple[int, ...], *, scale: float) -> tf.Variable:
        """Returns a weight that starts uniform in [-scale, scale)."""
        value = initial_generator(self.seed, name).uniform(-scale, scale, shape)
        self.trainable[name] = self._variable(name, value, trainable=True)
        return self.trainable[name]

    def constant(self, name: str, shape: tuple[int, ...], *, value: float = 0.0) -> tf.Variable:
        """Returns a weight that starts at one value."""
        self.trainable[name] = self._variable(name, np.full(shape, value), trainable=True)
        return self.trainable[name]

    def statistic(self, name: str, shape: tuple[int, ...], *, value: float) -> tf.Variable:
        """Returns a value that training keeps, but no gradient moves."""
        self.statistics[name] = self._variable(name, np.full(shape, value), trainable=False)
        return self.statistics[name]

    def components(self) -> list[tf.Variable]:
        """Returns all variables made, on several replicas each one's own."""
        made = [*self.trainable.values(), *self.statistics.values()]
        return [one for variable in made for one in getattr(variable, "values", (variable,))]

    def adopt(self, build: Callable[[], dict[str, tf.Variable]]) -> None:
        """Takes in the weights of a layer that makes its own, given by name."""
        with self._replicas.scope():
            made = build()
        for name, variable in made.items():
            value = np.asarray(variable)
            if value.ndim == 2:  # kernels get first values that follow from (seed, name), as all others
                limit = float(np.sqrt(6.0 / sum(value.shape)))
                variable.assign(initial_generator(self.seed, name).uniform(-limit, limit, value.shape))
            self.trainable[name] = variable

"""The processes that train in step, as one of them sees the others: its place, and the numbers that they share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from models.replicas import Replicas
from preprocessing.errors import TrainingError

__all__ = ["ALONE", "Workers", "workers_of"]


@dataclasses.dataclass(frozen=True)
class Workers:
    """`index` of `count`; worker 0 writes what is written once."""

    index: int
    count: int
    gather: Callable[[int], list[int]]

    @property
    def is_chief(self) -> bool:
        """Whether this is worker 0."""
        return self.index == 0

    def meet(self) -> None:
        """Returns once every worker has called it."""
        self.gather(0)

    def agree(self, value: int, what: str) -> None:
        """Returns if every worker has the same value.

        Raises:
            TrainingError: on every worker, if not.
        """
        values = self.gather(value)
        if len(set(values)) > 1:
            raise TrainingError(
                f"the workers do not agree on {what}: {values}, by worker; they must see the same files and be "
                "given the same config"
            )


ALONE = Workers(0, 1, lambda value: [value])


def workers_of(strategy: tf.distribute.Strategy, *, index: int, count: int) -> Workers:
    """Returns the workers of a strategy of several processes."""
    replicas = Replicas(strategy)
    here = len(replicas.devices)

    @tf.function
    def exchange(value: tf.Tensor) -> tf.Tensor:
        found = strategy.run(lambda: replicas.all_rows(value[tf.newaxis]))
        return strategy.experimental_local_results(found)[0]

    return Workers(index, count, lambda value: exchange(tf.constant(value, tf.int64)).numpy()[::here].tolist())

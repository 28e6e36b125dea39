"""The replicas that train one model, and what they say to each other: sums and gathered rows.

Without a strategy there is one replica and nothing to say. `R` is the number of replicas in sync.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

import tensorflow as tf

from preprocessing.errors import TrainingError

__all__ = ["Replicas", "as_moved"]


def as_moved(value: tf.Tensor, *, back_to: tf.DType = tf.float16) -> tf.Tensor:
    """Returns the bits of a bfloat16 tensor under the name of a type that TensorFlow moves between processes.

    What moves them does no arithmetic. Other types stay, and `back_to` bfloat16 makes the way back.
    """
    if tf.bfloat16 not in (value.dtype, back_to):
        return value
    return tf.bitcast(value, back_to)


@dataclasses.dataclass(frozen=True)
class Replicas:
    """The replicas of a strategy as one process sees them."""

    strategy: tf.distribute.Strategy | None = None

    @property
    def count(self) -> int:
        """R, over all workers."""
        return 1 if self.strategy is None else int(self.strategy.num_replicas_in_sync)

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices of this process's replicas; empty without a strategy."""
        return () if self.strategy is None else tuple(self.strategy.extended.worker_devices)

    @property
    def first(self) -> int:
        """The number among all of this process's first replica; the others follow."""
        resolver = getattr(self.strategy, "cluster_resolver", None)
        if resolver is None or self.count == len(self.devices):
            return 0
        before = 1 if resolver.task_type == "worker" and "chief" in resolver.cluster_spec().jobs else 0
        return (resolver.task_id + before) * len(self.devices)

    @property
    def held(self) -> range:
        """The numbers among all of this process's replicas."""
        return range(self.first, self.first + max(1, len(self.devices)))

    @property
    def process(self) -> int:
        """The number of this process among those that train, from 0."""
        return self.first // len(self.devices) if self.devices else 0

    @property
    def num_processes(self) -> int:
        """Processes that train."""
        return max(1, self.count // len(self.devices)) if self.devices else 1

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Variables made within are kept equal on all replicas by their updates."""
        if self.strategy is None:
            yield
            return
        with self.strategy.scope():
            yield

    @contextlib.contextmanager
    def beside(self, variable: tf.Variable) -> Iterator[None]:
        """Variables made within lie on the devices of `variable`, as optimizer slots must on parameter servers."""
        if self.strategy is None:
            yield
            return
        with self.strategy.scope(), self.strategy.extended.colocate_vars_with(variable):
            yield

    def inside(self) -> bool:
        """Returns whether this is code of a replica, inside of `strategy.run`."""
        if self.strategy is None or tf.distribute.in_cross_replica_context():
            return False
        return tf.distribute.get_strategy() is self.strategy

    def index(self) -> tf.Tensor | int:
        """Returns the number of this replica among all, 0 to R - 1."""
        if not self.inside() or self.count == 1:
            return 0
        return tf.distribute.get_replica_context().replica_id_in_sync_group

    def local_index(self) -> int:
        """Returns the number of this replica among those of its process; 0 outside of any replica.

        The id is a constant wherever a process has several replicas, and a tensor of unknown value only where it
        has one.
        """
        if len(self.devices) <= 1:
            return 0
        replica_id = tf.get_static_value(tf.convert_to_tensor(self.index()))
        return 0 if replica_id is None else int(replica_id) % len(self.devices)

    @property
    def storage(self) -> str | None:
        """The device of the one copy of everything, under CentralStorage; None where replicas have copies."""
        if isinstance(self.strategy, tf.distribute.experimental.CentralStorageStrategy):
            return str(self.strategy.extended.parameter_devices[0])
        return None

    def writes(self) -> bool:
        """Returns whether this replica applies updates to what `component` gives: all do, to their own copies."""
        return self.storage is None or self.local_index() == 0

    def component(self, variable: tf.Variable) -> tf.Variable:
        """Returns this replica's own copy of a variable that was made in `scope`, or the one that all share."""
        if self.strategy is None:
            return variable
        if self.storage is not None:
            return variable.get() if hasattr(variable, "get") else variable
        return self.strategy.experimental_local_results(variable)[self.local_index()]

    def _context(self) -> tf.distribute.ReplicaContext:
        if not self.inside():
            raise TrainingError(f"a training step on {self.count} replicas must run inside strategy.run")
        return tf.distribute.get_replica_context()

    def _placed(self, value: tf.Tensor) -> tf.Tensor:
        # Multi-worker collectives find no destination for a tensor without a device.
        with tf.device(self.devices[self.local_index()]):
            return tf.identity(value)

    def all_sum(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns each tensor summed over the replicas, the same on all of them; differentiable."""
        if self.count == 1:
            return list(values)
        placed = [self._placed(value) for value in values]
        return list(self._context().all_reduce(tf.distribute.ReduceOp.SUM, placed))

    def all_rows(self, value: tf.Tensor) -> tf.Tensor:
        """Returns [n, ...] of all replicas, one below the other in replica order: [R n, ...]."""
        if self.count == 1:
            return value
        gathered = self._context().all_gather(self._placed(as_moved(value)), axis=0)
        return as_moved(gathered, back_to=value.dtype)

    def told(self, value: int) -> list[int]:
        """Returns the int64 values of all processes, once every one has called it; from outside of a step."""
        if self.strategy is None or self.num_processes == 1:
            return [value]
        strategy = self.strategy

        @tf.function(autograph=False)
        def gathered(own: tf.Tensor) -> tf.Tensor:
            return strategy.experimental_local_results(strategy.run(lambda: self.all_rows(own)))[0]

        values = gathered(tf.constant([value], tf.int64)).numpy()
        return [int(one) for one in values[:: len(self.devices)]]

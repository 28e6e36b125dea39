"""Messages between replicas whose lengths follow from the data: to one receiver each, or to all.

Replicas of one process hand tensors over inside `merge_call`, with no padding. Between processes TensorFlow's
collectives carry them. Those want arrays of one shape on all replicas, and for one instance key for ever: so the
replicas first tell each other their lengths, pad to a common capacity, and take a key for each capacity. Capacities
are multiples of a quantum, which bounds the number of keys. Padding is cut off on arrival.

Letters: `R` replicas, `C` capacity, `n` rows that a replica sends at most.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from models.replicas import Replicas, as_moved

__all__ = ["Counts", "Exchange"]

# A key for each exchange of this process; TensorFlow's own groups count up from 1. All processes build their models
# in one order.
_GROUP_KEYS = itertools.count(0x52414E4B)
_QUANTA = 16  # capacity classes for each replica's share of n: padding wastes at most 1 / 16 of a balanced message
_KEYS_PER_CALL = 1 << 12


@dataclasses.dataclass(frozen=True)
class _Capacity:
    """Rows of a padded message, int32 scalar, a multiple of `quantum`."""

    rows: tf.Tensor
    quantum: tf.Tensor

    @property
    def size_class(self) -> tf.Tensor:
        """The number of this capacity among all."""
        return self.rows // self.quantum


@dataclasses.dataclass(frozen=True)
class Counts:
    """Rows that travel between this replica and each other, int32 [R].

    Attributes:
        sent: to each replica.
        received: from each replica.
        capacity: of the messages; None within a process.
    """

    sent: tf.Tensor
    received: tf.Tensor
    capacity: _Capacity | None = None

    def back(self) -> Counts:
        """Returns the counts of the answers."""
        return dataclasses.replace(self, sent=self.received, received=self.sent)


class Exchange:
    """Both ways to exchange rows; called on every replica, in the same order."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._direct = replicas.count == len(replicas.devices)
        self._group_key = next(_GROUP_KEYS)
        self._calls: dict[int, int] = {}

    def counts(self, sent: tf.Tensor, *, at_most: tf.Tensor) -> Counts:
        """Returns how many rows travel, given how many this replica sends to each.

        Args:
            sent: int32 [R].
            at_most: int32 scalar, n; the same on all replicas.
        """
        if self._direct:
            return Counts(sent, self._transposed(sent))
        table = tf.reshape(self._collective(tf.raw_ops.CollectiveGatherV2, sent), [self._replicas.count, -1])
        capacity = _capacity(table, quantum=at_most // (_QUANTA * self._replicas.count) + 1)
        return Counts(sent, tf.gather(table, self._replicas.index(), axis=1), capacity)

    def send(self, rows: tf.Tensor, counts: Counts) -> tf.Tensor:
        """Returns the rows [sum(received), ...] that the replicas sent here, in their order.

        Args:
            rows: [sum(sent), ...], ordered by receiver.
            counts: rows from and to each replica.
        """
        if counts.capacity is None:
            return self._swapped(rows, counts.sent)
        ragged = tf.RaggedTensor.from_row_lengths(rows, counts.sent, validate=False)
        padded = ragged.to_tensor(shape=[self._replicas.count, None, *rows.shape[1:]])
        padded = _filled_up(padded, counts.capacity.rows, axis=1)
        arrived = self._collective(tf.raw_ops.CollectiveAllToAllV2, padded, counts.capacity.size_class)
        return tf.boolean_mask(arrived, tf.sequence_mask(counts.received, counts.capacity.rows))

    def share(self, rows: tf.Tensor, *, at_most: tf.Tensor) -> Callable[[tf.Tensor], tf.Tensor]:
        """Returns a function that gives the [n, ...] of all replicas, one below the other in replica order.

        The function takes any tensor with as many rows as `rows`; the replicas need not have equally many.
        """
        if self._direct:
            return self._concatenated
        lengths = self._collective(tf.raw_ops.CollectiveGatherV2, tf.reshape(tf.shape(rows)[0], [1]))
        capacity = _capacity(lengths, quantum=at_most // _QUANTA + 1)
        kept = tf.reshape(tf.sequence_mask(lengths, capacity.rows), [-1])

        def shared(values: tf.Tensor) -> tf.Tensor:
            padded = _filled_up(values, capacity.rows, axis=0)
            gathered = self._collective(tf.raw_ops.CollectiveGatherV2, padded, capacity.size_class)
            return tf.boolean_mask(gathered, kept)

        return shared

    def _collective(self, operation: Callable[..., tf.Tensor], value: tf.Tensor, size_class: Any = 0) -> tf.Tensor:
        """Runs a collective under a key that all replicas find alike: they make the same calls in the same order."""
        local = self._replicas.local_index()
        call = self._calls.get(local, 0)
        self._calls[local] = call + 1
        with tf.device(self._replicas.devices[local]):
            moved = operation(
                input=tf.identity(as_moved(value)),
                group_size=self._replicas.count,
                group_key=self._group_key,
                instance_key=call * _KEYS_PER_CALL + size_class,
                ordering_token=[],
                communication_hint="auto",
            )
            return as_moved(moved, back_to=value.dtype)

    def _merged(self, merge: Callable[[list[tuple[tf.Tensor, ...]]], list[tf.Tensor]], *own: tf.Tensor) -> tf.Tensor:
        """Returns this replica's entry of what `merge` makes of all replicas' tensors."""
        devices = self._replicas.devices

        def merged(strategy: tf.distribute.Strategy, *values: Any) -> Any:
            all_values = list(zip(*(strategy.experimental_local_results(value) for value in values), strict=True))
            results = merge(all_values)
            return strategy.experimental_distribute_values_from_function(
                lambda context: results[int(context.replica_id_in_sync_group)]
            )

        result = tf.distribute.get_replica_context().merge_call(merged, args=own)
        with tf.device(devices[self._replicas.local_index()]):
            return tf.identity(result)

    def _transposed(self, sent: tf.Tensor) -> tf.Tensor:
        def merge(values: list[tuple[tf.Tensor, ...]]) -> list[tf.Tensor]:
            return tf.unstack(tf.stack([one[0] for one in values], axis=1))

        return self._merged(merge, sent)

    def _swapped(self, rows: tf.Tensor, sent: tf.Tensor) -> tf.Tensor:
        devices = self._replicas.devices

        def merge(values: list[tuple[tf.Tensor, ...]]) -> list[tf.Tensor]:
            parts = []
            for device, (one, lengths) in zip(devices, values, strict=True):
                with tf.device(device):
                    parts.append(tf.split(one, lengths, num=len(devices)))
            received = []
            for i, device in enumerate(devices):
                with tf.device(device):
                    received.append(tf.concat([one[i] for one in parts], axis=0))
            return received

        return self._merged(merge, rows, sent)

    def _concatenated(self, values: tf.Tensor) -> tf.Tensor:
        def merge(all_values: list[tuple[tf.Tensor, ...]]) -> list[tf.Tensor]:
            results = []
            for device in self._replicas.devices:
                with tf.device(device):
                    results.append(tf.concat([one[0] for one in all_values], axis=0))
            return results

        return self._merged(merge, values)


def _capacity(counts: tf.Tensor, *, quantum: tf.Tensor) -> _Capacity:
    """Returns the capacity for the largest of the counts; at least a quantum: no message is empty."""
    classes = (tf.maximum(tf.reduce_max(counts), 1) + quantum - 1) // quantum
    return _Capacity(classes * quantum, quantum)


def _filled_up(values: tf.Tensor, length: tf.Tensor, *, axis: int) -> tf.Tensor:
    """Returns the values with zeros behind them along an axis."""
    paddings = [[0, 0]] * axis + [[0, length - tf.shape(values)[axis]]]
    return tf.pad(values, paddings + [[0, 0]] * (values.shape.rank - axis - 1))

"""What the operator may say about batching."""

from __future__ import annotations

import dataclasses
import os

from serving.server.status import Code, StatusError

__all__ = ["BatchingParameters"]


@dataclasses.dataclass(frozen=True)
class BatchingParameters:
    """When a batch is run and how many may wait; names and defaults are those of TF Serving.

    Raises:
        StatusError: INVALID_ARGUMENT, if they contradict each other.
    """

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = os.cpu_count() or 1
    thread_pool_name: str = "batch_threads"
    allowed_batch_sizes: tuple[int, ...] = ()
    pad_variable_length_inputs: bool = False
    enable_large_batch_splitting: bool = False
    max_execution_batch_size: int = 0

    def __post_init__(self) -> None:
        if min(self.max_batch_size, self.num_batch_threads) < 1 or self.batch_timeout_micros < 0:
            raise _refused("max_batch_size and num_batch_threads must be positive, batch_timeout_micros not negative")
        if not 0 < self.execution_size <= self.max_batch_size:
            raise _refused("max_execution_batch_size must be positive and at most max_batch_size")
        sizes = self.allowed_batch_sizes
        if sizes and (list(sizes) != sorted(set(sizes)) or sizes[0] < 1 or sizes[-1] != self.execution_size):
            raise _refused(
                "allowed_batch_sizes entries must be monotonically increasing, and the last must equal"
                f" the largest batch that is run, {self.execution_size}; got {list(sizes)}"
            )

    @property
    def execution_size(self) -> int:
        """The most rows that are run at once."""
        if self.enable_large_batch_splitting and self.max_execution_batch_size:
            return self.max_execution_batch_size
        return self.max_batch_size


def _refused(message: str) -> StatusError:
    return StatusError(Code.INVALID_ARGUMENT, message)

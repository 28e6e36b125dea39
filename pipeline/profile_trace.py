"""A profiler trace of chosen steps, for TensorBoard's profile page."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

__all__ = ["ProfileTrace"]


class ProfileTrace:
    """Traces the executions within `steps`, numbers of steps counted from 1; writes under `folder` when they end."""

    def __init__(self, folder: Path, steps: range | None) -> None:
        self._folder = folder
        self._steps = steps if steps is not None else range(0)
        self._running = False

    @contextlib.contextmanager
    def around(self, first: int, last: int) -> Iterator[None]:
        """The execution of steps `first` to `last`, which does not reach over an end of `steps`."""
        if first not in self._steps:
            yield
            return
        if not self._running:
            tf.profiler.experimental.start(str(self._folder))
            self._running = True
        with tf.profiler.experimental.Trace("train", step_num=first, _r=1):
            yield
        if last == self._steps[-1]:
            self.close()

    def close(self) -> None:
        """Writes what was traced, if a trace is running."""
        if self._running:
            self._running = False
            tf.profiler.experimental.stop()

"""Runs requests that come close together as one: a queue for each set of inputs and outputs, one pool of threads.

A batch is run when it is full, or when its first request has waited long enough, as soon as a thread is free.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.server.batch_merge import merge, num_rows_of, padded_size, split
from serving.server.batching_parameters import BatchingParameters
from serving.server.metrics import Metrics
from serving.server.status import Code, StatusError

__all__ = ["BatchScheduler"]

_MAX_QUEUES = 256

Array = NDArray[Any]
Execute = Callable[..., list[Array]]


@dataclasses.dataclass(frozen=True, eq=False)
class _Task:
    """A request, or a part of one, that waits for its outputs."""

    inputs: Sequence[Array]
    num_rows: int
    deadline_s: float | None
    submitted_s: float
    outputs: Future[list[Array]] = dataclasses.field(default_factory=Future)


@dataclasses.dataclass
class _Batch:
    due_s: float
    tasks: list[_Task] = dataclasses.field(default_factory=list)
    num_rows: int = 0

    def add(self, task: _Task) -> None:
        self.tasks.append(task)
        self.num_rows += task.num_rows


@dataclasses.dataclass(frozen=True, eq=False)
class _Queue:
    execute: Execute
    parameters: BatchingParameters
    batches: collections.deque[_Batch] = dataclasses.field(default_factory=collections.deque)

    def ready_s(self) -> float:
        """Returns the time from which the first batch may be run."""
        first = self.batches[0]
        full = len(self.batches) > 1 or first.num_rows >= self.parameters.execution_size
        return 0.0 if full else first.due_s


class BatchScheduler:
    """The threads and queues of a server; `wrap` gives a version's graph its queues."""

    def __init__(self, *, num_threads: int, thread_pool_name: str, metrics: Metrics) -> None:
        self._name, self._metrics = thread_pool_name, metrics
        self._changed = threading.Condition()
        self._waiting: collections.deque[_Queue] = collections.deque()
        self._stopped = False
        for _ in range(num_threads):
            threading.Thread(target=self._work_forever, name=thread_pool_name, daemon=True).start()

    def wrap(self, execute: Execute, *, parameters: BatchingParameters) -> Execute:
        """Returns a function like `Servable.run_tensors` that runs `execute` on batches of its calls."""
        queues: dict[tuple[Any, ...], _Queue] = {}

        def run(feeds: Mapping[str, Array], fetches: Sequence[str], *, timeout_s: float | None = None) -> list[Array]:
            names, inputs = tuple(sorted(feeds)), [feeds[name] for name in sorted(feeds)]
            # By dtype too: a request with a wrong one must not make others fail.
            key = (names, tuple(fetches), tuple(array.dtype for array in inputs))
            queue = queues.get(key)
            if queue is None:
                if len(queues) >= _MAX_QUEUES:
                    # Clients choose outputs and dtypes: those of old are made anew; what waits is held elsewhere.
                    queues.clear()
                bound = functools.partial(_execute_named, execute, names, tuple(fetches))
                queue = queues.setdefault(key, _Queue(bound, parameters))
            return self._run(queue, inputs, timeout_s)

        return run

    def _run(self, queue: _Queue, inputs: Sequence[Array], timeout_s: float | None) -> list[Array]:
        num_rows, limit = num_rows_of(inputs), queue.parameters.max_batch_size
        if num_rows > limit:
            raise _bad(f"Task size {num_rows} is larger than maximum input batch size {limit}")
        now_s = time.monotonic()
        deadline_s = None if timeout_s is None else now_s + timeout_s
        with self._changed:
            tasks = [
                _Task([array[start:end] for array in inputs], end - start, deadline_s, now_s)
                for start, end in _parts(queue, num_rows)
            ]
            self._enqueue(queue, tasks, now_s)
        try:
            parts = [task.outputs.result(_remaining_s(deadline_s)) for task in tasks]
        except TimeoutError as error:
            for task in tasks:
                task.outputs.cancel()
            raise StatusError(Code.DEADLINE_EXCEEDED, "the deadline passed while the request was batched") from error
        return parts[0] if len(parts) == 1 else [np.concatenate(columns) for columns in zip(*parts, strict=True)]

    def _enqueue(self, queue: _Queue, tasks: Sequence[_Task], now_s: float) -> None:
        size, batches = queue.parameters.execution_size, queue.batches
        fits = bool(batches) and batches[-1].num_rows + tasks[0].num_rows <= size
        num_new = len(tasks) - fits
        if len(batches) + num_new > max(1, queue.parameters.max_enqueued_batches):
            text = "The batch scheduling queue to which this task was submitted is full"
            raise StatusError(Code.UNAVAILABLE, text)
        if not batches:
            self._waiting.append(queue)
        for position, task in enumerate(tasks):
            if position or not fits:
                batches.append(_Batch(now_s + queue.parameters.batch_timeout_micros / 1e6))
            batches[-1].add(task)
        self._changed.notify(len(tasks))

    def _work_forever(self) -> None:
        while (found := self._next()) is not None:
            queue, batch = found
            self._process(queue, batch)

    def _next(self) -> tuple[_Queue, _Batch] | None:
        """Returns the next batch that is due, from each queue in turn; None at the end."""
        with self._changed:
            while not self._stopped:
                now_s = time.monotonic()
                queue = next((queue for queue in self._waiting if queue.ready_s() <= now_s), None)
                if queue is not None:
                    self._waiting.remove(queue)
                    batch = queue.batches.popleft()
                    if queue.batches:
                        self._waiting.append(queue)
                    return queue, batch
                next_s = min((queue.ready_s() for queue in self._waiting), default=None)
                self._changed.wait(None if next_s is None else next_s - now_s)
        return None

    def _process(self, queue: _Queue, batch: _Batch) -> None:
        tasks = [task for task in batch.tasks if task.outputs.set_running_or_notify_cancel()]
        if not tasks:
            return
        now_s = time.monotonic()
        for task in tasks:
            self._metrics.observe_queueing(self._name, now_s - task.submitted_s)
        try:
            results = self._outputs(queue, tasks)
        except Exception as error:
            for task in tasks:
                task.outputs.set_exception(error)
            return
        for task, outputs in zip(tasks, results, strict=True):
            task.outputs.set_result(outputs)

    def _outputs(self, queue: _Queue, tasks: Sequence[_Task]) -> list[list[Array]]:
        sizes = [task.num_rows for task in tasks]
        num_rows = sum(sizes)
        size = padded_size(num_rows, queue.parameters.allowed_batch_sizes) if num_rows else 0
        pad_ragged = queue.parameters.pad_variable_length_inputs
        inputs = merge([task.inputs for task in tasks], size=size, pad_ragged=pad_ragged)
        self._metrics.observe_batch(num_rows=num_rows, num_padded_rows=size - num_rows)
        deadlines = [task.deadline_s for task in tasks if task.deadline_s is not None]
        # Who has the most time decides, or no one if somebody has no deadline.
        timeout_s = _remaining_s(max(deadlines)) if len(deadlines) == len(tasks) else None
        return split(queue.execute(inputs, timeout_s=timeout_s), sizes, size=size)

    def stop(self) -> None:
        """Ends the threads; batches that wait are not run any more."""
        with self._changed:
            self._stopped = True
            left = [task for queue in self._waiting for batch in queue.batches for task in batch.tasks]
            self._waiting.clear()
            self._changed.notify_all()
        for task in left:
            if task.outputs.set_running_or_notify_cancel():
                task.outputs.set_exception(StatusError(Code.UNAVAILABLE, "the server stops"))


def _parts(queue: _Queue, num_rows: int) -> list[tuple[int, int]]:
    """Returns the row ranges that a request is cut into: what the open batch has room for, then full batches."""
    size = queue.parameters.execution_size
    if num_rows <= size:
        return [(0, num_rows)]
    room = size - queue.batches[-1].num_rows if queue.batches else 0
    starts = [0, *range(room or size, num_rows, size)]
    return list(zip(starts, [*starts[1:], num_rows], strict=True))


def _execute_named(
    execute: Execute,
    names: Sequence[str],
    fetches: Sequence[str],
    inputs: Sequence[Array],
    *,
    timeout_s: float | None,
) -> list[Array]:
    return execute(dict(zip(names, inputs, strict=True)), fetches, timeout_s=timeout_s)


def _remaining_s(deadline_s: float | None) -> float | None:
    return None if deadline_s is None else max(0.001, deadline_s - time.monotonic())


def _bad(message: str) -> StatusError:
    return StatusError(Code.INVALID_ARGUMENT, message)

"""Sends requests when they are due, whatever became of those before: an open loop.

A closed loop waits for an answer before it sends again, so a server that stalls is asked less while it stalls, and
the stall is counted once ("coordinated omission"). Here a request is due at its time, and its latency counts from
there, even if the client was late to send it.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

import numpy as np
from numpy.typing import NDArray

from serving.load_schedule import NOT_SENT, Samples

__all__ = ["MAX_OPEN", "Send", "drive", "run_precisely"]

# Sends a body and returns the status code of the answer; raises nothing.
Send = Callable[[bytes], Awaitable[int]]
MAX_OPEN = 20_000
_LEAD_S = 0.2
_TELL_S = 0.1


async def drive(
    send: Send,
    bodies: Sequence[bytes],
    due_s: NDArray[np.float64],
    *,
    start_s: float | None = None,
    first_body: int = 0,
    step: int = 1,
    max_open: int = MAX_OPEN,
    observe: Callable[[int], None] = lambda sent: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Samples:
    """Returns what became of the requests; their bodies are taken in turn.

    Args:
        send: sends one.
        bodies: at least one.
        due_s: float64 [N], ascending, in seconds from the start.
        start_s: time of `time.time()` that counts as 0, so that several processes start together; by default now.
        first_body: place of the first body.
        step: from one body to the next.
        max_open: a request that is due while so many others have no answer is not sent.
        observe: told the number of requests sent so far, some times a second.
        stopped: asked as often; once true, nothing more is sent.
    """
    count = len(due_s)
    sent, done = np.full(count, np.nan), np.full(count, np.nan)
    codes = np.full(count, NOT_SENT, np.int16)
    open_tasks: set[asyncio.Task[None]] = set()
    lead_s = _LEAD_S if start_s is None else max(0.0, start_s - time.time())
    origin = time.perf_counter() + lead_s
    now = time.perf_counter

    async def one(place: int, body: bytes) -> None:
        sent[place] = now() - origin
        codes[place] = await send(body)
        done[place] = now() - origin

    told = 0.0
    for place, due in enumerate(due_s.tolist()):
        wait_s = origin + due - now()
        while wait_s > 0:
            await asyncio.sleep(min(wait_s, _TELL_S))
            wait_s = origin + due - now()
            told = _tell(told, place, observe)
            if stopped():
                break
        if stopped():
            break
        if len(open_tasks) < max_open:
            task = asyncio.create_task(one(place, bodies[(first_body + place * step) % len(bodies)]))
            open_tasks.add(task)
            task.add_done_callback(open_tasks.discard)
        if wait_s < -_TELL_S:
            await asyncio.sleep(0)  # behind its own schedule: answers must still be taken
        told = _tell(told, place, observe)
    if open_tasks:
        await asyncio.wait(open_tasks)
    observe(count)
    return Samples(due_s, sent, done, codes)


def _tell(told: float, sent: int, observe: Callable[[int], None]) -> float:
    now = time.perf_counter()
    if now - told < _TELL_S:
        return told
    observe(sent)
    return now


async def _drive_opened(
    opened: AbstractAsyncContextManager[Send], drive_with: Callable[[Send], Awaitable[Samples]]
) -> Samples:
    async with opened as send:
        return await drive_with(send)


def run_precisely(
    opened: AbstractAsyncContextManager[Send], drive_with: Callable[[Send], Awaitable[Samples]]
) -> Samples:
    """Runs a test in an event loop whose timers are exact to some 0.1 ms.

    The usual loop waits in whole milliseconds, always up: half a millisecond would be added to every latency.
    """
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(_drive_opened(opened, drive_with))

"""Tries again what a server did not take up, within the deadline of the whole call.

Only UNAVAILABLE is tried again, and over REST only a refused connection or the status 503: after a deadline, or a
connection that broke while the server was at work, a further try would add load to a server that has too much.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import tenacity

from serving.client_errors import DeadlineError, UnavailableError
from serving.server.status import Code

__all__ = ["Retries"]

_Result = TypeVar("_Result")
_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 1.0


class Retries:
    """How often a call is tried again, with waits that grow and differ by chance, so that clients do not beat in time.

    The deadline is that of all tries and waits together: a call never takes longer than it was given.
    """

    def __init__(self, retries: int, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._retries = retries
        self._sleep = sleep

    def call(self, attempt: Callable[[float], _Result], *, timeout_s: float) -> _Result:
        """Returns what `attempt` does, given the seconds that are left."""
        deadline = time.monotonic() + timeout_s
        for one in tenacity.Retrying(sleep=self._sleep, **self._policy(deadline)):
            with one:
                return attempt(_left(deadline))
        raise _out_of_time()

    async def call_async(self, attempt: Callable[[float], Awaitable[_Result]], *, timeout_s: float) -> _Result:
        """Returns what `attempt` does, given the seconds that are left."""
        deadline = time.monotonic() + timeout_s
        async for one in tenacity.AsyncRetrying(**self._policy(deadline)):
            with one:
                return await attempt(_left(deadline))
        raise _out_of_time()

    def _policy(self, deadline: float) -> dict[str, Any]:
        wait = tenacity.wait_random_exponential(multiplier=_FIRST_WAIT_S, max=_LONGEST_WAIT_S)

        def stop(state: tenacity.RetryCallState) -> bool:
            # Not a wait that would outlast the deadline: the error that is known says more than a late one.
            return state.attempt_number > self._retries or time.monotonic() + state.upcoming_sleep >= deadline

        return {"stop": stop, "wait": wait, "retry": tenacity.retry_if_exception(_may_retry), "reraise": True}


def _may_retry(error: BaseException) -> bool:
    return isinstance(error, UnavailableError) and error.may_retry


def _left(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise _out_of_time()
    return left_s


def _out_of_time() -> DeadlineError:
    return DeadlineError(Code.DEADLINE_EXCEEDED, "the deadline passed before the request could be sent")

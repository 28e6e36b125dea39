"""Retries of the client: what is tried again, how long, and what never is."""

from __future__ import annotations

import asyncio
import time

import pytest

from serving.client_errors import (
    DeadlineError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
    status_error,
)
from serving.client_retry import Retries
from serving.server.status import Code, StatusError


class Attempts:
    """Fails with the errors given, in turn, then answers; remembers the seconds that it was given."""

    def __init__(self, *errors: StatusError) -> None:
        self.errors = list(errors)
        self.given: list[float] = []

    def __call__(self, left_s: float) -> str:
        self.given.append(left_s)
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def unavailable(*, may_retry: bool = True) -> UnavailableError:
    return UnavailableError(Code.UNAVAILABLE, "full", may_retry=may_retry)


def test_what_is_not_taken_up_is_tried_again_until_it_is() -> None:
    waits: list[float] = []
    attempts = Attempts(unavailable(), unavailable())
    assert Retries(3, sleep=waits.append).call(attempts, timeout_s=10) == "answer"
    assert len(attempts.given) == 3
    assert len(waits) == 2
    assert all(0 <= wait <= 1 for wait in waits)


def test_the_number_of_retries_is_a_limit() -> None:
    attempts = Attempts(*[unavailable() for _ in range(9)])
    with pytest.raises(UnavailableError):
        Retries(2, sleep=lambda _: None).call(attempts, timeout_s=10)
    assert len(attempts.given) == 3


def test_no_retries_means_one_try() -> None:
    attempts = Attempts(unavailable())
    with pytest.raises(UnavailableError):
        Retries(0, sleep=lambda _: None).call(attempts, timeout_s=10)
    assert len(attempts.given) == 1


@pytest.mark.parametrize(
    "error",
    [
        *(status_error(code, "no") for code in Code if code not in {Code.OK, Code.UNAVAILABLE}),
        unavailable(may_retry=False),
    ],
    ids=lambda error: f"{error.code.name}{'' if getattr(error, 'may_retry', True) else '-sent'}",
)
def test_everything_else_is_tried_once(error: StatusError) -> None:
    attempts = Attempts(error)
    with pytest.raises(StatusError) as caught:
        Retries(5, sleep=lambda _: None).call(attempts, timeout_s=10)
    assert caught.value is error
    assert len(attempts.given) == 1


def test_all_tries_share_one_deadline() -> None:
    start = time.monotonic()
    attempts = Attempts(*[unavailable() for _ in range(1000)])
    with pytest.raises(UnavailableError):
        Retries(1000).call(attempts, timeout_s=0.3)
    assert time.monotonic() - start < 3
    assert attempts.given[0] <= 0.3
    assert attempts.given == sorted(attempts.given, reverse=True)


def test_a_call_without_time_is_not_sent() -> None:
    attempts = Attempts()
    with pytest.raises(DeadlineError):
        Retries(3).call(attempts, timeout_s=0.0)
    assert not attempts.given


def test_asyncio_follows_the_same_rules() -> None:
    attempts = Attempts(unavailable())
    refused = Attempts(status_error(Code.DEADLINE_EXCEEDED, "late"))

    async def call(attempts: Attempts, left_s: float) -> str:
        return attempts(left_s)

    async def both() -> str:
        with pytest.raises(DeadlineError):
            await Retries(3).call_async(lambda left_s: call(refused, left_s), timeout_s=5)
        return await Retries(3).call_async(lambda left_s: call(attempts, left_s), timeout_s=5)

    assert asyncio.run(both()) == "answer"
    assert len(attempts.given) == 2
    assert len(refused.given) == 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Code.INVALID_ARGUMENT, InvalidRequestError),
        (Code.FAILED_PRECONDITION, InvalidRequestError),
        (Code.OUT_OF_RANGE, InvalidRequestError),
        (Code.NOT_FOUND, NotFoundError),
        (Code.DEADLINE_EXCEEDED, DeadlineError),
        (Code.UNAVAILABLE, UnavailableError),
        (Code.INTERNAL, StatusError),
    ],
)
def test_each_status_has_its_class(code: Code, kind: type[StatusError]) -> None:
    error = status_error(code, "text")
    assert type(error) is kind
    assert (error.code, error.message) == (code, "text")

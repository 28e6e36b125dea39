"""The errors that a client raises for a status, one class for each thing that a caller may do about it.

StatusError
├── InvalidRequestError   the request is wrong, and will be at every try
├── NotFoundError         no such model or version is available
├── DeadlineError         no answer in time; the server may still be at work
├── UnavailableError      nobody answers there, or the server has no room now
└── (itself)              any other status, by its `code`
"""

from __future__ import annotations

from serving.server.status import Code, StatusError

__all__ = ["DeadlineError", "InvalidRequestError", "NotFoundError", "UnavailableError", "status_error"]


class InvalidRequestError(StatusError):
    """Raised for INVALID_ARGUMENT, FAILED_PRECONDITION and OUT_OF_RANGE."""


class NotFoundError(StatusError):
    """Raised for NOT_FOUND."""


class DeadlineError(StatusError):
    """Raised for DEADLINE_EXCEEDED, by the server or by the client's own clock."""


class UnavailableError(StatusError):
    """Raised for UNAVAILABLE, after the retries.

    Attributes:
        may_retry: the server did not take the request up, so that sending it again cannot double its work.
    """

    def __init__(self, code: Code, message: str, *, may_retry: bool = True) -> None:
        super().__init__(code, message)
        self.may_retry = may_retry


_CLASSES: dict[Code, type[StatusError]] = {
    Code.INVALID_ARGUMENT: InvalidRequestError,
    Code.FAILED_PRECONDITION: InvalidRequestError,
    Code.OUT_OF_RANGE: InvalidRequestError,
    Code.NOT_FOUND: NotFoundError,
    Code.DEADLINE_EXCEEDED: DeadlineError,
    Code.UNAVAILABLE: UnavailableError,
}


def status_error(code: Code, message: str) -> StatusError:
    """Returns the error for a status."""
    return _CLASSES.get(code, StatusError)(code, message)

"""The status codes that gRPC and REST share, and the one error that carries them."""

from __future__ import annotations

import enum

from preprocessing.errors import ServingError

__all__ = ["MAX_MESSAGE_CHARS", "Code", "StatusError", "http_status", "not_found_latest", "not_found_version"]

MAX_MESSAGE_CHARS = 1024
_TRUNCATED = "...TRUNCATED"


class Code(enum.IntEnum):
    """Canonical status codes; the numbers are those of gRPC and of TensorFlow."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


_HTTP = {
    Code.OK: 200,
    Code.INVALID_ARGUMENT: 400,
    Code.FAILED_PRECONDITION: 400,
    Code.OUT_OF_RANGE: 400,
    Code.UNAUTHENTICATED: 401,
    Code.PERMISSION_DENIED: 403,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.ABORTED: 409,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.CANCELLED: 499,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.DEADLINE_EXCEEDED: 504,
}


class StatusError(ServingError):
    """Raised when a request, a load or a reload ends with a status other than OK.

    Attributes:
        code: the canonical status code.
        message: the text that goes over the wire, cut to `MAX_MESSAGE_CHARS` there.
    """

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message

    def wire_message(self) -> str:
        """Returns the message, cut as TF Serving cuts it."""
        if len(self.message) <= MAX_MESSAGE_CHARS:
            return self.message
        return self.message[: MAX_MESSAGE_CHARS - len(_TRUNCATED)] + _TRUNCATED


def http_status(code: Code) -> int:
    """Returns the HTTP status of a canonical code; what has no own one is 500."""
    return _HTTP.get(code, 500)


def not_found_latest(name: str) -> StatusError:
    """Returns the error for a model of which no version is available."""
    return StatusError(Code.NOT_FOUND, f"Servable not found for request: Latest({name})")


def not_found_version(name: str, version: int) -> StatusError:
    """Returns the error for a version that is not available."""
    return StatusError(Code.NOT_FOUND, f"Servable not found for request: Specific({name}, {version})")

"""What a client passes on about an answered request, to whoever keeps a log of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from serving.client_calls import Answer, Asked, SignatureInfo

__all__ = ["Exchange", "Recorder"]


@dataclasses.dataclass(frozen=True)
class Exchange:
    """An answered request.

    Attributes:
        rows: as the caller gave them; not changed afterwards.
        asked: what was sent.
        info: the signature it was sent to.
        answer: what came back.
        started_ms: when, in ms since 1970 UTC.
        latency_ms: until the answer was there, retries included.
        request_id: of the caller, or "".
    """

    rows: Sequence[Mapping[str, Any]]
    asked: Asked
    info: SignatureInfo
    answer: Answer
    started_ms: int
    latency_ms: float
    request_id: str


class Recorder(Protocol):
    """Keeps some of the requests; its methods return at once and never raise."""

    def wants(self, request_id: str) -> bool:
        """Returns whether the request is one of those to keep."""

    def record(self, exchange: Exchange) -> None:
        """Keeps a request."""

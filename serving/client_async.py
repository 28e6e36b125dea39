"""The client of `serving.client` for asyncio: the same calls, awaited.

`async with connect_async("127.0.0.1:8500") as client: await client.predict("shop", [{"user_id": "u1"}])`
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

from preprocessing.errors import ServingError
from serving.client_calls import Answer, Asked, ModelVersion, Selected, SignatureInfo
from serving.client_errors import InvalidRequestError
from serving.client_record import Exchange, Recorder
from serving.client_retry import Retries
from serving.client_signatures import DEFAULT_SIGNATURE, Signatures
from serving.packed import PACKED_SIGNATURE
from serving.rank_request import RANK_SIGNATURE, Ranking, rank_arrays, read_ranking
from serving.server.status import StatusError

__all__ = ["AsyncClient", "AsyncTransport", "connect_async"]

Rows = Sequence[Mapping[str, Any]]


class AsyncTransport(Protocol):
    """How requests travel; every method raises StatusError with the server's code."""

    async def signature(self, selected: Selected, name: str, *, timeout_s: float | None = None) -> SignatureInfo:
        """Returns what a signature takes and gives."""

    async def predict(self, asked: Asked, info: SignatureInfo, *, timeout_s: float | None = None) -> Answer:
        """Returns the outputs for arrays."""

    async def versions(self, model_name: str, *, timeout_s: float | None = None) -> list[ModelVersion]:
        """Returns the versions that the server knows."""

    async def close(self) -> None:
        """Frees the connection."""


class AsyncClient:
    """Sends rows to a model server; made by `connect_async`, for use within one event loop."""

    def __init__(self, transport: AsyncTransport, *, recorder: Recorder | None = None) -> None:
        self._transport, self._recorder = transport, recorder
        self._known: dict[tuple[Selected, str], Signatures] = {}

    async def predict(
        self,
        model_name: str,
        rows: Rows,
        *,
        version: int | None = None,
        label: str | None = None,
        signature: str = "serving_default",
        outputs: Sequence[str] = (),
        ignore_unknown: bool = False,
        timeout_s: float | None = None,
        request_id: str = "",
    ) -> dict[str, NDArray[Any]]:
        """Returns each output of the model, one entry a row; strings are object arrays of bytes.

        Args:
            model_name: as the server knows it.
            rows: raw columns by name; what is absent or None is sent as missing.
            version: the newest available one by default.
            label: instead of a version, such as "stable".
            signature: which takes named raw columns, or "packed", the same several times cheaper to send.
            outputs: the names of those that are wanted; all by default.
            ignore_unknown: drop keys that the signature does not have, instead of refusing the row.
            timeout_s: deadline of the call with its retries; that of `connect_async` by default.
            request_id: decides whether a request log keeps the request, and is written there.

        Raises:
            ServingError: if a row does not fit the signature; as StatusError, with `code` and `message`, if the
                server cannot be reached in time or refuses the request.
        """
        answer = await self.ask(
            Selected(model_name, version, label),
            rows,
            signature=signature,
            outputs=outputs,
            ignore_unknown=ignore_unknown,
            timeout_s=timeout_s,
            request_id=request_id,
        )
        return answer.outputs

    async def ask(
        self,
        selected: Selected,
        rows: Rows,
        *,
        signature: str = "serving_default",
        outputs: Sequence[str] = (),
        ignore_unknown: bool = False,
        timeout_s: float | None = None,
        request_id: str = "",
    ) -> Answer:
        """Returns the outputs as `predict` does, with the version that gave them."""
        infos, looked_up = await self._signatures(selected, signature, timeout_s=timeout_s)

        async def send(infos: Signatures) -> Answer:
            arrays = infos.arrays(rows, ignore_unknown=ignore_unknown)
            asked = Asked(selected, signature, arrays, tuple(outputs))
            return await self._send(asked, infos, rows=rows, timeout_s=timeout_s, request_id=request_id)

        try:
            return await send(infos)
        except ServingError as error:
            if looked_up or (isinstance(error, StatusError) and not isinstance(error, InvalidRequestError)):
                raise
            # A new version may have brought another signature since it was looked up.
            current, _ = await self._signatures(selected, signature, timeout_s=timeout_s, anew=True)
            if current == infos:
                raise
            return await send(current)

    async def rank(
        self,
        model_name: str,
        context: Mapping[str, Any],
        candidates: Rows,
        *,
        version: int | None = None,
        label: str | None = None,
        ignore_unknown: bool = False,
        timeout_s: float | None = None,
        request_id: str = "",
    ) -> Ranking:
        """Returns the scores of candidates for one user, and the best of them; the user's side is computed once.

        Args:
            model_name: as the server knows it; the model needs a signature `rank`.
            context: columns of the user and the request.
            candidates: columns of each candidate.
            version: the newest available one by default.
            label: instead of a version.
            ignore_unknown: drop keys that are no column of theirs, instead of refusing them.
            timeout_s: deadline of the call with its retries.
            request_id: decides whether a request log keeps the request, a row for each candidate.

        Raises:
            ServingError: as `predict`.
        """
        selected = Selected(model_name, version, label)
        infos, looked_up = await self._signatures(selected, RANK_SIGNATURE, timeout_s=timeout_s)

        async def send(infos: Signatures) -> Ranking:
            arrays = rank_arrays(
                context, candidates, rank=infos.asked, named=infos.named, ignore_unknown=ignore_unknown
            )
            rows = [{**context, **candidate} for candidate in candidates] if self._recorder else ()
            asked = Asked(selected, RANK_SIGNATURE, arrays)
            answer = await self._send(asked, infos, rows=rows, timeout_s=timeout_s, request_id=request_id)
            return read_ranking(answer)

        try:
            return await send(infos)
        except ServingError as error:
            if looked_up or (isinstance(error, StatusError) and not isinstance(error, InvalidRequestError)):
                raise
            current, _ = await self._signatures(selected, RANK_SIGNATURE, timeout_s=timeout_s, anew=True)
            if current == infos:
                raise
            return await send(current)

    async def _send(
        self, asked: Asked, infos: Signatures, *, rows: Rows, timeout_s: float | None, request_id: str
    ) -> Answer:
        recorder = self._recorder
        if recorder is None or not recorder.wants(request_id):
            return await self._transport.predict(asked, infos.asked, timeout_s=timeout_s)
        started_ms, start_s = time.time_ns() // 1_000_000, time.perf_counter()
        answer = await self._transport.predict(asked, infos.asked, timeout_s=timeout_s)
        latency_ms = (time.perf_counter() - start_s) * 1e3
        # Copied: the caller may go on with its rows while the log is written.
        kept = [dict(row) for row in rows]
        recorder.record(Exchange(kept, asked, infos.named, answer, started_ms, latency_ms, request_id))
        return answer

    async def _signatures(
        self, selected: Selected, signature: str, *, timeout_s: float | None, anew: bool = False
    ) -> tuple[Signatures, bool]:
        """Returns the signature with its named columns, and whether the server was asked for it just now."""
        known = self._known.get((selected, signature))
        if known is not None and not anew:
            return known, False
        asked = await self._transport.signature(selected, signature, timeout_s=timeout_s)
        named = asked
        if signature in {PACKED_SIGNATURE, RANK_SIGNATURE}:
            named = await self._transport.signature(selected, DEFAULT_SIGNATURE, timeout_s=timeout_s)
        made = Signatures(signature, asked, named)
        self._known[selected, signature] = made
        return made, True

    async def signature(
        self, model_name: str, *, name: str = "serving_default", version: int | None = None, label: str | None = None
    ) -> SignatureInfo:
        """Returns what a signature takes and gives."""
        infos, _ = await self._signatures(Selected(model_name, version, label), name, timeout_s=None, anew=True)
        return infos.asked

    async def versions(self, model_name: str) -> list[ModelVersion]:
        """Returns the versions of a model that the server knows, newest first."""
        return await self._transport.versions(model_name)

    async def close(self) -> None:
        """Frees the connection."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def connect_async(
    target: str,
    *,
    api: Literal["grpc", "rest"] = "grpc",
    timeout_s: float = 10.0,
    retries: int = 3,
    recorder: Recorder | None = None,
) -> AsyncClient:
    """Returns a client of the server at `target`, such as "127.0.0.1:8500"; nothing is sent yet.

    Args:
        target: host:port of the server's gRPC or HTTP port.
        api: which of the two it is.
        timeout_s: deadline of each call, all its tries together.
        retries: further tries of what a server did not take up (UNAVAILABLE, a refused connection), with waits
            from 50 ms to 1 s that grow; nothing else is tried again.
        recorder: keeps some of the requests, such as a `RequestLog`; it is not closed with the client.
    """
    # Imported here: gRPC needs TensorFlow's protos and their start-up time, REST does not.
    if api == "grpc":
        from serving.client_grpc import AsyncGrpcTransport

        return AsyncClient(AsyncGrpcTransport(target, timeout_s=timeout_s, retries=Retries(retries)), recorder=recorder)
    from serving.client_rest import AsyncRestTransport

    return AsyncClient(AsyncRestTransport(target, timeout_s=timeout_s, retries=Retries(retries)), recorder=recorder)

"""The client's calls over REST, waiting and asyncio."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from serving import client_rest_messages as messages
from serving.client_calls import Answer, Asked, ModelVersion, Selected, SignatureInfo
from serving.client_errors import DeadlineError, UnavailableError
from serving.client_retry import Retries
from serving.server.status import Code, StatusError

__all__ = ["AsyncRestTransport", "RestTransport"]


class RestTransport:
    """Calls the REST API on one pool of connections."""

    def __init__(self, target: str, *, timeout_s: float, retries: Retries) -> None:
        self._server = _base_url(target)
        # A proxy of the environment is for the outside world, not for a model server beside us.
        self._http = httpx.Client(base_url=self._server, trust_env=False)
        self._timeout_s, self._retries = timeout_s, retries

    def signature(self, selected: Selected, name: str, *, timeout_s: float | None = None) -> SignatureInfo:
        """Returns what a signature takes and gives."""
        body = self._call("GET", messages.path_of(selected) + "/metadata", timeout_s)
        return messages.read_signature(body, selected, name)

    def predict(self, asked: Asked, info: SignatureInfo, *, timeout_s: float | None = None) -> Answer:
        """Returns the outputs for arrays."""
        path = messages.path_of(asked.selected) + ":predict"
        body = self._call("POST", path, timeout_s, content=messages.predict_body(asked))
        return messages.read_predict(body, asked, info)

    def versions(self, model_name: str, *, timeout_s: float | None = None) -> list[ModelVersion]:
        """Returns the versions that the server knows."""
        return messages.read_versions(self._call("GET", messages.path_of(Selected(model_name)), timeout_s))

    def _call(self, method: str, path: str, timeout_s: float | None, *, content: bytes | None = None) -> Any:
        def attempt(left_s: float) -> Any:
            try:
                response = self._http.request(method, path, content=content, timeout=left_s)
            except httpx.HTTPError as error:
                raise _plain(error, self._server) from error
            return messages.read_body(response.status_code, response.content, server=self._server)

        return self._retries.call(attempt, timeout_s=self._timeout_s if timeout_s is None else timeout_s)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()


class AsyncRestTransport:
    """The same for asyncio; made and used within one event loop."""

    def __init__(self, target: str, *, timeout_s: float, retries: Retries) -> None:
        self._server = _base_url(target)
        self._http = httpx.AsyncClient(base_url=self._server, trust_env=False)
        self._timeout_s, self._retries = timeout_s, retries

    async def signature(self, selected: Selected, name: str, *, timeout_s: float | None = None) -> SignatureInfo:
        """Returns what a signature takes and gives."""
        body = await self._call("GET", messages.path_of(selected) + "/metadata", timeout_s)
        return messages.read_signature(body, selected, name)

    async def predict(self, asked: Asked, info: SignatureInfo, *, timeout_s: float | None = None) -> Answer:
        """Returns the outputs for arrays."""
        path = messages.path_of(asked.selected) + ":predict"
        body = await self._call("POST", path, timeout_s, content=messages.predict_body(asked))
        return messages.read_predict(body, asked, info)

    async def versions(self, model_name: str, *, timeout_s: float | None = None) -> list[ModelVersion]:
        """Returns the versions that the server knows."""
        return messages.read_versions(await self._call("GET", messages.path_of(Selected(model_name)), timeout_s))

    async def _call(self, method: str, path: str, timeout_s: float | None, *, content: bytes | None = None) -> Any:
        async def attempt(left_s: float) -> Any:
            try:
                async with asyncio.timeout(left_s):  # httpx counts each read anew
                    response = await self._http.request(method, path, content=content, timeout=left_s)
            except TimeoutError as error:
                raise _late(self._server) from error
            except httpx.HTTPError as error:
                raise _plain(error, self._server) from error
            return messages.read_body(response.status_code, response.content, server=self._server)

        return await self._retries.call_async(attempt, timeout_s=self._timeout_s if timeout_s is None else timeout_s)

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()


def _base_url(target: str) -> str:
    return target if "://" in target else f"http://{target}"


def _plain(error: httpx.HTTPError, server: str) -> StatusError:
    if isinstance(error, httpx.TimeoutException):
        return _late(server)
    # What failed before a connection stood was never sent.
    unsent = isinstance(error, httpx.ConnectError)
    return UnavailableError(Code.UNAVAILABLE, f"{server} cannot be reached: {error}", may_retry=unsent)


def _late(server: str) -> DeadlineError:
    return DeadlineError(Code.DEADLINE_EXCEEDED, f"no answer in time from {server}")

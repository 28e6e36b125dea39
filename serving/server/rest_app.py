"""HTTP around the REST API: bodies in and out, threads, time limits. An ASGI application."""

from __future__ import annotations

import logging
import socket
import threading
import zlib
from collections.abc import Awaitable, Callable

import anyio
import uvicorn
from anyio import to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.server.flags import Flags
from serving.server.rest_api import Answer, RestApi, error_answer
from serving.server.status import Code, StatusError

__all__ = ["HttpServer", "build_app"]

_log = logging.getLogger(__name__)
_MAX_UNPACKED_BYTES = 100 * 2**20
_MAX_BODY_BYTES = 512 * 2**20
_NOT_FOUND = Answer(404, b"<html><head><title>404 Not Found</title></head><body>Not Found</body></html>", "text/html")
_CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "*",
}


def build_app(api: RestApi, flags: Flags, *, metrics_path: str | None, metrics_text: Callable[[], str]) -> ASGIApp:
    """Returns the ASGI application; `metrics_path` None means no Prometheus page."""
    limiter_of: list[anyio.CapacityLimiter] = []
    timeout_s = flags.rest_api_timeout_in_ms / 1000

    async def answer(request: Request) -> Answer:
        path, query = request.scope["raw_path"].decode("latin-1"), request.scope["query_string"].decode("latin-1")
        if metrics_path is not None and path == metrics_path and request.method == "GET":
            return Answer(200, metrics_text().encode(), "text/plain")
        if not path.lower().startswith("/v1/"):
            return _NOT_FOUND
        body = await _read_body(request)
        full_path = f"{path}?{query}" if query else path
        if not limiter_of:
            # A limiter belongs to the running event loop.
            limiter_of.append(anyio.CapacityLimiter(max(1, flags.rest_api_num_threads)))
        return await to_thread.run_sync(
            api.answer, request.method, full_path, body, timeout_s, limiter=limiter_of[0], abandon_on_cancel=True
        )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        if flags.rest_api_enable_cors_support and request.method == "OPTIONS":
            response = _preflight(request)
        else:
            found = await _guarded(answer, request, timeout_s)
            headers = _CORS if flags.rest_api_enable_cors_support else None
            response = Response(found.body, found.status, headers, found.content_type)
        await response(scope, receive, send)

    return app


async def _guarded(answer: Callable[[Request], Awaitable[Answer]], request: Request, timeout_s: float) -> Answer:
    try:
        with anyio.fail_after(timeout_s):
            return await answer(request)
    except TimeoutError:
        return error_answer(StatusError(Code.DEADLINE_EXCEEDED, f"the call took longer than {timeout_s:g} s"))
    except StatusError as error:
        return error_answer(error)
    except ClientDisconnect:
        return error_answer(StatusError(Code.CANCELLED, "the client went away"))
    except Exception as error:
        # The last resort: one request's fault must not take the server along.
        _log.exception("a request failed unexpectedly")
        return error_answer(StatusError(Code.INTERNAL, f"{type(error).__name__}: {error}"))


async def _read_body(request: Request) -> bytes:
    length = request.headers.get("content-length", "")
    # Refused before it is read: h11 has checked that it is a number.
    parts: list[bytes] = []
    size = 0
    if length.isdigit() and int(length) > _MAX_BODY_BYTES:
        raise _too_large()
    async for part in request.stream():
        size += len(part)
        if size > _MAX_BODY_BYTES:
            raise _too_large()
        parts.append(part)
    body = b"".join(parts)
    return _gunzip(body) if request.headers.get("content-encoding", "").lower() == "gzip" else body


def _too_large() -> StatusError:
    return StatusError(Code.INVALID_ARGUMENT, f"the body is larger than {_MAX_BODY_BYTES} bytes")


def _gunzip(body: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpacker.decompress(body, _MAX_UNPACKED_BYTES)
    except zlib.error as error:
        raise StatusError(Code.INVALID_ARGUMENT, f"Failed to uncompress the gzipped body: {error}") from error
    if unpacker.unconsumed_tail or not unpacker.eof:
        text = f"the gzipped body is cut short or unpacks to more than {_MAX_UNPACKED_BYTES} bytes"
        raise StatusError(Code.INVALID_ARGUMENT, text)
    return unpacked


def _preflight(request: Request) -> Response:
    allowed = request.headers.get("origin", "").startswith(("http://", "https://"))
    return Response(status_code=200 if allowed else 400, headers=_CORS if allowed else None)


class HttpServer:
    """uvicorn on a thread of its own, so that the main thread keeps the signals."""

    def __init__(self, app: ASGIApp, *, host: str, port: int, reuse_port: bool = False) -> None:
        self._socket = _listen(host, port, reuse_port=reuse_port)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", server_header=False, timeout_graceful_shutdown=5
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="http", daemon=True)

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Finishes running calls and closes the port."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()


def _listen(host: str, port: int, *, reuse_port: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse_port:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise StatusError(Code.UNAVAILABLE, f"cannot listen on {host}:{port}: {error}") from error
    listener.listen(1024)
    return listener

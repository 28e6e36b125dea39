"""The gRPC surface: PredictionService and ModelService on one thread-pool server."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from serving.server.config_files import tls_files
from serving.server.flags import Flags
from serving.server.handlers import Handlers
from serving.server.health import health_service
from serving.server.metrics import Metrics
from serving.server.profiler import profiler_service
from serving.server.status import Code, StatusError

__all__ = ["build_grpc_server"]

_log = logging.getLogger(__name__)
_MAX_MESSAGE_BYTES = 2**31 - 1
_GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}

# Beyond this a client's deadline is none: gRPC says "none" by a far away time.
_MAX_TIMEOUT_S = 24 * 3600.0

Handler = Callable[..., Any]


def build_grpc_server(handlers: Handlers, flags: Flags, metrics: Metrics) -> grpc.Server:
    """Returns the server with its ports bound; it answers after `start`.

    Raises:
        StatusError: UNAVAILABLE, if a port cannot be bound.
        ConfigError: if the TLS file is wrong.
    """
    server = grpc.server(
        ThreadPoolExecutor(max(1, flags.grpc_max_threads), thread_name_prefix="grpc"), options=_options(flags)
    )
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        _Servicer(
            Predict=_observed("Predict", handlers.predict, metrics),
            Classify=_observed("Classify", handlers.classify, metrics),
            Regress=_observed("Regress", handlers.regress, metrics),
            MultiInference=_answer(handlers.multi_inference),
            GetModelMetadata=_answer(_untimed(handlers.model_metadata)),
        ),
        server,
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(
        _Servicer(
            GetModelStatus=_answer(_untimed(handlers.model_status)),
            HandleReloadConfigRequest=_answer(_untimed(handlers.reload_config)),
        ),
        server,
    )
    if flags.enable_grpc_healthcheck_service:
        server.add_generic_rpc_handlers((health_service(max_watchers=max(1, flags.grpc_max_threads // 4)),))
    if flags.enable_profiler:
        server.add_generic_rpc_handlers((profiler_service(),))
    credentials = _credentials(Path(flags.ssl_config_file)) if flags.ssl_config_file else None
    addresses = [f"{flags.bind_address}:{flags.port}"] if flags.port else []
    addresses += [f"unix:{flags.grpc_socket_path}"] if flags.grpc_socket_path else []
    for address in addresses:
        _bind(server, address, credentials)
    return server


class _Servicer:
    """Looks like a generated servicer; a method that is not given answers UNIMPLEMENTED."""

    def __init__(self, **methods: Callable[[Any, grpc.ServicerContext], Any]) -> None:
        self._methods = methods

    def __getattr__(self, name: str) -> Callable[[Any, grpc.ServicerContext], Any]:
        return self._methods.get(name, functools.partial(_unimplemented, name))


def _unimplemented(name: str, _request: Any, context: grpc.ServicerContext) -> Any:
    context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{name} is not implemented by this server")


def _untimed(handler: Callable[[Any], Any]) -> Handler:
    """Returns a handler that a deadline does not shorten."""
    return lambda request, timeout_s: handler(request)


def _answer(handler: Handler) -> Callable[[Any, grpc.ServicerContext], Any]:
    """Returns a gRPC method that turns the handler's errors into statuses."""

    def method(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return _run(handler, request, context)
        except StatusError as error:
            context.abort(_GRPC_CODES[error.code], error.wire_message())

    return method


def _observed(api: str, handler: Handler, metrics: Metrics) -> Callable[[Any, grpc.ServicerContext], Any]:
    """Returns `_answer(handler)` that also counts requests and times the successful ones."""

    def method(request: Any, context: grpc.ServicerContext) -> Any:
        name, start_s = request.model_spec.name, time.perf_counter()
        try:
            response = _run(handler, request, context)
        except StatusError as error:
            metrics.count_request(name, error.code)
            context.abort(_GRPC_CODES[error.code], error.wire_message())
        metrics.count_request(name, Code.OK)
        metrics.observe_request(name, api=api, entrypoint="GRPC", seconds=time.perf_counter() - start_s)
        return response

    return method


def _run(handler: Handler, request: Any, context: grpc.ServicerContext) -> Any:
    remaining_s = context.time_remaining()
    if remaining_s is not None and remaining_s > _MAX_TIMEOUT_S:
        remaining_s = None
    if remaining_s is not None and remaining_s <= 0:
        raise StatusError(Code.DEADLINE_EXCEEDED, "the deadline passed before the request was run")
    try:
        return handler(request, timeout_s=remaining_s)
    except StatusError:
        raise
    except Exception as error:
        # The last resort: one request's fault must not take its thread or the server along.
        _log.exception("a request failed unexpectedly")
        raise StatusError(Code.INTERNAL, f"{type(error).__name__}: {error}") from error


def _credentials(path: Path) -> grpc.ServerCredentials:
    files = tls_files(path)
    return grpc.ssl_server_credentials(
        [(files.server_key, files.server_cert)],
        root_certificates=files.custom_ca,
        require_client_auth=files.client_verify,
    )


def _bind(server: grpc.Server, address: str, credentials: grpc.ServerCredentials | None) -> None:
    try:
        if credentials is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise StatusError(Code.UNAVAILABLE, f"cannot listen on {address}: {error}") from error
    if not bound and not address.startswith("unix:"):
        raise StatusError(Code.UNAVAILABLE, f"cannot listen on {address}: is the port in use?")


def _options(flags: Flags) -> list[tuple[str, int | str]]:
    options: list[tuple[str, int | str]] = [
        ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
        ("grpc.so_reuseport", 0),
    ]
    for pair in filter(None, flags.grpc_channel_arguments.split(",")):
        key, _, text = pair.partition("=")
        options.append((key, int(text) if text.lstrip("-").isdigit() else text))
    return options

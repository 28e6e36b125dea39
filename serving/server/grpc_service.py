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
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    predict_pb2,
    regression_pb2,
)

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
    server.add_generic_rpc_handlers(
        (
            _service(
                "PredictionService",
                Predict=(predict_pb2.PredictRequest, _observed("Predict", handlers.predict, metrics)),
                Classify=(
                    classification_pb2.ClassificationRequest,
                    _observed("Classify", handlers.classify, metrics),
                ),
                Regress=(regression_pb2.RegressionRequest, _observed("Regress", handlers.regress, metrics)),
                MultiInference=(inference_pb2.MultiInferenceRequest, handlers.multi_inference),
                GetModelMetadata=(
                    get_model_metadata_pb2.GetModelMetadataRequest,
                    _untimed(handlers.model_metadata),
                ),
            ),
            _service(
                "ModelService",
                GetModelStatus=(get_model_status_pb2.GetModelStatusRequest, _untimed(handlers.model_status)),
                HandleReloadConfigRequest=(
                    model_management_pb2.ReloadConfigRequest,
                    _untimed(handlers.reload_config),
                ),
            ),
        )
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


def _service(name: str, **methods: tuple[Any, Handler]) -> grpc.GenericRpcHandler:
    """Returns a service of unary methods, each given by its request message and its handler."""
    found = {
        # Messages are parsed by the method: gRPC would call one that does not parse the server's own fault.
        method: grpc.unary_unary_rpc_method_handler(
            functools.partial(_call, request_type, handler), response_serializer=_serialize
        )
        for method, (request_type, handler) in methods.items()
    }
    return grpc.method_handlers_generic_handler(f"tensorflow.serving.{name}", found)


def _serialize(response: Any) -> bytes:
    serialized: bytes = response.SerializeToString()
    return serialized


def _call(request_type: Any, handler: Handler, body: bytes, context: grpc.ServicerContext) -> Any:
    """Answers a call; the handler's errors become statuses."""
    try:
        request = request_type.FromString(body)
    except DecodeError:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"the message is no {request_type.DESCRIPTOR.full_name}")
    try:
        return handler(request, timeout_s=_remaining_s(context))
    except StatusError as error:
        context.abort(_GRPC_CODES[error.code], error.wire_message())
    except Exception as error:
        # The last resort: one request's fault must not take its thread or the server along.
        _log.exception("a request failed unexpectedly")
        context.abort(
            grpc.StatusCode.INTERNAL, StatusError(Code.INTERNAL, f"{type(error).__name__}: {error}").wire_message()
        )


def _untimed(handler: Callable[[Any], Any]) -> Handler:
    """Returns a handler that a deadline does not shorten."""
    return lambda request, timeout_s: handler(request)


def _observed(api: str, handler: Handler, metrics: Metrics) -> Handler:
    """Returns the handler that also counts requests and times the successful ones."""

    def observed(request: Any, timeout_s: float | None) -> Any:
        name, start_s = request.model_spec.name, time.perf_counter()
        try:
            response = handler(request, timeout_s=timeout_s)
        except Exception as error:
            metrics.count_request(name, error.code if isinstance(error, StatusError) else Code.INTERNAL)
            raise
        metrics.observe_success(name, api=api, entrypoint="GRPC", seconds=time.perf_counter() - start_s)
        return response

    return observed


def _remaining_s(context: grpc.ServicerContext) -> float | None:
    """Returns the time that is left to the client, None for any; DEADLINE_EXCEEDED if it is over."""
    remaining_s: float | None = context.time_remaining()
    if remaining_s is None or remaining_s > _MAX_TIMEOUT_S:
        return None
    if remaining_s <= 0:
        raise StatusError(Code.DEADLINE_EXCEEDED, "the deadline passed before the request was run")
    return remaining_s


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
        ("grpc.so_reuseport", int(flags.reuse_port)),
    ]
    for pair in filter(None, flags.grpc_channel_arguments.split(",")):
        key, _, text = pair.partition("=")
        options.append((key, int(text) if text.lstrip("-").isdigit() else text))
    return options

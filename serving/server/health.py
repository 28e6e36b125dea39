"""The standard gRPC health service: it opens after the first load, so whatever it knows is SERVING."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import grpc

from serving.server.config_protos import HealthCheckRequest, HealthCheckResponse

__all__ = ["health_service"]

_SERVICES = {"", "ModelService", "PredictionService"}
_SERVING, _SERVICE_UNKNOWN = 1, 3


def health_service(*, max_watchers: int) -> grpc.GenericRpcHandler:
    """Returns the handler of grpc.health.v1.Health; each watcher holds a thread, so there is a limit on them."""
    places = threading.Semaphore(max_watchers)

    def check(request: Any, context: grpc.ServicerContext) -> Any:
        if request.service not in _SERVICES:
            context.abort(grpc.StatusCode.NOT_FOUND, f"unknown service: {request.service}")
        return HealthCheckResponse(status=_SERVING)

    def watch(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        if not places.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {max_watchers} watchers")
        try:
            ended = threading.Event()
            if context.add_callback(ended.set):
                yield HealthCheckResponse(status=_SERVING if request.service in _SERVICES else _SERVICE_UNKNOWN)
                ended.wait()
        finally:
            places.release()

    reads: dict[str, Any] = {
        "request_deserializer": HealthCheckRequest.FromString,
        "response_serializer": HealthCheckResponse.SerializeToString,
    }
    methods = {
        "Check": grpc.unary_unary_rpc_method_handler(check, **reads),
        "Watch": grpc.unary_stream_rpc_method_handler(watch, **reads),
    }
    return grpc.method_handlers_generic_handler("grpc.health.v1.Health", methods)

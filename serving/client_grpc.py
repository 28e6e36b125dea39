"""The client's calls over gRPC, waiting and asyncio."""

from __future__ import annotations

from typing import Any

import grpc
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from serving import client_grpc_messages as messages
from serving.client_calls import Answer, Asked, ModelVersion, Selected, SignatureInfo
from serving.client_errors import status_error
from serving.client_retry import Retries
from serving.server.status import Code, StatusError

__all__ = ["AsyncGrpcTransport", "GrpcTransport"]

_OPTIONS = [
    # The default of 4 MiB is less than the scores and strings of a large batch.
    ("grpc.max_receive_message_length", 2**31 - 1),
    ("grpc.max_send_message_length", 2**31 - 1),
    ("grpc.enable_http_proxy", 0),
    # Between tries to connect; the default of 1 s would make a retry before that fail without a try.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
]


class GrpcTransport:
    """Calls PredictionService and ModelService on one channel."""

    def __init__(self, target: str, *, timeout_s: float, retries: Retries) -> None:
        self._channel = grpc.insecure_channel(target, options=_OPTIONS)
        self._predictions = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(self._channel)
        self._timeout_s, self._retries = timeout_s, retries

    def signature(self, selected: Selected, name: str, *, timeout_s: float | None = None) -> SignatureInfo:
        """Returns what a signature takes and gives."""
        request = messages.signature_request(selected)
        return messages.read_signature(
            self._call(self._predictions.GetModelMetadata, request, timeout_s), selected, name
        )

    def predict(self, asked: Asked, info: SignatureInfo, *, timeout_s: float | None = None) -> Answer:
        """Returns the outputs for arrays."""
        request = messages.predict_request(asked)
        return messages.read_predict(self._call(self._predictions.Predict, request, timeout_s))

    def versions(self, model_name: str, *, timeout_s: float | None = None) -> list[ModelVersion]:
        """Returns the versions that the server knows."""
        request = messages.versions_request(model_name)
        return messages.read_versions(self._call(self._models.GetModelStatus, request, timeout_s))

    def _call(self, method: Any, request: Any, timeout_s: float | None) -> Any:
        def attempt(left_s: float) -> Any:
            try:
                return method(request, timeout=left_s)
            except grpc.RpcError as error:
                raise _plain(error) from error

        return self._retries.call(attempt, timeout_s=self._timeout_s if timeout_s is None else timeout_s)

    def close(self) -> None:
        """Closes the channel."""
        self._channel.close()


class AsyncGrpcTransport:
    """The same for asyncio; made and used within one event loop."""

    def __init__(self, target: str, *, timeout_s: float, retries: Retries) -> None:
        self._channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        self._predictions = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(self._channel)
        self._timeout_s, self._retries = timeout_s, retries

    async def signature(self, selected: Selected, name: str, *, timeout_s: float | None = None) -> SignatureInfo:
        """Returns what a signature takes and gives."""
        request = messages.signature_request(selected)
        response = await self._call(self._predictions.GetModelMetadata, request, timeout_s)
        return messages.read_signature(response, selected, name)

    async def predict(self, asked: Asked, info: SignatureInfo, *, timeout_s: float | None = None) -> Answer:
        """Returns the outputs for arrays."""
        request = messages.predict_request(asked)
        return messages.read_predict(await self._call(self._predictions.Predict, request, timeout_s))

    async def versions(self, model_name: str, *, timeout_s: float | None = None) -> list[ModelVersion]:
        """Returns the versions that the server knows."""
        request = messages.versions_request(model_name)
        return messages.read_versions(await self._call(self._models.GetModelStatus, request, timeout_s))

    async def _call(self, method: Any, request: Any, timeout_s: float | None) -> Any:
        async def attempt(left_s: float) -> Any:
            try:
                return await method(request, timeout=left_s)
            except grpc.RpcError as error:
                raise _plain(error) from error

        return await self._retries.call_async(attempt, timeout_s=self._timeout_s if timeout_s is None else timeout_s)

    async def close(self) -> None:
        """Closes the channel."""
        await self._channel.close()


def _plain(error: Any) -> StatusError:
    return status_error(Code(error.code().value[0]), error.details() or "no details")

"""The client's calls over gRPC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from numpy.typing import NDArray
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from serving.client import Arrays, ModelVersion, SignatureInfo
from serving.rows import InputColumn
from serving.server.status import Code, StatusError
from serving.server.tensors import from_proto, to_proto

__all__ = ["GrpcTransport"]

_OPTIONS = [
    ("grpc.max_receive_message_length", 2**31 - 1),
    ("grpc.max_send_message_length", 2**31 - 1),
    ("grpc.enable_http_proxy", 0),
]


class GrpcTransport:
    """Calls PredictionService and ModelService on one channel."""

    def __init__(self, target: str, *, timeout_s: float) -> None:
        self._channel = grpc.insecure_channel(target, options=_OPTIONS)
        self._predictions = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(self._channel)
        self._timeout_s = timeout_s

    def signature(self, model_name: str, name: str, *, version: int | None) -> SignatureInfo:
        """Returns what a signature takes and gives."""
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec=_spec(model_name, version), metadata_field=["signature_def"]
        )
        response = self._call(self._predictions.GetModelMetadata, request)
        found = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(found)
        if name not in found.signature_def:
            known = ", ".join(sorted(found.signature_def))
            raise StatusError(
                Code.FAILED_PRECONDITION, f"model {model_name} has no signature {name!r}; it has: {known}"
            )
        proto = found.signature_def[name]
        inputs = tuple(_column(alias, proto.inputs[alias]) for alias in sorted(proto.inputs))
        outputs = {alias: types_pb2.DataType.Name(info.dtype) for alias, info in proto.outputs.items()}
        return SignatureInfo(inputs, outputs)

    def predict(
        self, model_name: str, inputs: Arrays, *, info: SignatureInfo, signature: str, version: int | None
    ) -> dict[str, NDArray[Any]]:
        """Returns the outputs for arrays."""
        request = predict_pb2.PredictRequest(model_spec=_spec(model_name, version))
        request.model_spec.signature_name = signature
        for name, array in inputs.items():
            request.inputs[name].CopyFrom(to_proto(array))
        response = self._call(self._predictions.Predict, request)
        return {name: from_proto(proto, name=name) for name, proto in response.outputs.items()}

    def versions(self, model_name: str) -> list[ModelVersion]:
        """Returns the versions that the server knows."""
        request = get_model_status_pb2.GetModelStatusRequest(model_spec=_spec(model_name, None))
        response = self._call(self._models.GetModelStatus, request)
        names = get_model_status_pb2.ModelVersionStatus.State.Name
        return [
            ModelVersion(found.version, names(found.state), found.status.error_message)
            for found in response.model_version_status
        ]

    def _call(self, method: Callable[..., Any], request: Any) -> Any:
        try:
            return method(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            raise StatusError(Code(error.code().value[0]), error.details() or "no details") from error

    def close(self) -> None:
        """Closes the channel."""
        self._channel.close()


def _spec(model_name: str, version: int | None) -> model_pb2.ModelSpec:
    spec = model_pb2.ModelSpec(name=model_name)
    if version is not None:
        spec.version.value = version
    return spec


def _column(name: str, info: Any) -> InputColumn:
    shape = None if info.tensor_shape.unknown_rank else tuple(dim.size for dim in info.tensor_shape.dim)
    return InputColumn(name, types_pb2.DataType.Name(info.dtype), shape)

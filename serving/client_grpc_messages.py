"""The client's gRPC requests from values, and values from answers."""

from __future__ import annotations

from typing import Any

from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, model_pb2, predict_pb2

from serving.client_calls import Answer, Asked, ModelVersion, Selected, SignatureInfo
from serving.client_errors import status_error
from serving.rows import InputColumn
from serving.server.status import Code
from serving.server.tensors import from_proto, to_proto

__all__ = [
    "predict_request",
    "read_predict",
    "read_signature",
    "read_versions",
    "signature_request",
    "versions_request",
]


def signature_request(selected: Selected) -> get_model_metadata_pb2.GetModelMetadataRequest:
    """Returns the question for the signatures of a model."""
    return get_model_metadata_pb2.GetModelMetadataRequest(model_spec=_spec(selected), metadata_field=["signature_def"])


def read_signature(response: Any, selected: Selected, name: str) -> SignatureInfo:
    """Returns what a signature takes and gives.

    Raises:
        StatusError: FAILED_PRECONDITION, if the model has no such signature.
    """
    found = get_model_metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(found)
    if name not in found.signature_def:
        known = ", ".join(sorted(found.signature_def))
        text = f"model {selected.model_name} has no signature {name!r}; it has: {known}"
        raise status_error(Code.FAILED_PRECONDITION, text)
    proto = found.signature_def[name]
    inputs = tuple(_column(alias, proto.inputs[alias]) for alias in sorted(proto.inputs))
    return SignatureInfo(inputs, {alias: types_pb2.DataType.Name(info.dtype) for alias, info in proto.outputs.items()})


def predict_request(asked: Asked) -> predict_pb2.PredictRequest:
    """Returns the request to predict."""
    request = predict_pb2.PredictRequest(model_spec=_spec(asked.selected), output_filter=asked.outputs)
    request.model_spec.signature_name = asked.signature
    for name, array in asked.inputs.items():
        request.inputs[name].CopyFrom(to_proto(array))
    return request


def read_predict(response: Any) -> Answer:
    """Returns the outputs, and the version that gave them."""
    outputs = {name: from_proto(proto, name=name) for name, proto in response.outputs.items()}
    spec = response.model_spec
    return Answer(outputs, spec.version.value if spec.HasField("version") else None)


def versions_request(model_name: str) -> get_model_status_pb2.GetModelStatusRequest:
    """Returns the question for the versions of a model."""
    return get_model_status_pb2.GetModelStatusRequest(model_spec=_spec(Selected(model_name)))


def read_versions(response: Any) -> list[ModelVersion]:
    """Returns the versions that the server knows."""
    names = get_model_status_pb2.ModelVersionStatus.State.Name
    return [
        ModelVersion(found.version, names(found.state), found.status.error_message)
        for found in response.model_version_status
    ]


def _spec(selected: Selected) -> model_pb2.ModelSpec:
    spec = model_pb2.ModelSpec(name=selected.model_name)
    if selected.version is not None:
        spec.version.value = selected.version
    if selected.label is not None:
        spec.version_label = selected.label
    return spec


def _column(name: str, info: Any) -> InputColumn:
    shape = None if info.tensor_shape.unknown_rank else tuple(dim.size for dim in info.tensor_shape.dim)
    return InputColumn(name, types_pb2.DataType.Name(info.dtype), shape)

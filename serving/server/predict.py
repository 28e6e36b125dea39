"""Predict: from the request's protos to the answer's, on one servable."""

from __future__ import annotations

from tensorflow_serving.apis import predict_pb2

from serving.server.servable import Servable
from serving.server.signature import DEFAULT_SIGNATURE
from serving.server.tensors import from_proto, to_proto

__all__ = ["predict"]


def predict(
    servable: Servable, request: predict_pb2.PredictRequest, *, version: int, as_content: bool = False
) -> predict_pb2.PredictResponse:
    """Returns the answer to a Predict request.

    Args:
        servable: the version that answers.
        request: as received.
        version: its number, for the answer.
        as_content: put tensors into `tensor_content` instead of the typed fields.

    Raises:
        StatusError: with TF Serving's code for each mistake.
    """
    signature_name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    signature = servable.signature(signature_name)
    signature.check_inputs(request.inputs.keys())
    names = signature.check_outputs(request.output_filter)
    arrays = {name: from_proto(proto, name=name) for name, proto in request.inputs.items()}
    values = servable.run_tensors(signature.bind(arrays), [signature.output_tensors[name] for name in names])
    response = predict_pb2.PredictResponse()
    response.model_spec.name = request.model_spec.name
    response.model_spec.signature_name = signature_name
    response.model_spec.version.value = version
    for name, value in zip(names, values, strict=True):
        response.outputs[name].CopyFrom(to_proto(value, as_content=as_content))
    return response

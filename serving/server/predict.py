"""Predict: from the request's protos to the answer's, on one servable."""

from __future__ import annotations

from tensorflow_serving.apis import model_pb2, predict_pb2

from serving.server.servable import Servable
from serving.server.signature import DEFAULT_SIGNATURE, Run, Signature
from serving.server.status import Code, StatusError
from serving.server.tensors import from_proto, to_proto

__all__ = ["CLASSIFY", "PREDICT", "REGRESS", "check_predict_method", "fill_spec", "predict"]

CLASSIFY, PREDICT, REGRESS = (f"tensorflow/serving/{call}" for call in ("classify", "predict", "regress"))


def predict(
    servable: Servable,
    request: predict_pb2.PredictRequest,
    *,
    version: int,
    run: Run,
    as_content: bool = False,
    check_method_name: bool = False,
) -> predict_pb2.PredictResponse:
    """Returns the answer to a Predict request.

    Args:
        servable: the version that answers.
        request: as received.
        version: its number, for the answer.
        run: how its graph is run.
        as_content: put tensors into `tensor_content` instead of the typed fields.
        check_method_name: refuse signatures whose method name is none of the three known ones.

    Raises:
        StatusError: with TF Serving's code for each mistake.
    """
    signature = servable.signature(request.model_spec.signature_name or DEFAULT_SIGNATURE)
    if check_method_name:
        check_predict_method(signature)
    given = request.inputs
    # Names before values: a request that names the wrong inputs is told so, whatever they hold.
    signature.check_inputs(given)
    names = signature.check_outputs(request.output_filter)
    arrays = {name: from_proto(proto, name=name) for name, proto in given.items()}
    values = run(signature.bind(arrays), signature.tensors_of(names))
    response = predict_pb2.PredictResponse()
    fill_spec(response.model_spec, request.model_spec, version=version)
    answered = response.outputs
    for name, value in zip(names, values, strict=True):
        to_proto(value, as_content=as_content, into=answered[name])
    return response


def check_predict_method(signature: Signature) -> None:
    """Raises INTERNAL unless the method name of a signature is one that Predict may call."""
    if signature.method_name not in {PREDICT, CLASSIFY, REGRESS}:
        text = f"Expected prediction signature method_name to be one of {{{PREDICT}, {CLASSIFY}, {REGRESS}}}."
        raise StatusError(Code.INTERNAL, f"{text} Was: {signature.method_name}")


def fill_spec(answered: model_pb2.ModelSpec, asked: model_pb2.ModelSpec, *, version: int) -> None:
    """Sets the ModelSpec of an answer: the name as asked, the signature and version that answered, no label."""
    answered.name = asked.name
    answered.signature_name = asked.signature_name or DEFAULT_SIGNATURE
    answered.version.value = version

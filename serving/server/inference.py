"""Classify, Regress and MultiInference: tf.Examples to classes, scores and values, on one servable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tensorflow_serving.apis import classification_pb2, inference_pb2, input_pb2, regression_pb2

from serving.server.predict import CLASSIFY, REGRESS, fill_spec
from serving.server.servable import Servable
from serving.server.signature import DEFAULT_SIGNATURE, Run, Signature
from serving.server.status import Code, StatusError

__all__ = ["check_tasks", "classify", "multi_inference", "regress", "serialize_examples"]

Arrays = Mapping[str, NDArray[Any]]


def classify(
    servable: Servable,
    request: classification_pb2.ClassificationRequest,
    *,
    version: int,
    run: Run,
    check_method_name: bool = False,
) -> classification_pb2.ClassificationResponse:
    """Returns the answer to a Classify request; arguments and errors as of `predict`."""
    signature = _signature(servable, request.model_spec.signature_name)
    names = _outputs_of(signature, CLASSIFY, check_method_name=check_method_name)
    examples = serialize_examples(request.input)
    outputs = _run([(signature, names)], examples, run)[0]
    response = classification_pb2.ClassificationResponse()
    fill_spec(response.model_spec, request.model_spec, version=version)
    _fill_classes(response.result, outputs, num_examples=len(examples))
    return response


def regress(
    servable: Servable,
    request: regression_pb2.RegressionRequest,
    *,
    version: int,
    run: Run,
    check_method_name: bool = False,
) -> regression_pb2.RegressionResponse:
    """Returns the answer to a Regress request; arguments and errors as of `predict`."""
    signature = _signature(servable, request.model_spec.signature_name)
    names = _outputs_of(signature, REGRESS, check_method_name=check_method_name)
    examples = serialize_examples(request.input)
    outputs = _run([(signature, names)], examples, run)[0]
    response = regression_pb2.RegressionResponse()
    fill_spec(response.model_spec, request.model_spec, version=version)
    _fill_values(response.result, outputs, num_examples=len(examples))
    return response


def multi_inference(
    servable: Servable,
    request: inference_pb2.MultiInferenceRequest,
    *,
    version: int,
    run: Run,
    check_method_name: bool = False,
) -> inference_pb2.MultiInferenceResponse:
    """Returns the answer to a MultiInference request, from one run of the graph; the rest as of `predict`."""
    check_tasks(request)
    wanted = []
    for task in request.tasks:
        signature = _signature(servable, task.model_spec.signature_name)
        wanted.append((signature, _outputs_of(signature, task.method_name, check_method_name=check_method_name)))
    examples = serialize_examples(request.input)
    response = inference_pb2.MultiInferenceResponse()
    for task, outputs in zip(request.tasks, _run(wanted, examples, run), strict=True):
        result = response.results.add()
        fill_spec(result.model_spec, task.model_spec, version=version)
        if task.method_name == CLASSIFY:
            _fill_classes(result.classification_result, outputs, num_examples=len(examples))
        else:
            _fill_values(result.regression_result, outputs, num_examples=len(examples))
    return response


def check_tasks(request: inference_pb2.MultiInferenceRequest) -> None:
    """Raises unless the tasks name one model, each signature once, and calls that there are."""
    if not request.tasks:
        raise _bad("Inference request has no tasks")
    seen: set[str] = set()
    for task in request.tasks:
        if not task.model_spec.name:
            raise _bad("Found ModelSpec with an empty model name.")
        if task.model_spec.name != request.tasks[0].model_spec.name:
            raise _bad("All ModelSpecs in a MultiInferenceRequest must access the same model name.")
        name = task.model_spec.signature_name or DEFAULT_SIGNATURE
        if name in seen:
            raise _bad(f"Duplicate evaluation of signature: {name}")
        seen.add(name)
        if task.method_name not in {CLASSIFY, REGRESS}:
            raise StatusError(Code.UNIMPLEMENTED, f"Unsupported signature method_name: {task.method_name}")


def serialize_examples(given: input_pb2.Input) -> NDArray[Any]:
    """Returns each tf.Example as bytes, the context (if any) in front of it: parsers merge the two.

    Raises:
        StatusError: INVALID_ARGUMENT, if there is none.
    """
    kind = given.WhichOneof("kind")
    examples: Sequence[Any] = getattr(given, kind).examples if kind else ()
    if not examples:
        raise _bad("Input is empty")
    context = given.example_list_with_context.context.SerializeToString() if kind != "example_list" else b""
    rows: NDArray[Any] = np.empty(len(examples), dtype=np.object_)
    rows[:] = [context + example.SerializeToString() for example in examples]
    return rows


def _signature(servable: Servable, name: str) -> Signature:
    signature = servable.signatures.get(name or DEFAULT_SIGNATURE)
    if signature is None:
        raise _bad(f"No signature was found with the name: {name or DEFAULT_SIGNATURE}")
    return signature


def _outputs_of(signature: Signature, method: str, *, check_method_name: bool) -> list[str]:
    """Returns the outputs that a call computes; INVALID_ARGUMENT if the signature cannot answer it."""
    call = method.rpartition("/")[2]
    if check_method_name and signature.method_name != method:
        raise _bad(f"Expected {call} signature method_name to be {method}. Was: {signature.method_name}")
    if list(signature.input_tensors) != ["inputs"]:
        raise _bad(f"Expected one input Tensor named inputs to {call}, found: {_names(signature.input_tensors)}")
    outputs = list(signature.output_tensors)
    allowed = [["outputs"]] if method == REGRESS else [["classes"], ["scores"], ["classes", "scores"]]
    if outputs not in allowed:
        expected = " or ".join(_names(names) for names in allowed)
        raise _bad(f"Expected output Tensors {expected} to {call}, found: {_names(outputs)}")
    return outputs


def _run(wanted: Sequence[tuple[Signature, list[str]]], examples: NDArray[Any], run: Run) -> list[Arrays]:
    feeds = {signature.input_tensors["inputs"]: examples for signature, _ in wanted}
    # One tensor may be the output of several signatures.
    fetches = list(dict.fromkeys(signature.output_tensors[name] for signature, names in wanted for name in names))
    values = dict(zip(fetches, run(feeds, fetches), strict=True))
    return [{name: values[signature.output_tensors[name]] for name in names} for signature, names in wanted]


def _fill_values(result: regression_pb2.RegressionResult, outputs: Arrays, *, num_examples: int) -> None:
    values = outputs["outputs"]
    _check_dtype("outputs", values, np.float32)
    if values.ndim not in {1, 2} or (values.ndim == 2 and values.shape[1] != 1):
        text = "Expected output Tensor shape to be either [batch_size] or [batch_size, 1]"
        raise _bad(f"{text} but got {list(values.shape)}")
    _check_rows("outputs", values, num_examples)
    for value in values.ravel().tolist():
        result.regressions.add(value=value)


def _fill_classes(result: classification_pb2.ClassificationResult, outputs: Arrays, *, num_examples: int) -> None:
    for name, dtype in (("classes", np.object_), ("scores", np.float32)):
        if name in outputs:
            _check_dtype(name, outputs[name], dtype)
            if outputs[name].ndim != 2:
                raise _bad(f"Expected Tensor shape: [batch_size num_classes] but got {list(outputs[name].shape)}")
            _check_rows(name, outputs[name], num_examples)
    first = next(iter(outputs.values()))
    labels = outputs.get("classes", np.full(first.shape, b"", np.object_))
    scores = outputs.get("scores", np.zeros(first.shape, np.float32))
    if labels.shape != scores.shape:
        raise _bad(f"Expected classes and scores of one shape but got {list(labels.shape)} and {list(scores.shape)}")
    for row_labels, row_scores in zip(labels.tolist(), scores.tolist(), strict=True):
        classes = result.classifications.add().classes
        for label, score in zip(row_labels, row_scores, strict=True):
            classes.add(label=label.decode("utf-8", "replace"), score=score)


def _check_dtype(name: str, array: NDArray[Any], expected: type[np.generic]) -> None:
    if array.dtype != expected:
        kind = "DT_STRING" if expected is np.object_ else "DT_FLOAT"
        raise _bad(f"Expected {name} Tensor of {kind}. Got: {array.dtype}")


def _check_rows(name: str, array: NDArray[Any], num_examples: int) -> None:
    if array.shape[0] != num_examples:
        raise _bad(f"Expected {name} batch size to be {num_examples} but got {array.shape[0]}")


def _names(names: Any) -> str:
    return "{" + ",".join(names) + "}"


def _bad(message: str) -> StatusError:
    return StatusError(Code.INVALID_ARGUMENT, message)

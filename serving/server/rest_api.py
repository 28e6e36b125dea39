"""The REST API apart from HTTP: method, path and body to status and body."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from typing import Any
from urllib.parse import unquote

from google.protobuf import json_format
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    regression_pb2,
)

from serving.server.handlers import Handlers
from serving.server.json_body import optional_string, parse_object
from serving.server.json_examples import format_classes, format_values, read_examples
from serving.server.json_predict import format_columns, format_rows, read_columns, read_rows
from serving.server.metrics import Metrics
from serving.server.signature import DEFAULT_SIGNATURE
from serving.server.status import Code, StatusError, http_status

__all__ = ["Answer", "RestApi"]

_MODEL = r"/v1/models(?:/(?P<name>[^/:]+))?(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
_CALL = re.compile(_MODEL + r":(?P<verb>[a-z]+)", re.IGNORECASE)
_LOOK = re.compile(_MODEL + r"(?P<metadata>/metadata)?", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Answer:
    """What goes back over HTTP."""

    status: int
    body: bytes
    content_type: str = "application/json"


class RestApi:
    """Answers the calls under /v1/ on the same handlers as gRPC."""

    def __init__(self, handlers: Handlers, metrics: Metrics) -> None:
        self._handlers = handlers
        self._metrics = metrics
        self._calls = {"predict": self._predict, "classify": self._classify, "regress": self._regress}

    def answer(self, method: str, path: str, body: bytes, timeout_s: float | None = None) -> Answer:
        """Returns the answer to a call; never raises for what a client sent.

        Args:
            method: in upper case.
            path: percent-encoded, with the query string if there is one.
            body: already unpacked.
            timeout_s: how long a graph may run.
        """
        start_s = time.perf_counter()
        call = _CALL.fullmatch(path) if method == "POST" else None
        look = _LOOK.fullmatch(path) if method == "GET" else None
        match = call or look
        name = unquote(match["name"] or "") if match else ""
        try:
            text = self._dispatch(call, look, body, timeout_s)
            if text is None:
                raise StatusError(Code.INVALID_ARGUMENT, f"Malformed request: {method} {path}")
        except StatusError as error:
            self._metrics.count_request(name, error.code)
            return error_answer(error)
        except RecursionError:
            self._metrics.count_request(name, Code.INVALID_ARGUMENT)
            return error_answer(StatusError(Code.INVALID_ARGUMENT, "the request is nested too deeply"))
        verb = call["verb"].lower() if call else ""
        self._metrics.observe_success(name, api=verb, entrypoint="REST", seconds=time.perf_counter() - start_s)
        return Answer(200, text.encode("utf-8", "surrogateescape"))

    def _dispatch(
        self, call: re.Match[str] | None, look: re.Match[str] | None, body: bytes, timeout_s: float | None
    ) -> str | None:
        if call and call["verb"] in self._calls:
            return self._calls[call["verb"]](_model_spec(call), body, timeout_s)
        if look:
            spec = _model_spec(look)
            return self._metadata(spec) if look["metadata"] else self._status(spec)
        return None

    def _predict(self, spec: model_pb2.ModelSpec, body: bytes, timeout_s: float | None) -> str:
        with self._handlers.signature(spec, timeout_s=timeout_s) as look_up:
            request = parse_object(body)
            signature, run = look_up(optional_string(request, "signature_name") or DEFAULT_SIGNATURE)
            if not signature.input_tensors:
                text = f'signature "{signature.name}" has no inputs: it cannot be called by REST'
                raise StatusError(Code.INVALID_ARGUMENT, text)
            by_row = _is_row_form(request)
            arrays = (
                read_rows(request["instances"], signature) if by_row else read_columns(request["inputs"], signature)
            )
            outputs = signature.run(arrays, run)
        return format_rows(outputs) if by_row else format_columns(outputs)

    def _classify(self, spec: model_pb2.ModelSpec, body: bytes, timeout_s: float | None) -> str:
        request = classification_pb2.ClassificationRequest(model_spec=spec)
        _fill_examples(request, body)
        return format_classes(self._handlers.classify(request, timeout_s=timeout_s).result)

    def _regress(self, spec: model_pb2.ModelSpec, body: bytes, timeout_s: float | None) -> str:
        request = regression_pb2.RegressionRequest(model_spec=spec)
        _fill_examples(request, body)
        return format_values(self._handlers.regress(request, timeout_s=timeout_s).result)

    def _status(self, spec: model_pb2.ModelSpec) -> str:
        return _to_json(self._handlers.model_status(get_model_status_pb2.GetModelStatusRequest(model_spec=spec)))

    def _metadata(self, spec: model_pb2.ModelSpec) -> str:
        request = get_model_metadata_pb2.GetModelMetadataRequest(model_spec=spec, metadata_field=["signature_def"])
        response = self._handlers.model_metadata(request)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
        # An Any prints with its type's URL; TF Serving prints what is inside.
        inner = f'{{"signature_def": {_to_json(signatures)}}}'
        return f'{{"model_spec": {_to_json(response.model_spec)}, "metadata": {inner}}}'


def error_answer(error: StatusError) -> Answer:
    """Returns the answer that tells a client about an error."""
    body = json.dumps({"error": error.wire_message()}).encode()
    return Answer(http_status(error.code), body)


def _model_spec(match: re.Match[str]) -> model_pb2.ModelSpec:
    if not match["name"]:
        raise StatusError(Code.INVALID_ARGUMENT, "Missing model name in request")
    try:
        spec = model_pb2.ModelSpec(name=unquote(match["name"], errors="strict"))
        if match["label"]:
            spec.version_label = unquote(match["label"], errors="strict")
    except UnicodeDecodeError as error:
        raise StatusError(Code.INVALID_ARGUMENT, "the path is not percent-encoded UTF-8") from error
    if match["version"]:
        number = int(match["version"]) if len(match["version"]) < 100 else 2**63
        if number >= 2**63:
            raise StatusError(Code.INVALID_ARGUMENT, f"Failed to convert version: {match['version']} to numeric.")
        spec.version.value = number
    return spec


def _fill_examples(request: Any, body: bytes) -> None:
    found = parse_object(body)
    name = optional_string(found, "signature_name")
    try:
        request.model_spec.signature_name = name
    except UnicodeEncodeError as error:
        raise StatusError(Code.INVALID_ARGUMENT, "signature_name is not valid UTF-8") from error
    request.input.CopyFrom(read_examples(found))


def _is_row_form(body: dict[str, Any]) -> bool:
    if ("instances" in body) == ("inputs" in body):
        raise StatusError(
            Code.INVALID_ARGUMENT, "Give exactly one of 'instances' (row form) and 'inputs' (column form)"
        )
    return "instances" in body


def _to_json(message: Any) -> str:
    text: str = json_format.MessageToJson(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return text

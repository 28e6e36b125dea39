"""What each call answers, apart from how it came: ModelSpec to servable, request proto to response proto."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    predict_pb2,
)

from serving.server.model_manager import ModelManager
from serving.server.predict import predict
from serving.server.servable import Servable
from serving.server.status import Code, StatusError

__all__ = ["Handlers"]


class Handlers:
    """The calls of both surfaces on the models of one manager."""

    def __init__(self, manager: ModelManager[Servable], *, as_content: bool = False) -> None:
        self._manager = manager
        self._as_content = as_content

    @contextlib.contextmanager
    def servable(self, spec: model_pb2.ModelSpec) -> Iterator[tuple[Servable, int]]:
        """Lends the servable that a ModelSpec names, and its version.

        Raises:
            StatusError: INVALID_ARGUMENT or NOT_FOUND, if the spec is wrong or nothing fits it.
        """
        _check_name(spec)
        choice = spec.WhichOneof("version_choice")
        version = spec.version.value if choice == "version" else None
        label = spec.version_label if choice == "version_label" else None
        with self._manager.acquire(spec.name, version=version, label=label) as found:
            yield found

    def predict(self, request: predict_pb2.PredictRequest) -> predict_pb2.PredictResponse:
        """Answers Predict."""
        _check_spec(request)
        with self.servable(request.model_spec) as (servable, version):
            return predict(servable, request, version=version, as_content=self._as_content)

    def model_metadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        """Answers GetModelMetadata; "signature_def" is the only field there is."""
        _check_spec(request)
        if not request.metadata_field:
            raise StatusError(Code.INVALID_ARGUMENT, "GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != "signature_def":
                raise StatusError(Code.INVALID_ARGUMENT, f"Metadata field {field} is not supported")
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        with self.servable(request.model_spec) as (servable, version):
            response.model_spec.name = request.model_spec.name
            response.model_spec.version.value = version
            signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=servable.signature_defs)
            response.metadata["signature_def"].Pack(signatures)
        return response

    def model_status(
        self, request: get_model_status_pb2.GetModelStatusRequest
    ) -> get_model_status_pb2.GetModelStatusResponse:
        """Answers GetModelStatus; a label in the request is not looked at."""
        _check_spec(request)
        spec = request.model_spec
        _check_name(spec)
        version = spec.version.value if spec.HasField("version") else None
        response = get_model_status_pb2.GetModelStatusResponse()
        for found in self._manager.statuses(spec.name, version=version):
            status = response.model_version_status.add(version=found.version, state=int(found.state))
            status.status.error_code = 0 if found.error is None else int(found.error.code)
            status.status.error_message = "" if found.error is None else found.error.message
        return response


def _check_spec(request: object) -> None:
    if not request.HasField("model_spec"):  # type: ignore[attr-defined]
        raise StatusError(Code.INVALID_ARGUMENT, "Missing ModelSpec")


def _check_name(spec: model_pb2.ModelSpec) -> None:
    if not spec.name:
        raise StatusError(Code.INVALID_ARGUMENT, "ModelSpec has no model name specified.")

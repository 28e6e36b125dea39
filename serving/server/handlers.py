"""What each call answers, apart from how it came: ModelSpec to servable, request proto to response proto."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from numpy.typing import NDArray
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_pb2,
    predict_pb2,
    regression_pb2,
)

from serving.server.inference import check_tasks, classify, multi_inference, regress
from serving.server.metrics import Metrics
from serving.server.model_manager import ModelManager
from serving.server.predict import check_predict_method, predict
from serving.server.reload import reload_config
from serving.server.servable import Servable
from serving.server.signature import Run, Signature
from serving.server.status import Code, StatusError

__all__ = ["Handlers"]


class Handlers:
    """The calls of both surfaces on the models of one manager.

    Calls that run a graph take `timeout_s`, the time that is left to the client; None means any.
    """

    def __init__(
        self,
        manager: ModelManager[Servable],
        metrics: Metrics,
        *,
        as_content: bool = False,
        check_method_name: bool = False,
    ) -> None:
        self._manager = manager
        self._metrics = metrics
        self._as_content = as_content
        self._check_method_name = check_method_name

    def servable(self, spec: model_pb2.ModelSpec) -> AbstractContextManager[tuple[Servable, int]]:
        """Lends the servable that a ModelSpec names, and its version.

        Raises:
            StatusError: INVALID_ARGUMENT or NOT_FOUND, if the spec is wrong or nothing fits it.
        """
        _check_name(spec)
        choice = spec.WhichOneof("version_choice")
        version = spec.version.value if choice == "version" else None
        label = spec.version_label if choice == "version_label" else None
        return self._manager.acquire(spec.name, version=version, label=label)

    def predict(
        self, request: predict_pb2.PredictRequest, *, timeout_s: float | None = None
    ) -> predict_pb2.PredictResponse:
        """Answers Predict."""
        return self._infer(functools.partial(predict, as_content=self._as_content), "Predict", request, timeout_s)

    def classify(
        self, request: classification_pb2.ClassificationRequest, *, timeout_s: float | None = None
    ) -> classification_pb2.ClassificationResponse:
        """Answers Classify."""
        return self._infer(classify, "Classify", request, timeout_s)

    def regress(
        self, request: regression_pb2.RegressionRequest, *, timeout_s: float | None = None
    ) -> regression_pb2.RegressionResponse:
        """Answers Regress."""
        return self._infer(regress, "Regress", request, timeout_s)

    def _infer(self, call: Callable[..., Any], api: str, request: Any, timeout_s: float | None) -> Any:
        _check_spec(request)
        with self.servable(request.model_spec) as (servable, version):
            run = self._runner(servable, request.model_spec.name, api, timeout_s)
            return call(servable, request, version=version, run=run, check_method_name=self._check_method_name)

    def multi_inference(
        self, request: inference_pb2.MultiInferenceRequest, *, timeout_s: float | None = None
    ) -> inference_pb2.MultiInferenceResponse:
        """Answers MultiInference; the first task says which version answers all."""
        check_tasks(request)
        spec = request.tasks[0].model_spec
        with self.servable(spec) as (servable, version):
            run = self._runner(servable, spec.name, "MultiInference", timeout_s)
            response = multi_inference(
                servable, request, version=version, run=run, check_method_name=self._check_method_name
            )
        kind = request.input.WhichOneof("kind")
        self._metrics.observe_examples(spec.name, len(getattr(request.input, kind).examples))
        return response

    @contextlib.contextmanager
    def signature(
        self, spec: model_pb2.ModelSpec, *, timeout_s: float | None = None
    ) -> Iterator[Callable[[str], tuple[Signature, Run]]]:
        """Lends a look-up of signatures for Predict, each with what runs its graph: REST reads bodies by them.

        Raises:
            StatusError: as `servable`; INVALID_ARGUMENT from the look-up, if there is no such signature.
        """
        with self.servable(spec) as (servable, _):

            def look_up(name: str) -> tuple[Signature, Run]:
                signature = servable.signatures.get(name)
                if signature is None:
                    text = f'Serving signature name: "{name}" not found in signature def'
                    raise StatusError(Code.INVALID_ARGUMENT, text)
                if self._check_method_name:
                    check_predict_method(signature)
                return signature, self._runner(servable, spec.name, "Predict", timeout_s)

            yield look_up

    def _runner(self, servable: Servable, model_name: str, api: str, timeout_s: float | None) -> Run:
        def run(
            feeds: Mapping[str, NDArray[Any]], fetches: Sequence[str], *, timeout_s: float | None = timeout_s
        ) -> list[NDArray[Any]]:
            start_s = time.perf_counter()
            values = servable.run_tensors(feeds, fetches, timeout_s=timeout_s)
            self._metrics.observe_run(model_name, api=api, seconds=time.perf_counter() - start_s)
            return values

        return run

    def reload_config(
        self, request: model_management_pb2.ReloadConfigRequest
    ) -> model_management_pb2.ReloadConfigResponse:
        """Answers HandleReloadConfigRequest."""
        return reload_config(request, apply=self._manager.apply, metrics=self._metrics)

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

"""A version that is a `model.tflite`: interpreters in place of a session."""

from __future__ import annotations

import queue
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.core.protobuf import meta_graph_pb2

from serving.server.signature import DEFAULT_SIGNATURE
from serving.server.status import Code, StatusError

__all__ = ["TFLITE_FILE", "TfliteModel"]

TFLITE_FILE = "model.tflite"
_PREDICT = "tensorflow/serving/predict"

Array = NDArray[Any]


class TfliteModel:
    """The signatures of a model, run by a pool of interpreters; a model without any has its tensors as one.

    Raises:
        StatusError: INVALID_ARGUMENT, if the file is no such model.
    """

    def __init__(self, path: Path, *, num_interpreters: int) -> None:
        self._free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        try:
            body = (path / TFLITE_FILE).read_bytes()
            made = [tf.lite.Interpreter(model_content=body, num_threads=1) for _ in range(num_interpreters)]
        except (OSError, ValueError, RuntimeError) as error:
            raise StatusError(Code.INVALID_ARGUMENT, f"Could not load {path / TFLITE_FILE}: {error}") from error
        for interpreter in made:
            self._free.put(interpreter)
        self._has_signatures = bool(made[0].get_signature_list())
        self._owners: dict[str, tuple[str, str]] = {}
        self.signature_defs = {
            key: self._signature_def(key, *found) for key, found in _details(made[0], self._has_signatures).items()
        }

    def _signature_def(self, key: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Any:
        signature = meta_graph_pb2.SignatureDef(method_name=_PREDICT)
        for infos, details in ((signature.inputs, inputs), (signature.outputs, outputs)):
            for alias, detail in details.items():
                info = infos[alias]
                # Several signatures may share a tensor: the name that is run has the signature's too.
                info.name, info.dtype = f"{key}:{alias}", tf.as_dtype(detail["dtype"]).as_datatype_enum
                for size in detail["shape_signature"].tolist():
                    info.tensor_shape.dim.add(size=size)
                self._owners[info.name] = (key, alias)
        return signature

    def run(self, feeds: Mapping[str, Array], fetches: Sequence[str], *, timeout_s: float | None = None) -> list[Array]:
        """Returns outputs by tensor name; an interpreter that runs cannot be ended by a deadline.

        Raises:
            StatusError: INVALID_ARGUMENT, if the inputs do not fit; DEADLINE_EXCEEDED, if none was free in time.
        """
        key = self._owners[fetches[0]][0]
        inputs = {self._owners[name][1]: value for name, value in feeds.items()}
        try:
            interpreter = self._free.get(timeout=timeout_s)
        except queue.Empty as error:
            raise StatusError(Code.DEADLINE_EXCEEDED, "no interpreter was free before the deadline") from error
        try:
            outputs = _invoke(interpreter, key if self._has_signatures else None, inputs)
        except (ValueError, RuntimeError) as error:
            raise StatusError(Code.INVALID_ARGUMENT, str(error)) from error
        finally:
            self._free.put(interpreter)
        return [outputs[self._owners[name][1]] for name in fetches]


def _details(interpreter: Any, has_signatures: bool) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Returns what is known of inputs and outputs, by signature and by their names."""
    if not has_signatures:
        inputs = {detail["name"]: detail for detail in interpreter.get_input_details()}
        return {DEFAULT_SIGNATURE: (inputs, {detail["name"]: detail for detail in interpreter.get_output_details()})}
    runners = {key: interpreter.get_signature_runner(key) for key in interpreter.get_signature_list()}
    return {key: (runner.get_input_details(), runner.get_output_details()) for key, runner in runners.items()}


def _invoke(interpreter: Any, key: str | None, inputs: Mapping[str, Array]) -> dict[str, Array]:
    if key is not None:
        return dict(interpreter.get_signature_runner(key)(**inputs))
    for detail in interpreter.get_input_details():
        interpreter.resize_tensor_input(detail["index"], list(inputs[detail["name"]].shape))
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], inputs[detail["name"]])
    interpreter.invoke()
    return {detail["name"]: interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()}

"""What a SignatureDef asks for, and the errors of a request that does not fit it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray
from tensorflow.core.protobuf import meta_graph_pb2

from serving.server.status import Code, StatusError
from serving.server.tensors import from_proto

__all__ = ["DEFAULT_SIGNATURE", "Run", "Signature"]

DEFAULT_SIGNATURE = "serving_default"


class Run(Protocol):
    """Runs a graph."""

    def __call__(
        self, feeds: Mapping[str, NDArray[Any]], fetches: Sequence[str], *, timeout_s: float | None = None
    ) -> list[NDArray[Any]]:
        """Returns the values of tensors, given values for others, all by tensor name.

        Raises:
            StatusError: DEADLINE_EXCEEDED after `timeout_s`; what the graph says otherwise.
        """


@dataclasses.dataclass(frozen=True)
class Signature:
    """A signature with its tensor names at hand; inputs and outputs are in the order of their names.

    Attributes:
        input_tensors: tensor name in the graph, by input name.
        input_dtypes: DataType enum number, by input name.
        input_shapes: sizes with -1 for unknown ones, or None for unknown rank, by input name.
        output_tensors: tensor name in the graph, by output name.
        output_dtypes: DataType enum number, by output name.
        defaults: values of inputs that a request may leave out.
        method_name: as exported, such as "tensorflow/serving/predict".
    """

    name: str
    input_tensors: dict[str, str]
    input_dtypes: dict[str, int]
    input_shapes: dict[str, tuple[int, ...] | None]
    output_tensors: dict[str, str]
    output_dtypes: dict[str, int]
    defaults: dict[str, NDArray[Any]]
    method_name: str

    @classmethod
    def from_proto(cls, name: str, proto: meta_graph_pb2.SignatureDef) -> Signature:
        """Returns the signature that a SignatureDef describes."""
        inputs, outputs = _sorted(proto.inputs), _sorted(proto.outputs)
        return cls(
            name=name,
            input_tensors={alias: info.name for alias, info in inputs.items()},
            input_dtypes={alias: info.dtype for alias, info in inputs.items()},
            input_shapes={alias: _shape(info.tensor_shape) for alias, info in inputs.items()},
            output_tensors={alias: info.name for alias, info in outputs.items()},
            output_dtypes={alias: info.dtype for alias, info in outputs.items()},
            defaults={alias: from_proto(value, name=alias) for alias, value in _sorted(proto.defaults).items()},
            method_name=proto.method_name,
        )

    def run(
        self, inputs: Mapping[str, NDArray[Any]], run: Run, *, names: Sequence[str] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Returns the outputs by name as `run` computes them: all, or those that `names` lists.

        Raises:
            StatusError: INVALID_ARGUMENT, if inputs or names do not fit; what `run` raises otherwise.
        """
        self.check_inputs(inputs)
        wanted = self.check_outputs(names)
        return dict(zip(wanted, run(self.bind(inputs), self.tensors_of(wanted)), strict=True))

    def bind(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Returns the feeds by tensor name, in the order of the signature; `check_inputs` must have passed."""
        if len(inputs) == len(self.input_tensors):
            return {tensor: inputs[alias] for alias, tensor in self.input_tensors.items()}
        return {
            tensor: inputs[alias] if alias in inputs else self.defaults[alias]
            for alias, tensor in self.input_tensors.items()
        }

    def tensors_of(self, outputs: Sequence[str]) -> list[str]:
        """Returns the tensor names of outputs."""
        return [self.output_tensors[name] for name in outputs]

    def check_inputs(self, given: Iterable[str]) -> None:
        """Raises INVALID_ARGUMENT if `given` is not the set of inputs, apart from those that have a default."""
        given_names = set(given)
        if self.input_tensors.keys() == given_names:
            return
        missing = sorted(self.input_tensors.keys() - given_names - self.defaults.keys())
        extra = sorted(given_names - self.input_tensors.keys())
        if not missing and not extra:
            return
        if missing and len(given_names) == len(self.input_tensors):
            message = f"Signature input alias: {missing[0]} not found in request and no default value provided."
            raise StatusError(
                Code.INVALID_ARGUMENT, f"{message} Inputs expected to be in the set {{{self._inputs()}}}."
            )
        raise StatusError(
            Code.INVALID_ARGUMENT,
            f"input size does not match signature: {len(given_names)}!={len(self.input_tensors)}"
            f" len({{{','.join(sorted(given_names))}}}) != len({{{self._inputs()}}})."
            f" Sent extra: {{{','.join(extra)}}}. Missing but required: {{{','.join(missing)}}}.",
        )

    def check_outputs(self, wanted: Sequence[str] | None) -> list[str]:
        """Returns the names of the outputs to compute: `wanted`, or all if there are none."""
        if not wanted:
            return list(self.output_tensors)
        for position, alias in enumerate(wanted):
            if alias not in self.output_tensors:
                known = ",".join(self.output_tensors)
                message = f"output tensor alias not found in signature: {alias}"
                raise StatusError(Code.INVALID_ARGUMENT, f"{message} Outputs expected to be in the set {{{known}}}.")
            if alias in wanted[:position]:
                raise StatusError(Code.INVALID_ARGUMENT, f"duplicate output tensor alias: {alias}")
        return list(wanted)

    def _inputs(self) -> str:
        return ",".join(self.input_tensors)


def _sorted(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {key: mapping[key] for key in sorted(mapping)}


def _shape(shape: Any) -> tuple[int, ...] | None:
    return None if shape.unknown_rank else tuple(dim.size for dim in shape.dim)

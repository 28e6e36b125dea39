"""What a client asks and is answered, whatever the protocol and whether it waits or not."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from preprocessing.errors import ServingError
from serving.rows import InputColumn

__all__ = ["Answer", "Arrays", "Asked", "ModelVersion", "Selected", "SignatureInfo"]

Arrays = Mapping[str, NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class SignatureInfo:
    """A signature as a server describes it: input columns and the dtype of each output, such as "DT_FLOAT"."""

    inputs: tuple[InputColumn, ...]
    outputs: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class ModelVersion:
    """A version as a server reports it; `state` is START, LOADING, AVAILABLE, UNLOADING or END."""

    version: int
    state: str
    error: str


@dataclasses.dataclass(frozen=True)
class Selected:
    """Which model answers: the newest available version, a version, or the one that a label is on."""

    model_name: str
    version: int | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        if self.version is not None and self.label is not None:
            raise ServingError(f"version {self.version} and label {self.label!r} are both given; give one")


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request to predict.

    Attributes:
        selected: which model.
        signature: of the model.
        inputs: an array for each input.
        outputs: names of those that are wanted; empty for all.
    """

    selected: Selected
    signature: str
    inputs: Arrays
    outputs: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Answer:
    """The outputs by name, and the version that gave them; REST does not say which, unless it was asked for."""

    outputs: dict[str, NDArray[Any]]
    version: int | None

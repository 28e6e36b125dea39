"""A network of the user's own, `model.kind: package.module:Class`, and whether it keeps to the contract of ours.

    class Tower:
        reads_first_order = False  # True: `inputs.first_order` holds a linear weight for each field, else None

        def __init__(self, make, spec, *, num_fields, num_dense, num_labels): ...  # every weight comes from `make`

        def __call__(self, inputs, mode): ...  # `mode.Inputs` and `mode.Mode` to logits [B, K], in the dtype of inputs

`spec.params` are the values of `model.params`. All else is as in `deepfm`, `dcn` and `dlrm`, which are examples.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from models.config import ModelSpec
from models.mode import Inputs, Mode
from models.weights import WeightMaker
from preprocessing.errors import ConfigError

__all__ = ["find_class", "make_own_network", "reads_first_order", "source_digest"]

OwnNetwork = Callable[[Inputs, Mode], tf.Tensor]


def find_class(kind: str) -> Any:
    """Returns the class that 'package.module:Class' names; the working directory is searched too, after all else.

    Raises:
        ConfigError: if it cannot be imported, or is no class.
    """
    module_name, _, name = kind.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found = getattr(importlib.import_module(module_name), name, None)
    except Exception as error:
        raise ConfigError(
            f"model.kind: {module_name} cannot be imported: {type(error).__name__}: {error}; install it, add its "
            "folder to PYTHONPATH, or start in that folder"
        ) from error
    if not isinstance(found, type):
        raise ConfigError(f"model.kind: {module_name} has no class {name!r}")
    return found


def source_digest(kind: str) -> str:
    """Returns a digest of the file that holds the class; what that file imports does not count."""
    source = inspect.getsourcefile(find_class(kind))
    return "" if source is None else hashlib.sha256(Path(source).read_bytes()).hexdigest()


def make_own_network(
    make: WeightMaker, spec: ModelSpec, *, num_fields: int, num_dense: int, num_labels: int
) -> OwnNetwork:
    """Returns a network of the class `spec.kind`, tried out once.

    Raises:
        ConfigError: if it does not keep to the contract.
    """
    own = find_class(spec.kind)
    given = {"num_fields": num_fields, "num_dense": num_dense, "num_labels": num_labels}
    try:
        inspect.signature(own).bind(make, spec, **given)
    except TypeError as error:
        raise ConfigError(
            f"model.kind: {spec.kind} is called with (make, spec, *, num_fields, num_dense, num_labels): {error}"
        ) from error
    network: OwnNetwork = own(make, spec, **given)
    _try(network, make, spec, num_fields=num_fields, num_dense=num_dense, num_labels=num_labels)
    return network


def _try(
    network: OwnNetwork, make: WeightMaker, spec: ModelSpec, *, num_fields: int, num_dense: int, num_labels: int
) -> None:
    """Traces an inference and looks at what comes out, and at the variables that were read."""
    first_order = tf.TensorSpec([None, num_fields], make.dtype)
    signature = (
        tf.TensorSpec([None, num_fields, spec.embedding_dim], make.dtype),
        first_order if reads_first_order(spec.kind) else None,
        tf.TensorSpec([None, num_dense], make.dtype),
    )

    def infer(*inputs: tf.Tensor) -> tf.Tensor:
        return network(Inputs(*inputs), Mode(make.dtype))

    graph = tf.function(infer, autograph=False).get_concrete_function(*signature).graph
    (logits,) = graph.outputs if len(graph.outputs) == 1 else (None,)
    if logits is None or logits.dtype != make.dtype or not logits.shape.is_compatible_with([None, num_labels]):
        shown = "several tensors" if logits is None else f"{logits.dtype.name} {logits.shape}"
        raise ConfigError(f"model.kind: {spec.kind} must return {make.dtype.name} [B, {num_labels}], not {shown}")
    known = {id(one) for one in make.components()}
    foreign = sorted(variable.name for variable in graph.variables if id(variable) not in known)
    if foreign:
        raise ConfigError(
            f"model.kind: {spec.kind} has a variable {foreign[0]} of its own, which would be neither trained nor "
            "saved; get weights from `make.glorot`, `uniform`, `constant`, `statistic`, or `make.adopt` a layer's"
        )


def reads_first_order(kind: str) -> bool:
    """Returns whether the class says that it reads linear weights."""
    return bool(getattr(find_class(kind), "reads_first_order", False))

"""The bodies of REST classify and regress: JSON examples to tf.Examples, and results back."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

import numpy as np
from tensorflow.core.example import example_pb2, feature_pb2
from tensorflow_serving.apis import classification_pb2, input_pb2, regression_pb2

from serving.server.json_tensors import array_to_json
from serving.server.status import Code, StatusError

__all__ = ["format_classes", "format_values", "read_examples"]


def read_examples(body: dict[str, Any]) -> input_pb2.Input:
    """Returns the `examples` of a body, with its `context` if there is one.

    Raises:
        StatusError: INVALID_ARGUMENT, if they are not objects of values or flat lists of one kind.
    """
    examples = body.get("examples")
    if not isinstance(examples, list) or not examples:
        raise _bad("Expecting 'examples' to be a non-empty list")
    given = input_pb2.Input()
    found = given.example_list_with_context if "context" in body else given.example_list
    for position, example in enumerate(examples):
        _fill(found.examples.add(), example, where=f"element {position} of 'examples'")
    if "context" in body:
        found.context.SetInParent()
        _fill(found.context, body["context"], where="'context'")
    return given


def _fill(example: example_pb2.Example, value: Any, *, where: str) -> None:
    if not isinstance(value, dict):
        raise _bad(f"Expecting {where} to be an object of features")
    for name, feature in value.items():
        try:
            _fill_feature(example.features.feature[name], feature)
        except (ValueError, TypeError, OverflowError, binascii.Error) as error:
            raise _bad(f"{where}: feature {name[:100]!a} is not valid: {str(error)[:200]}") from error


def _fill_feature(feature: feature_pb2.Feature, value: Any) -> None:
    values = value if isinstance(value, list) else [value]
    kinds = {_KINDS.get(type(item), "unknown") for item in values}
    if len(kinds) > 1 or "unknown" in kinds:
        raise ValueError("it must be a value or a flat list of values of one kind: strings, decimals or integers")
    for kind in kinds:
        if kind == "bytes":
            feature.bytes_list.value.extend(map(_to_bytes, values))
        elif kind == "float":
            with np.errstate(over="ignore"):
                feature.float_list.value.extend(np.array(values, np.float32).tolist())
        else:
            feature.int64_list.value.extend(map(int, values))


_KINDS = {str: "bytes", dict: "bytes", float: "float", int: "int64", bool: "int64"}


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if value.keys() != {"b64"} or not isinstance(value["b64"], str):
        raise ValueError('an object may only be {"b64": "..."}')
    return base64.b64decode(value["b64"], validate=True)


def format_values(result: regression_pb2.RegressionResult) -> str:
    """Returns the body of an answer to regress."""
    values = np.array([regression.value for regression in result.regressions], np.float32)
    return '{"results": [' + ", ".join(array_to_json(values)) + "]}"


def format_classes(result: classification_pb2.ClassificationResult) -> str:
    """Returns the body of an answer to classify: for each example a list of [label, score]."""
    classes = [found for row in result.classifications for found in row.classes]
    scores = array_to_json(np.array([found.score for found in classes], np.float32))
    pairs = iter(
        f"[{json.dumps(found.label, ensure_ascii=False)}, {score}]"
        for found, score in zip(classes, scores, strict=True)
    )
    rows = ["[" + ", ".join(next(pairs) for _ in row.classes) + "]" for row in result.classifications]
    return '{"results": [' + ", ".join(rows) + "]}"


def _bad(message: str) -> StatusError:
    return StatusError(Code.INVALID_ARGUMENT, message)

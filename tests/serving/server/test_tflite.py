"""Versions that are a TFLite model: with signatures, without, batched, and damaged."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.server.flags import parse, unused_flags
from serving.server.load import Loader
from serving.server.metrics import Metrics
from serving.server.servable import Servable
from serving.server.status import Code, StatusError

_FLAGS = ["--prefer_tflite_model=true", "--num_tflite_pools=2"]


@pytest.fixture(scope="module")
def version(half_plus: Any, tmp_path_factory: Any) -> Path:
    """y = x / 2 + 2."""
    import tensorflow as tf

    folder: Path = tmp_path_factory.mktemp("tflite")
    (folder / "model.tflite").write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(half_plus(2))).convert())
    return folder


def _load(version: Path, *arguments: str) -> Servable:
    return Loader(parse([*_FLAGS, *arguments])[0], Metrics()).load("half", 1, version)


@pytest.mark.parametrize("batching", ["--enable_batching=false", "--enable_batching=true"])
def test_a_tflite_model_answers_by_its_signature_at_any_batch_size(version: Path, batching: str) -> None:
    servable = _load(version, batching)
    for values in ([2.0], [1.0, 2.0, 3.0], [5.0]):
        outputs = servable.run("serving_default", {"x": np.array(values, np.float32)})
        assert outputs["y"].tolist() == [value / 2 + 2 for value in values]
    assert servable.signature_defs["serving_default"].inputs["x"].tensor_shape.dim[0].size == -1
    servable.close()


def test_mistakes_are_the_clients(version: Path) -> None:
    servable = _load(version)
    for inputs in ({"x": np.array([1.0])}, {"y": np.array([1.0], np.float32)}, {"x": np.array([b"a"], object)}):
        with pytest.raises(StatusError) as caught:
            servable.run("serving_default", inputs)
        assert caught.value.code is Code.INVALID_ARGUMENT
    assert servable.run("serving_default", {"x": np.array([2.0], np.float32)})["y"].tolist() == [3.0]


def test_a_model_without_signatures_is_called_by_its_tensors(version: Path, monkeypatch: Any) -> None:
    import tensorflow as tf

    monkeypatch.setattr(tf.lite.Interpreter, "get_signature_list", lambda _self: {})
    servable = _load(version)
    signature = servable.signature("serving_default")
    (given,), (answered,) = signature.input_tensors, signature.output_tensors
    for values in ([2.0], [1.0, 2.0, 3.0]):
        outputs = servable.run("serving_default", {given: np.array(values, np.float32)})
        assert outputs[answered].tolist() == [value / 2 + 2 for value in values]


def test_without_the_flag_or_the_file_the_saved_model_is_served(half_plus: Any, version: Path, tmp_path: Path) -> None:
    assert _load(half_plus(3)).run("serving_default", {"x": np.array([2.0], np.float32)})["y"].tolist() == [4.0]
    with pytest.raises(StatusError, match="SavedModel"):
        Loader(parse([])[0], Metrics()).load("half", 1, version)
    (tmp_path / "model.tflite").write_bytes(b"no model at all, but long enough")
    with pytest.raises(StatusError) as caught:
        _load(tmp_path)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert unused_flags(parse(_FLAGS)[0]) == ()

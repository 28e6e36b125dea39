"""Tiny SavedModels that the serving tests share, made once a session."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Before any test module imports TensorFlow by itself: this selects Keras 2.
import serving  # noqa: F401


def _save(module: Any, function: Any, path: Path) -> Path:
    import tensorflow as tf

    tf.saved_model.save(module, str(path), signatures=function)
    return path


@pytest.fixture(scope="session")
def half_plus(tmp_path_factory: Any) -> Callable[[int], Path]:
    """Returns a function k -> SavedModel whose only signature is y = x / 2 + k, x float [None]."""
    import tensorflow as tf

    root = tmp_path_factory.mktemp("half_plus")
    made: dict[int, Path] = {}

    def make(k: int) -> Path:
        if k not in made:
            module = tf.Module()
            module.k = tf.Variable(float(k))
            module.f = tf.function(lambda x: {"y": x / 2.0 + module.k})
            made[k] = _save(
                module, module.f.get_concrete_function(tf.TensorSpec([None], tf.float32, name="x")), root / str(k)
            )
        return made[k]

    return make


@pytest.fixture(scope="session")
def mixed_model(tmp_path_factory: Any) -> Path:
    """Returns a SavedModel with inputs of several dtypes, a vocabulary and a list column.

    score[i] = price[i] + vocabulary(user[i]) + count[i] + number of tags of row i that are not the missing marker,
    where vocabulary is a -> 100, b -> 200, others -> 0; echo[i] = user[i]; user_bytes[i] = user[i].
    """
    import tensorflow as tf

    module = tf.Module()
    module.table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer([b"a", b"b"], tf.constant([100, 200], tf.int64)), 0
    )

    def score(user: Any, count: Any, price: Any, tags: Any) -> Any:
        present = tf.reduce_sum(tf.cast(tf.not_equal(tags, b"\x00"), tf.float32), axis=1)
        known = tf.cast(module.table.lookup(user) + count, tf.float32)
        return {"score": price + known + present, "echo": tf.identity(user), "user_bytes": tf.identity(user)}

    module.f = tf.function(
        score,
        input_signature=[
            tf.TensorSpec([None], tf.string, name="user"),
            tf.TensorSpec([None], tf.int64, name="count"),
            tf.TensorSpec([None], tf.float32, name="price"),
            tf.TensorSpec([None, 3], tf.string, name="tags"),
        ],
    )
    return _save(module, module.f, tmp_path_factory.mktemp("mixed") / "export")


@pytest.fixture
def free_port() -> Callable[[], int]:
    """Returns a function that gives a loopback port nobody listens on."""

    def choose() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    return choose


@pytest.fixture(scope="session")
def example_model(tmp_path_factory: Any) -> Path:
    """Returns a SavedModel over tf.Examples with a float feature x (0 if absent) and a string feature tag ("").

    regress: outputs = x / 2 + 2, [n, 1]; flat: the same, [n]; wide: [n, 2]; first: of the first row only;
    whole: int64, [n]; classify: classes "low" and tag, scores x and -x; scores: only the scores; classes: only the
    classes; serving_default: takes x, gives y = x / 2 + 2.
    """
    import tensorflow as tf

    module = tf.Module()
    module.two = tf.Variable(2.0)
    spec = {"x": tf.io.FixedLenFeature([1], tf.float32, [0.0]), "tag": tf.io.FixedLenFeature([1], tf.string, [""])}

    def signature(function: Any) -> Any:
        def call(inputs: Any) -> Any:
            parsed = tf.io.parse_example(inputs, spec)
            return function(parsed["x"], parsed["tag"])

        return tf.function(call, input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])

    def classes(tag: Any) -> Any:
        return tf.concat([tf.fill(tf.shape(tag), "low"), tag], axis=1)

    module.f = {
        "regress": signature(lambda x, tag: {"outputs": x / 2.0 + module.two}),
        "flat": signature(lambda x, tag: {"outputs": tf.reshape(x / 2.0 + module.two, [-1])}),
        "wide": signature(lambda x, tag: {"outputs": tf.tile(x, [1, 2])}),
        "first": signature(lambda x, tag: {"outputs": x[:1]}),
        "whole": signature(lambda x, tag: {"outputs": tf.cast(x, tf.int64)}),
        "classify": signature(lambda x, tag: {"classes": classes(tag), "scores": tf.concat([x, -x], axis=1)}),
        "scores": signature(lambda x, tag: {"scores": tf.concat([x, -x], axis=1)}),
        "classes": signature(lambda x, tag: {"classes": classes(tag)}),
        "serving_default": tf.function(
            lambda x: {"y": x / 2.0 + module.two}, input_signature=[tf.TensorSpec([None], tf.float32, name="x")]
        ),
    }
    return _save(module, module.f, tmp_path_factory.mktemp("examples") / "export")


@pytest.fixture(scope="session")
def slow_model(tmp_path_factory: Any) -> Path:
    """Returns a SavedModel that counts up to n one by one: y = n, where n is an int64 scalar."""
    import tensorflow as tf

    module = tf.Module()

    def count(n: Any) -> Any:
        return {"y": tf.while_loop(lambda i: i < n, lambda i: (i + 1,), (tf.constant(0, tf.int64),))[0]}

    module.f = tf.function(count, input_signature=[tf.TensorSpec([], tf.int64, name="n")])
    return _save(module, module.f, tmp_path_factory.mktemp("slow") / "export")

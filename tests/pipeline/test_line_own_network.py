"""The whole line with a network that the user wrote, in the folder where the command is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serving.version_store import versions
from tests.pipeline.tiny_line import rankmill, tiny_line

pytestmark = pytest.mark.slow

NETWORK = """
import tensorflow as tf
from models.layers import Dense


class Sum:
    def __init__(self, make, spec, *, num_fields, num_dense, num_labels):
        self._head = Dense(make, "head", fan_in=spec.embedding_dim + num_dense, fan_out=num_labels)
        self._power = spec.params["power"]

    def __call__(self, inputs, mode):
        return self._head(tf.concat([tf.reduce_sum(inputs.embedding, 1) * self._power, inputs.dense], axis=1))
"""
MODEL = {"kind": "my_network:Sum", "embedding_dim": 4, "params": {"power": 2.0}}


def test_it_is_trained_exported_and_published_and_trained_again_when_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config, work = tiny_line(tmp_path, model=MODEL, train={"batch_size": 64, "epochs": 20}), tmp_path / "work"
    absent = rankmill("run", config)
    assert absent.code == 2
    assert not work.exists()  # it stops before the work starts
    assert "model.kind: my_network cannot be imported: ModuleNotFoundError" in absent.err
    source = tmp_path / "my_network.py"
    source.write_text(NETWORK, encoding="utf-8")
    done = rankmill("run", config)
    assert (done.code, done.err) == (0, "")
    (path,) = (work / "runs").glob("*/metrics.json")
    assert json.loads(path.read_text())["test"]["auc"] > 0.6  # the log's rule gives 0.75
    assert rankmill("run", config).out.count("done before") == 5
    source.write_text(NETWORK + "\n# edited\n", encoding="utf-8")
    again = rankmill("run", config)
    assert (again.code, again.out.count("done before")) == (0, 2)
    assert versions(work / "store" / "ranker") == [1, 2]

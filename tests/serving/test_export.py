"""Exports: all signatures agree, the graph holds inference alone, tables in parts and in float16 give the same."""

from __future__ import annotations

import collections
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.core.protobuf import saved_model_pb2

from models.build import build_model
from models.checkpoint import load_checkpoint
from models.config import ModelSpec, OptimizersSpec
from preprocessing.dataset import TRANSFORM_FOLDER, Dataset
from preprocessing.errors import ArtefactError
from preprocessing.raw_values import raw_tensors
from preprocessing.transform import load_transform
from serving.export import export_model, inference_model
from serving.export_spec import ExportOptions
from serving.packed import PackedLayout
from serving.server.servable import Servable
from serving.signatures import packed_layout
from tests.serving.exported import ranked, some_rows, write_checkpoint, write_dataset

SPEC = ModelSpec(kind="deepfm", embedding_dim=4, hidden_units=(8, 4), batch_norm=True, jit_compile=False)
NEEDED = {"serving_default", "serving_examples", "packed", "rank"}

Setting = tuple[Dataset, Path, Path]


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """Returns a dataset, a checkpoint and the export of it, with tables cut into parts of a few rows."""
    folder = tmp_path_factory.mktemp("export")
    dataset = write_dataset(folder, some_rows(60))
    checkpoint = write_checkpoint(folder / "checkpoint", dataset, SPEC)
    options = ExportOptions(rank=ranked().rank, shard_bytes=20 * 4 * 4)
    export_model(dataset, checkpoint, model=SPEC, folder=folder / "model", options=options)
    return dataset, checkpoint, folder / "model"


def raw(dataset: Dataset, count: int = 20) -> dict[str, NDArray[Any]]:
    return raw_tensors(some_rows(count, seed=11), dataset.schema.raw_columns)


def trained_scores(setting: Setting) -> NDArray[np.float32]:
    """Returns the scores of the model as training has it."""
    dataset, checkpoint, _ = setting
    model = build_model(dataset.schema, SPEC, optimizers=OptimizersSpec(), seed=0)
    load_checkpoint(checkpoint, model)
    transform = load_transform(dataset.folder / TRANSFORM_FOLDER)
    inputs = transform({name: tf.constant(values) for name, values in raw(dataset).items()})
    scores: NDArray[np.float32] = tf.sigmoid(model.logits(inputs)).numpy()[:, 0]
    return scores


def test_every_signature_gives_the_scores_of_the_trained_model(setting: Setting) -> None:
    dataset, _, folder = setting
    servable = Servable.load(folder)
    expected, arrays = trained_scores(setting), raw(dataset)
    packed = packed_layout(dataset.schema.raw_columns).pack(arrays)
    assert np.ptp(expected) > 0.05
    np.testing.assert_allclose(servable.run("serving_default", arrays)["click"], expected, atol=1e-6)
    np.testing.assert_allclose(servable.run("packed", packed)["click"], expected, atol=1e-6)


def test_tables_are_cut_into_variables_of_the_size_asked_for(setting: Setting) -> None:
    variables = tf.train.list_variables(str(setting[2] / "variables" / "variables"))
    rows = collections.Counter(shape[0] for _, shape in variables if len(shape) == 2 and shape[1] in (1, 4))
    assert rows[20] >= 6  # parts of 20 rows, of two groups
    total = sum(table.num_rows for table in setting[0].schema.tables) + 1
    assert sum(shape[0] for _, shape in variables if len(shape) == 2 and shape[1] == 1 and shape[0] <= 20) >= total


def test_the_graph_holds_inference_alone(setting: Setting) -> None:
    proto = saved_model_pb2.SavedModel.FromString((setting[2] / "saved_model.pb").read_bytes())
    (graph,) = proto.meta_graphs
    assert set(graph.signature_def) == NEEDED | {"__saved_model_init_op"}
    functions = graph.graph_def.library.function
    nodes = [*graph.graph_def.node, *(node for function in functions for node in function.node_def)]
    compiled = [node.name for node in nodes if node.attr["_XlaMustCompile"].b]
    compiled += [function.signature.name for function in functions if function.attr["_XlaMustCompile"].b]
    assert compiled == []
    assert not [function.signature.name for function in functions if "grad" in function.signature.name]
    assert not [node.name for node in nodes if "_gradient_op_type" in node.attr]
    ops = collections.Counter(node.op for node in nodes)
    training = ("Apply", "Gradient", "Random", "Scatter", "AssignAdd", "AssignSub", "Collective")
    assert not [op for op in ops if any(part in op for part in training)]
    assert ops["SaveV2"] <= 1


def test_the_file_of_packed_columns_says_what_the_signature_takes(setting: Setting) -> None:
    dataset, _, folder = setting
    described = json.loads((folder / "assets.extra" / "rankmill_packed.json").read_text())
    layout: PackedLayout = packed_layout(dataset.schema.raw_columns)
    shapes = Servable.load(folder).signature("packed").input_shapes
    assert {name: matrix["width"] for name, matrix in described["inputs"].items()} == {
        name: (shape or ())[1] for name, shape in shapes.items()
    }
    assert described["inputs"]["strings"]["columns"][0] == {"name": "category", "start": 0, "length": None}
    assert described == json.loads(json.dumps(layout.described()))


def test_float16_tables_halve_and_scores_stay_near(setting: Setting, tmp_path: Path) -> None:
    dataset, checkpoint, _ = setting
    sizes = {
        tables: export_model(
            dataset, checkpoint, model=SPEC, folder=tmp_path / tables, options=ExportOptions(tables=tables)
        )
        for tables in ("float32", "float16")
    }
    assert sizes["float16"] * 2 == sizes["float32"]
    found = Servable.load(tmp_path / "float16").run("serving_default", raw(dataset))["click"]
    expected = trained_scores(setting)
    assert 0 < np.abs(found - expected).max() < 5e-3
    transform = load_transform(dataset.folder / TRANSFORM_FOLDER)
    model = inference_model(dataset, checkpoint, model=SPEC, options=ExportOptions(tables="float16"))
    inputs = transform({name: tf.constant(values) for name, values in raw(dataset).items()})
    np.testing.assert_allclose(found, tf.sigmoid(model.logits(inputs)).numpy()[:, 0], atol=1e-6)


def test_a_weight_beyond_float16_is_refused_by_its_table(setting: Setting) -> None:
    dataset, checkpoint, _ = setting
    model = inference_model(dataset, checkpoint, model=SPEC, options=ExportOptions(tables="float16"))
    with pytest.raises(ArtefactError, match=r"'user'.*float32"):
        model.tables.write("user", "embedding", array="weights", ids=range(1), values=np.full((1, 4), 1e5, np.float32))


def test_rows_read_back_across_parts(setting: Setting) -> None:
    dataset, checkpoint, _ = setting
    whole = inference_model(dataset, checkpoint, model=SPEC)
    cut = inference_model(dataset, checkpoint, model=SPEC, options=ExportOptions(shard_bytes=1))
    ids = range(0, 20, 3)
    for group in ("embedding", "first_order"):
        expected = whole.tables.read("user", group, array="weights", ids=ids)
        assert np.abs(expected).min() > 0
        np.testing.assert_array_equal(cut.tables.read("user", group, array="weights", ids=ids), expected)

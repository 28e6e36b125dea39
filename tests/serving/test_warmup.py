"""Warm-up records: what there are, that a server's loader runs them, and what happens when one fails."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from models.config import ModelSpec
from preprocessing.dataset import Dataset
from preprocessing.errors import ArtefactError, ServingError
from serving.export import export_model
from serving.warmup import sample_rows, verify_warmup, write_warmup
from tests.serving.exported import ranked, some_rows, write_checkpoint, write_dataset

SPEC = ModelSpec(kind="deepfm", embedding_dim=2, hidden_units=(4,))
FILE = Path("assets.extra") / "tf_serving_warmup_requests"

Exported = tuple[Dataset, Path]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    folder = tmp_path_factory.mktemp("warmup")
    dataset = write_dataset(folder, some_rows(5))
    checkpoint = write_checkpoint(folder / "checkpoint", dataset, SPEC)
    export_model(dataset, checkpoint, model=SPEC, folder=folder / "model", options=ranked())
    return dataset, folder / "model"


def logs(folder: Path) -> list[prediction_log_pb2.PredictionLog]:
    records = tf.data.TFRecordDataset(str(folder / FILE)).as_numpy_iterator()
    return [prediction_log_pb2.PredictionLog.FromString(record) for record in records]


def test_each_signature_has_a_record_at_each_batch_size(exported: Exported) -> None:
    dataset, folder = exported
    assert write_warmup(folder, dataset, batch_sizes=(1, 8)) == 8
    found = []
    for log in logs(folder):
        if log.HasField("predict_log"):
            request = log.predict_log.request
            sizes = {name: [dim.size for dim in tensor.tensor_shape.dim] for name, tensor in request.inputs.items()}
            signature = request.model_spec.signature_name
            found.append((signature, *(sizes["strings"][:1] if signature == "packed" else sizes["item"])))
        else:
            examples = log.regress_log.request.input.example_list.examples
            found.append((log.regress_log.request.model_spec.signature_name, len(examples)))
    assert found == [
        ("serving_default", 1),
        ("packed", 1),
        ("rank", 1, 1),
        ("serving_examples", 1),
        ("serving_default", 8),
        ("packed", 8),
        ("rank", 1, 8),
        ("serving_examples", 8),
    ]


def test_rows_are_real_and_repeated_where_there_are_too_few(exported: Exported) -> None:
    dataset, _ = exported
    rows = sample_rows(dataset, num_rows=12)
    written = pq.read_table(dataset.folder / "valid.parquet")
    users = written["user"].to_pylist()
    assert rows["user"].to_pylist() == (users * 3)[:12]


def test_a_failing_record_fails_the_export_and_says_which(exported: Exported, tmp_path: Path) -> None:
    dataset, folder = exported
    shutil.copytree(folder, tmp_path / "model")
    write_warmup(tmp_path / "model", dataset, batch_sizes=(2,))
    broken = logs(tmp_path / "model")
    broken[0].predict_log.request.inputs.pop("item")
    with tf.io.TFRecordWriter(str(tmp_path / "model" / FILE)) as writer:
        for log in broken:
            writer.write(log.SerializeToString())
    with pytest.raises(ServingError, match=r"warm-up of .* fails .*item"):
        verify_warmup(tmp_path / "model")


def test_a_model_that_takes_other_inputs_is_refused_with_signature_and_size(exported: Exported) -> None:
    dataset, folder = exported
    fewer = dataset.schema.model_copy(update={"raw_columns": dataset.schema.raw_columns[1:]})
    with pytest.raises(ServingError, match="signature serving_default, 3 rows"):
        write_warmup(folder, Dataset(dataset.folder, fewer, dataset.splits), batch_sizes=(3,))


def test_more_records_than_a_server_takes_are_refused(exported: Exported) -> None:
    dataset, folder = exported
    with pytest.raises(ServingError, match=r"1004 warm-up records, and a server takes 1000"):
        write_warmup(folder, dataset, batch_sizes=tuple(range(1, 252)))


def test_no_batch_sizes_write_nothing(exported: Exported, tmp_path: Path) -> None:
    dataset, _ = exported
    assert write_warmup(tmp_path, dataset, batch_sizes=()) == 0
    assert not any(tmp_path.iterdir())


def test_a_dataset_without_rows_says_what_to_do(exported: Exported) -> None:
    dataset, _ = exported
    with pytest.raises(ArtefactError, match="batch_sizes"):
        sample_rows(Dataset(dataset.folder, dataset.schema, {}), num_rows=1)

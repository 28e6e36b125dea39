"""Warm-up files: what is run, and what makes a load fail."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from serving.server.flags import parse
from serving.server.load import Loader
from serving.server.metrics import Metrics
from serving.server.predict import REGRESS
from serving.server.status import Code, StatusError
from serving.server.tensors import to_proto
from serving.server.warmup import WARMUP_FILE


@pytest.fixture
def version(example_model: Any, tmp_path: Any) -> Any:
    """A version folder of its own, so that it can get a warm-up file."""
    for item in example_model.iterdir():
        (tmp_path / "7").mkdir(exist_ok=True)
        if item.name != "assets.extra":
            (tmp_path / "7" / item.name).symlink_to(item)
    (tmp_path / "7" / WARMUP_FILE).parent.mkdir()
    return tmp_path / "7"


def _predict(signature: Any = "", **inputs: Any) -> Any:
    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.model_spec.signature_name = signature
    for name, array in inputs.items():
        log.predict_log.request.inputs[name].CopyFrom(to_proto(array))
    return log


_GOOD = _predict(x=np.zeros(2, np.float32))


def _every_kind() -> Any:
    logs = [_GOOD, *(prediction_log_pb2.PredictionLog() for _ in range(3))]
    for request, signature in ((logs[1].classify_log.request, "classify"), (logs[2].regress_log.request, "regress")):
        request.model_spec.name, request.model_spec.signature_name = "another name", signature
        request.model_spec.version.value = 99
        request.input.example_list.examples.add()
    request = logs[3].multi_inference_log.request
    task = request.tasks.add(method_name=REGRESS)
    task.model_spec.name, task.model_spec.signature_name = "m", "regress"
    request.input.example_list.examples.add()
    return logs


def _write(version: Any, records: Any) -> None:
    with tf.io.TFRecordWriter(str(version / WARMUP_FILE)) as writer:
        for record in records:
            writer.write(record if isinstance(record, bytes) else record.SerializeToString())


def _load(version: Any, *arguments: Any) -> Any:
    metrics = Metrics()
    loader = Loader(parse(["--model_base_path=/m", *arguments])[0], metrics)
    try:
        loader.load("m", 7, version).close()
    finally:
        loader.close()
    return metrics


def _read(metrics: Any) -> Any:
    return metrics.total("/tensorflow/serving/model_warmup_records_read")


def _fails(version: Any, *arguments: Any) -> Any:
    with pytest.raises(StatusError) as caught:
        _load(version, *arguments)
    return caught.value.code


def test_no_file_or_the_flag_off_runs_nothing(version: Any) -> None:
    assert _read(_load(version)) == 0
    _write(version, [b"\xff"])
    assert _read(_load(version, "--enable_model_warmup=false")) == 0


def test_runs_all_kinds_of_records_and_skips_one_without_a_kind(version: Any) -> None:
    _write(version, [*_every_kind(), prediction_log_pb2.PredictionLog()])
    metrics = _load(version)
    assert _read(metrics) == 5
    labels = f'{{model_path="{version}",status="OK"}}'
    assert f":tensorflow:serving:model_warmup_records_read{labels} 5" in metrics.prometheus()
    assert f":tensorflow:serving:model_warmup_latency_count{labels} 1" in metrics.prometheus()
    loads = f':tensorflow:cc:saved_model:load_attempt_count{{model_path="{version}",status="success"}} 1'
    assert loads in metrics.prometheus()


def test_runs_each_record_as_often_as_told_through_the_batches(version: Any) -> None:
    _write(version, [_GOOD] * 2)
    metrics = _load(version, "--num_request_iterations_for_warmup=3", "--enable_batching")
    assert metrics.total("/tensorflow/serving/batching_session/wrapped_run_count") == 6


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (_predict(x=np.zeros(2, np.int64)), Code.INVALID_ARGUMENT),
        (_predict(y=np.zeros(2, np.float32)), Code.INVALID_ARGUMENT),
        (_predict("none", x=np.zeros(2, np.float32)), Code.FAILED_PRECONDITION),
        (b"\xff\xff", Code.INVALID_ARGUMENT),
        (prediction_log_pb2.PredictionLog(session_run_log={}), Code.UNIMPLEMENTED),
        (prediction_log_pb2.PredictionLog(predict_streamed_log={}), Code.UNIMPLEMENTED),
    ],
)
def test_one_bad_record_fails_the_load(version: Any, record: Any, code: Any) -> None:
    _write(version, [_GOOD, record])
    assert _fails(version) is code


def test_a_file_that_is_no_tfrecord_is_data_loss(version: Any) -> None:
    (version / WARMUP_FILE).write_bytes(b"some text that is not a TFRecord at all")
    assert _fails(version) is Code.DATA_LOSS


def test_a_thousand_records_are_run_and_one_more_fails_the_load_after_them(version: Any) -> None:
    _write(version, [_GOOD] * 1000)
    assert _read(_load(version)) == 1000
    _write(version, [_GOOD] * 1001)
    assert _fails(version) is Code.INVALID_ARGUMENT

"""The embedded server as a process: both surfaces, hot swaps, failures at start, and the clients."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
)

from preprocessing.errors import ServingError
from serving.client import connect
from serving.launch import ServeOptions, serve_command, start, wait_until_available
from serving.server.status import Code, StatusError
from serving.server.tensors import from_proto, to_proto
from serving.version_store import publish

pytestmark = pytest.mark.serving
_START_S = 120


class _Running:
    def __init__(self, server: Any, port: Any, rest_port: Any) -> None:
        self.server, self.port, self.rest_port = server, port, rest_port
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.predictions = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(self.channel)

    def url(self, path: Any) -> Any:
        return f"http://127.0.0.1:{self.rest_port}{path}"


@contextlib.contextmanager
def _serve(
    name: Any, base_path: Any, tmp_path: Any, free_port: Any, *, model_config_file: Any = None, **flags: Any
) -> Any:
    port, rest_port = free_port(), free_port()
    flags = {"load_retry_interval_micros": 100_000, "max_num_load_retries": 1, **flags}
    options = ServeOptions(name, base_path, model_config_file, port=port, rest_api_port=rest_port, flags=flags)
    server = start(serve_command(options, backend="embedded"), log_path=tmp_path / "server.log")
    try:
        wait_until_available("127.0.0.1", rest_port, model_name=name, timeout_s=_START_S, server=server)
        yield _Running(server, port, rest_port)
    finally:
        server.stop()


@pytest.fixture(scope="module")
def shop(mixed_model: Any, tmp_path_factory: Any) -> Any:
    """A server of the mixed model as "shop", version 7."""
    root = tmp_path_factory.mktemp("shop")
    shutil.copytree(mixed_model, root / "store" / "7")

    def free_port() -> Any:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    with _serve("shop", root / "store", root, free_port) as running:
        yield running


def _request(name: Any = "shop", version: Any = None, signature: Any = "", **inputs: Any) -> Any:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = name
    request.model_spec.signature_name = signature
    if version is not None:
        request.model_spec.version.value = version
    for key, array in inputs.items():
        request.inputs[key].CopyFrom(to_proto(array))
    return request


_INPUTS = {
    "user": np.array([b"a"], object),
    "count": np.array([1], np.int64),
    "price": np.array([0.5], np.float32),
    "tags": np.array([[b"t", b"\x00", b"\x00"]], object),
}


def _status(call: Any, request: Any) -> Any:
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=20)
    return caught.value.code().name, caught.value.details()


def test_grpc_predict_answers_in_typed_fields_with_the_resolved_spec(shop: Any) -> None:
    response = shop.predictions.Predict(_request(**_INPUTS), timeout=20)
    spec = response.model_spec
    assert (spec.name, spec.signature_name, spec.version.value) == ("shop", "serving_default", 7)
    assert list(response.outputs["score"].float_val) == [102.5]
    assert list(response.outputs["echo"].string_val) == [b"a"]
    filtered = _request(**_INPUTS)
    filtered.output_filter.append("score")
    assert list(shop.predictions.Predict(filtered, timeout=20).outputs) == ["score"]


def test_grpc_metadata_and_status(shop: Any) -> None:
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "shop"
    response = shop.predictions.GetModelMetadata(request, timeout=20)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert set(signatures.signature_def) == {"serving_default", "__saved_model_init_op"}
    assert response.model_spec.version.value == 7
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "shop"
    (found,) = shop.models.GetModelStatus(request, timeout=20).model_version_status
    assert (found.version, found.state, found.status.error_code) == (7, 30, 0)


def test_grpc_mistakes_give_the_statuses_of_tf_serving(shop: Any) -> None:
    predict, metadata = shop.predictions.Predict, shop.predictions.GetModelMetadata
    no_spec = predict_pb2.PredictRequest()
    assert _status(predict, no_spec) == ("INVALID_ARGUMENT", "Missing ModelSpec")
    assert _status(predict, _request(name=""))[0] == "INVALID_ARGUMENT"
    assert _status(predict, _request(name="no")) == ("NOT_FOUND", "Servable not found for request: Latest(no)")
    missing_version = ("NOT_FOUND", "Servable not found for request: Specific(shop, 8)")
    assert _status(predict, _request(version=8)) == missing_version
    labelled = _request()
    labelled.model_spec.version_label = "canary"
    assert _status(predict, labelled) == ("INVALID_ARGUMENT", "Unrecognized servable version label: canary")
    no_signature = ("FAILED_PRECONDITION", 'Serving signature key "no" not found.')
    assert _status(predict, _request(signature="no", **_INPUTS)) == no_signature
    code, text = _status(predict, _request(user=_INPUTS["user"]))
    assert code == "INVALID_ARGUMENT"
    assert text.startswith("input size does not match signature: 1!=4")
    code, text = _status(predict, _request(**{**_INPUTS, "price": np.array([1], np.int64)}))
    assert code == "INVALID_ARGUMENT"
    assert "Type mismatch: actual int64 vs. expect float" in text
    undecodable = _request(**_INPUTS)
    undecodable.inputs["price"].tensor_content = b"123"
    assert _status(predict, undecodable) == ("INVALID_ARGUMENT", "tensor parsing error: price")
    code, text = _status(predict, _request(name="x" * 3000))
    assert len(text) == 1024
    assert text.endswith("...TRUNCATED")
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = "shop"
    assert _status(metadata, request)[0] == "INVALID_ARGUMENT"
    request.metadata_field.append("graph")
    assert _status(metadata, request)[0] == "INVALID_ARGUMENT"
    status = get_model_status_pb2.GetModelStatusRequest()
    assert _status(shop.models.GetModelStatus, status)[0] == "INVALID_ARGUMENT"
    status.model_spec.name = "no"
    assert _status(shop.models.GetModelStatus, status)[0] == "NOT_FOUND"


def test_a_method_that_does_not_exist_is_unimplemented(shop: Any) -> None:
    call = shop.channel.unary_unary(
        "/tensorflow.serving.SessionService/SessionRun", request_serializer=bytes, response_deserializer=bytes
    )
    assert _status(call, b"")[0] == "UNIMPLEMENTED"


def test_rest_and_grpc_agree(shop: Any) -> None:
    row = {"user": "a", "count": 1, "price": 0.5, "tags": ["t", "\u0000", "\u0000"]}
    answer = httpx.post(shop.url("/v1/models/shop:predict"), content=json.dumps({"instances": [row]}))
    assert answer.json()["predictions"][0]["score"] == 102.5
    assert httpx.get(shop.url("/v1/models/shop")).json()["model_version_status"][0]["version"] == "7"
    assert httpx.get(shop.url("/v1/models/shop/metadata")).status_code == 200


@pytest.mark.parametrize("api", ["grpc", "rest"])
def test_clients_send_rows_and_get_outputs(shop: Any, api: Any) -> None:
    target = f"127.0.0.1:{shop.port if api == 'grpc' else shop.rest_port}"
    rows = [{"user": "a", "count": 1, "price": 0.5, "tags": ["t"]}, {"user": "\x00é", "count": 2, "price": 1}]
    with connect(target, api=api, timeout_s=20) as client:
        outputs = client.predict("shop", rows, version=7)
        assert outputs["score"].tolist() == [102.5, 3.0]
        assert outputs["score"].dtype == np.float32
        assert outputs["echo"].tolist() == outputs["user_bytes"].tolist() == [b"a", "\x00é".encode()]
        # A number that is missing goes out as NaN and comes back so.
        assert np.isnan(client.predict("shop", [{"user": "a"}])["score"]).all()
        assert [(found.version, found.state) for found in client.versions("shop")] == [(7, "AVAILABLE")]
        with pytest.raises(ServingError, match="nearest column: 'price'"):
            client.predict("shop", [{"prize": 1}])
        assert client.predict("shop", [{"junk": 1, "user": "b"}], ignore_unknown=True)["echo"].tolist() == [b"b"]
        refusals: list[tuple[dict[str, Any], Code]] = [
            ({"model_name": "no"}, Code.NOT_FOUND),
            ({"model_name": "shop", "version": 9}, Code.NOT_FOUND),
            ({"model_name": "shop", "signature": "no"}, Code.FAILED_PRECONDITION),
        ]
        for arguments, code in refusals:
            with pytest.raises(StatusError) as caught:
                client.predict(rows=rows, **arguments)
            assert caught.value.code is code


@pytest.mark.parametrize("api", ["grpc", "rest"])
def test_a_client_without_a_server_says_so_in_time(free_port: Any, api: Any) -> None:
    with connect(f"127.0.0.1:{free_port()}", api=api, timeout_s=2) as client, pytest.raises(StatusError) as caught:
        client.predict("shop", [{}])
    assert caught.value.code in {Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED}


def test_unimplemented_kinds_of_request_do_not_hurt_the_server(shop: Any) -> None:
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "shop"
    code, _ = _status(shop.predictions.Classify, request)
    assert code in {"UNIMPLEMENTED", "INVALID_ARGUMENT"}
    assert shop.predictions.Predict(_request(**_INPUTS), timeout=20).outputs["score"].float_val[0] == 102.5


def test_versions_are_swapped_under_load_without_a_failed_request(
    half_plus: Any, tmp_path: Any, free_port: Any
) -> None:
    store = tmp_path / "store"
    publish(store, half_plus(1), metadata={})
    answers, errors, done = [], [], threading.Event()

    def ask(running: Any) -> None:
        request = _request("half", x=np.array([0], np.float32))
        while not done.is_set():
            try:
                response = running.predictions.Predict(request, timeout=20)
                answers.append((response.model_spec.version.value, from_proto(response.outputs["y"])[0]))
            except grpc.RpcError as error:
                errors.append(error)

    with _serve("half", store, tmp_path, free_port) as running:
        askers = [threading.Thread(target=ask, args=(running,)) for _ in range(3)]
        for asker in askers:
            asker.start()
        for number in range(2, 7):
            assert publish(store, half_plus(1 + number % 2), metadata={}) == number
            _wait_for_version(running, number)
        done.set()
        for asker in askers:
            asker.join()
        states = {
            found["version"]: found["state"]
            for found in httpx.get(running.url("/v1/models/half")).json()["model_version_status"]
        }
    assert errors == []
    assert {version for version, _ in answers} == set(range(1, 7))
    # What a version computes is k = 1 + number mod 2, except for the first, which is 1.
    assert all(value == (1 if version == 1 else 1 + version % 2) for version, value in answers)
    assert states["6"] == "AVAILABLE"


def _wait_for_version(running: Any, number: Any, timeout_s: Any = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        response = running.predictions.Predict(_request("half", x=np.zeros(1, np.float32)), timeout=20)
        if response.model_spec.version.value == number:
            return
        time.sleep(0.05)
    raise TimeoutError(f"version {number} did not come")


def test_a_corrupt_newest_version_keeps_the_old_one_and_the_log_says_why(
    half_plus: Any, tmp_path: Any, free_port: Any
) -> None:
    store = tmp_path / "store"
    publish(store, half_plus(1), metadata={})
    with _serve("half", store, tmp_path, free_port) as running:
        (store / ".tmp-broken").mkdir()
        (store / ".tmp-broken" / "saved_model.pb").write_bytes(b"garbage")
        (store / ".tmp-broken").rename(store / "2")
        shutil.copytree(half_plus(2), store / ".tmp-half")
        (store / ".tmp-half" / "variables" / "variables.data-00000-of-00001").unlink()
        (store / ".tmp-half").rename(store / "3")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            versions = httpx.get(running.url("/v1/models/half")).json()["model_version_status"]
            if versions[0]["version"] == "3" and versions[0]["state"] == "END":
                break
            time.sleep(0.1)
        assert versions[0]["status"]["error_code"] != "OK"
        response = running.predictions.Predict(_request("half", x=np.zeros(1, np.float32)), timeout=20)
        assert response.model_spec.version.value == 1
        assert "version 3: load attempt 2 failed" in running.server.log_path.read_text()
        publish(store, half_plus(2), metadata={})
        _wait_for_version(running, 4)


def test_ends_cleanly_on_a_signal_and_frees_its_ports(half_plus: Any, tmp_path: Any, free_port: Any) -> None:
    store = tmp_path / "store"
    publish(store, half_plus(1), metadata={})
    with _serve("half", store, tmp_path, free_port) as running:
        running.server.process.send_signal(signal.SIGINT)
        assert running.server.process.wait(30) == 0
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", running.port)) != 0


def test_a_config_file_is_followed_while_batches_warm_up_health_and_metrics_are_on(
    half_plus: Any, tmp_path: Any, free_port: Any
) -> None:
    for name, version in (("a", 1), ("a", 2), ("b", 5)):
        shutil.copytree(half_plus(version), tmp_path / name / str(version))
    record = prediction_log_pb2.PredictionLog()
    record.predict_log.request.CopyFrom(_request("any", x=np.zeros(1, np.float32)))
    (tmp_path / "a" / "2" / "assets.extra").mkdir()
    with tf.io.TFRecordWriter(str(tmp_path / "a" / "2" / "assets.extra" / "tf_serving_warmup_requests")) as writer:
        writer.write(record.SerializeToString())
    config, batching, monitoring = (tmp_path / name for name in ("models.config", "batching.config", "mon.config"))
    batching.write_text("max_batch_size { value: 4 }")
    monitoring.write_text("prometheus_config { enable: true }")

    def write(*models: Any) -> None:
        text = "".join(
            f'config {{ name: "{name}" base_path: "{tmp_path / name}" model_platform: "tensorflow" {more} }}'
            for name, more in models
        )
        (tmp_path / "new").write_text(f"model_config_list {{ {text} }}")
        (tmp_path / "new").rename(config)

    write(("a", "model_version_policy { all {} }"))
    flags = {
        "model_config_file_poll_wait_seconds": 1,
        "enable_batching": True,
        "batching_parameters_file": batching,
        "monitoring_config_file": monitoring,
        "enable_grpc_healthcheck_service": True,
    }
    with _serve("a", tmp_path / "a", tmp_path, free_port, model_config_file=config, **flags) as running:
        labelled = _request("a", x=np.zeros(1, np.float32))
        labelled.model_spec.version_label = "stable"
        assert _status(running.predictions.Predict, labelled)[0] == "INVALID_ARGUMENT"
        write(("a", 'model_version_policy { all {} } version_labels { key: "stable" value: 1 }'), ("b", ""))
        answer = _eventually(lambda: running.predictions.Predict(labelled, timeout=20))
        assert list(answer.outputs["y"].float_val) == [1.0]
        request = _request("b", x=np.zeros(4, np.float32))
        answer = _eventually(lambda: running.predictions.Predict(request, timeout=20))
        assert list(answer.outputs["y"].float_val) == [5.0] * 4
        large = _request("b", x=np.zeros(5, np.float32))
        too_large = ("INVALID_ARGUMENT", "Task size 5 is larger than maximum input batch size 4")
        assert _status(running.predictions.Predict, large) == too_large
        reload = model_management_pb2.ReloadConfigRequest()
        reload.config.model_config_list.config.add(name="b", base_path="b", model_platform="tensorflow")
        assert _status(running.models.HandleReloadConfigRequest, reload)[0] == "INVALID_ARGUMENT"
        page = httpx.get(running.url("/monitoring/prometheus/metrics")).text
        assert f'model_warmup_records_read{{model_path="{tmp_path / "a" / "2"}",status="OK"}} 1' in page
        assert ":tensorflow:serving:batching_session:wrapped_run_count{} " in page
        check = running.channel.unary_unary(
            "/grpc.health.v1.Health/Check", request_serializer=bytes, response_deserializer=bytes
        )
        assert check(b"", timeout=20) == b"\x08\x01"


def _eventually(call: Any, timeout_s: Any = 60) -> Any:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return call()
        except grpc.RpcError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _run(*flags: Any, timeout_s: Any = 120) -> Any:
    command = [sys.executable, "-m", "serving.server", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=os.environ, check=False)


def test_exits_with_255_when_the_only_version_does_not_load(tmp_path: Any, free_port: Any) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    result = _run(f"--model_base_path={tmp_path / 'm'}", f"--port={free_port()}", "--load_retry_interval_micros=-1")
    assert result.returncode == 255
    assert "Failed to start server. Error: " in result.stderr


def test_prints_usage_or_version_and_refuses_what_cannot_be(tmp_path: Any) -> None:
    helped = _run("--help")
    assert (helped.returncode, "--rest_api_port=0" in helped.stdout) == (255, True)
    assert _run("--port=x").returncode == 255
    assert _run("--model_base_path=/m", "--use_alts_credentials").returncode == 255
    versions = _run("--version")
    assert (versions.returncode, versions.stdout.startswith("TensorFlow ModelServer: ")) == (0, True)
    (tmp_path / "c").write_text("nonsense")
    result = _run(f"--model_config_file={tmp_path / 'c'}")
    assert result.returncode == 255
    assert "Error parsing text-format tensorflow.serving.ModelServerConfig" in result.stderr

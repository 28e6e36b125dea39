"""The gRPC surface on a real loopback port of this process: codes, deadlines, health, TLS."""

import contextlib
import datetime
import subprocess
import sys
import time
from typing import Any

import grpc
import numpy as np
import pytest
from tensorflow_serving.apis import (
    inference_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from preprocessing.errors import ConfigError
from serving.server.config_protos import HealthCheckRequest, HealthCheckResponse, ProfileRequest, ProfileResponse
from serving.server.discovery import ModelConfig
from serving.server.flags import parse
from serving.server.grpc_service import build_grpc_server
from serving.server.handlers import Handlers
from serving.server.metrics import Metrics
from serving.server.model_manager import LoadOptions, ModelManager
from serving.server.predict import REGRESS
from serving.server.servable import Servable
from serving.server.status import StatusError
from serving.server.tensors import to_proto


@pytest.fixture(scope="module")
def metrics() -> Any:
    return Metrics()


@pytest.fixture(scope="module")
def base(example_model: Any, slow_model: Any, tmp_path_factory: Any) -> Any:
    base = tmp_path_factory.mktemp("models")
    for name, model in (("examples", example_model), ("slow", slow_model)):
        (base / name).mkdir()
        (base / name / "3").symlink_to(model)
    return base


@pytest.fixture(scope="module")
def handlers(base: Any, metrics: Any) -> Any:
    manager = ModelManager(lambda _name, _version, path: Servable.load(path), LoadOptions())
    manager.start([ModelConfig("examples", base / "examples"), ModelConfig("slow", base / "slow")])
    yield Handlers(manager, metrics)
    manager.stop()


@contextlib.contextmanager
def _served(handlers: Any, metrics: Any, tmp_path: Any, *arguments: Any) -> Any:
    """Yields the address of a server on a unix socket: no port has to be found."""
    path = tmp_path / "socket"
    flags, _ = parse([f"--grpc_socket_path={path}", "--port=0", *arguments])
    server = build_grpc_server(handlers, flags, metrics)
    server.start()
    try:
        yield f"unix:{path}"
    finally:
        server.stop(0).wait()


@pytest.fixture(scope="module")
def channel(handlers: Any, metrics: Any, tmp_path_factory: Any) -> Any:
    folder = tmp_path_factory.mktemp("grpc")
    with (
        _served(handlers, metrics, folder, "--enable_grpc_healthcheck_service", "--grpc_max_threads=8") as address,
        grpc.insecure_channel(address) as channel,
    ):
        yield channel


def _code(call: Any, *arguments: Any, **options: Any) -> Any:
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **{"timeout": 20, **options})
    return caught.value.code().name


def _predict(model: Any, **inputs: Any) -> Any:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    for name, array in inputs.items():
        request.inputs[name].CopyFrom(to_proto(array))
    return request


def _wait_for_count(metrics: Any, line: Any) -> None:
    deadline = time.monotonic() + 10
    while line not in metrics.prometheus():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{line} did not come")
        time.sleep(0.02)


def test_every_method_of_both_services_is_there(channel: Any) -> None:
    predictions = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    request = regression_pb2.RegressionRequest()
    request.model_spec.name, request.model_spec.signature_name = "examples", "regress"
    request.input.example_list.examples.add()
    assert predictions.Regress(request, timeout=20).result.regressions[0].value == 2.0
    several = inference_pb2.MultiInferenceRequest(input=request.input)
    several.tasks.add(model_spec=request.model_spec, method_name=REGRESS)
    assert len(predictions.MultiInference(several, timeout=20).results) == 1
    several.tasks[0].method_name = "other"
    assert _code(predictions.MultiInference, several) == "UNIMPLEMENTED"
    assert _code(predictions.Classify, request.__class__()) == "INVALID_ARGUMENT"
    models = model_service_pb2_grpc.ModelServiceStub(channel)
    assert _code(models.HandleReloadConfigRequest, model_management_pb2.ReloadConfigRequest()) == "INVALID_ARGUMENT"


def test_the_clients_deadline_ends_the_run(channel: Any, metrics: Any) -> None:
    predict = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
    assert predict(_predict("slow", n=np.array(50_000)), timeout=20).outputs["y"].int64_val[0] == 50_000
    assert _code(predict, _predict("slow", n=np.array(10**12)), timeout=0.1) == "DEADLINE_EXCEEDED"
    # The server has let go of it too, and counts it.
    _wait_for_count(metrics, 'request_count{model_name="slow",status="DEADLINE_EXCEEDED"} 1')
    assert predict(_predict("slow", n=np.array(1))).outputs["y"].int64_val[0] == 1


def _health(channel: Any, method: Any) -> Any:
    make = channel.unary_unary if method == "Check" else channel.unary_stream
    call = make(
        f"/grpc.health.v1.Health/{method}",
        request_serializer=HealthCheckRequest.SerializeToString,
        response_deserializer=HealthCheckResponse.FromString,
    )
    return lambda service, **options: call(HealthCheckRequest(service=service), **{"timeout": 20, **options})


@pytest.mark.parametrize("service", ["", "ModelService", "PredictionService"])
def test_health_is_serving_for_the_names_of_tf_serving(channel: Any, service: Any) -> None:
    assert _health(channel, "Check")(service).status == 1
    watch = _health(channel, "Watch")(service)
    assert next(watch).status == 1
    watch.cancel()


def test_health_of_other_names_is_unknown(channel: Any) -> None:
    assert _code(_health(channel, "Check"), "tensorflow.serving.PredictionService") == "NOT_FOUND"
    watch = _health(channel, "Watch")("none")
    assert next(watch).status == 3
    watch.cancel()


def test_watchers_cannot_take_all_threads(channel: Any) -> None:
    watches = [_health(channel, "Watch")("") for _ in range(20)]
    outcomes = []
    for watch in watches:
        try:
            outcomes.append(next(watch).status)
        except grpc.RpcError as error:
            outcomes.append(error.code().name)
    assert set(outcomes) == {1, "RESOURCE_EXHAUSTED"}
    assert _health(channel, "Check")("").status == 1
    for watch in watches:
        watch.cancel()


def test_health_is_off_unless_its_flag_is_set(handlers: Any, metrics: Any, tmp_path: Any) -> None:
    with _served(handlers, metrics, tmp_path) as address, grpc.insecure_channel(address) as channel:
        assert _code(_health(channel, "Check"), "") == "UNIMPLEMENTED"


def _certificate(name: Any) -> Any:
    """Returns a private key and a self-signed certificate for `name`, both as PEM texts."""
    pytest.importorskip("cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    pem_key = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem_key.decode(), certificate.public_bytes(encoding).decode()


def _ssl_file(path: Any, **fields: Any) -> Any:
    values = {name: f'"{text}"'.replace("\n", "\\n") for name, text in fields.items() if isinstance(text, str)}
    values |= {name: str(flag).lower() for name, flag in fields.items() if isinstance(flag, bool)}
    path.write_text("\n".join(f"{name}: {value}" for name, value in values.items()))
    return path


def test_tls_by_its_config_file_with_and_without_clients_certificates(
    handlers: Any, metrics: Any, tmp_path: Any
) -> None:
    key, certificate = _certificate("server.test")
    client_key, client_certificate = _certificate("client.test")
    request, name = _predict("examples", x=np.zeros(1, np.float32)), [("grpc.ssl_target_name_override", "server.test")]
    roots = certificate.encode()
    plain = grpc.ssl_channel_credentials(roots)
    known = grpc.ssl_channel_credentials(roots, client_key.encode(), client_certificate.encode())
    for verify, credentials, works in ((False, plain, True), (True, plain, False), (True, known, True)):
        fields = {"custom_ca": client_certificate} if verify else {}
        path = _ssl_file(tmp_path / "ssl", server_key=key, server_cert=certificate, client_verify=verify, **fields)
        with _served(handlers, metrics, tmp_path, f"--ssl_config_file={path}") as address:
            with grpc.secure_channel(address, credentials, options=name) as channel:
                predict = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
                if works:
                    assert list(predict(request, timeout=20).outputs["y"].float_val) == [2.0]
                else:
                    assert _code(predict, request) == "UNAVAILABLE"
            with grpc.insecure_channel(address) as channel:
                predict = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
                assert _code(predict, request, timeout=5) in {"UNAVAILABLE", "DEADLINE_EXCEEDED"}


@pytest.mark.parametrize(
    "fields", [{}, {"server_key": "k"}, {"server_key": "k", "server_cert": "c", "client_verify": True}]
)
def test_a_tls_file_that_lacks_something_is_a_clear_error(
    handlers: Any, metrics: Any, tmp_path: Any, fields: Any
) -> None:
    path = _ssl_file(tmp_path / "ssl", **fields)
    with (
        pytest.raises(ConfigError, match=r"must hold|needs custom_ca"),
        _served(handlers, metrics, tmp_path, f"--ssl_config_file={path}"),
    ):
        pass


def _profile(channel: Any, **fields: Any) -> Any:
    call = channel.unary_unary(
        "/tensorflow.ProfilerService/Profile",
        request_serializer=ProfileRequest.SerializeToString,
        response_deserializer=ProfileResponse.FromString,
    )
    return call(ProfileRequest(**fields), timeout=20)


def test_a_profile_is_recorded_and_sent_or_written_where_the_client_says(channel: Any, tmp_path: Any) -> None:
    names = {"session_id": "now", "host_name": "here"}
    assert not _profile(channel, duration_ms=50, repository_root=str(tmp_path), **names).xspace
    assert (tmp_path / "now" / "here.xplane.pb").stat().st_size > 0
    sent = _profile(channel, duration_ms=50, emit_xspace=True)
    assert (sent.empty_trace, len(sent.xspace) > 0) == (False, True)
    # One after the other: the recorder is free again.
    assert _code(lambda **_: _profile(channel, duration_ms=0, emit_xspace=True)) == "INVALID_ARGUMENT"
    assert _code(lambda **_: _profile(channel, duration_ms=50)) == "INVALID_ARGUMENT"
    for path in ("../up", ".."):
        names["session_id"] = path
        wrong = _code(lambda **_: _profile(channel, duration_ms=50, repository_root=str(tmp_path), **names))
        assert wrong == "INVALID_ARGUMENT"


@pytest.mark.slow
def test_tensorflows_own_client_can_trace_the_server(
    handlers: Any, metrics: Any, tmp_path: Any, free_port: Any
) -> None:
    # The client runs in a process of its own: it holds the interpreter while it waits for the answer.
    port = free_port()
    server = build_grpc_server(handlers, parse([f"--port={port}"])[0], metrics)
    server.start()
    script = (
        "import sys; import tensorflow as tf;"
        "tf.profiler.experimental.client.trace('grpc://' + sys.argv[1], sys.argv[2], 300, num_tracing_attempts=1)"
    )
    command = [sys.executable, "-c", script, f"127.0.0.1:{port}", str(tmp_path)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    finally:
        server.stop(0).wait()
    assert result.returncode == 0, result.stderr
    assert len(list(tmp_path.glob("plugins/profile/*/*.xplane.pb"))) == 1


def test_a_port_is_shared_only_when_told_to(handlers: Any, metrics: Any, free_port: Any) -> None:
    for shared in (False, True):
        flags, _ = parse([f"--port={free_port()}", f"--reuse_port={str(shared).lower()}"])
        first = build_grpc_server(handlers, flags, metrics)
        first.start()
        try:
            if shared:
                build_grpc_server(handlers, flags, metrics).stop(0)
            else:
                with pytest.raises(StatusError, match="cannot listen"):
                    build_grpc_server(handlers, flags, metrics)
        finally:
            first.stop(0).wait()

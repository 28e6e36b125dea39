"""Random and mutated requests against both surfaces in this process: refused for a reason, in flat memory."""

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    predict_pb2,
    regression_pb2,
)

from serving.server.discovery import ModelConfig
from serving.server.flags import parse
from serving.server.grpc_service import _call, _observed
from serving.server.handlers import Handlers
from serving.server.load import Loader
from serving.server.metrics import Metrics
from serving.server.model_manager import LoadOptions, ModelManager
from serving.server.predict import CLASSIFY, REGRESS
from serving.server.rest_api import RestApi
from serving.server.tensors import to_proto
from tests.benchmarks.process_use import rss_bytes

_ROW = {"user": "a", "count": 1, "price": 0.5, "tags": ["t", "\u0000", "\u0000"]}
_BODIES = [
    ("/v1/models/shop:predict", {"instances": [_ROW, _ROW]}),
    ("/v1/models/shop/versions/7:predict", {"inputs": {name: [value] for name, value in _ROW.items()}}),
    ("/v1/models/half:predict", {"instances": [1.0, 2.5, -3e7]}),
    ("/v1/models/half:predict", {"signature_name": "serving_default", "inputs": [1, {"b64": "YQ=="}]}),
    ("/v1/models/examples:classify", {"signature_name": "classify", "examples": [{"x": 1.0, "tag": "a"}]}),
    ("/v1/models/examples:regress", {"signature_name": "regress", "context": {"x": 2.0}, "examples": [{}, {"x": 1}]}),
]
_TOKENS = [
    *(b"null", b"true", b"NaN", b"-Infinity", b"1e999", b"-0", b"99999999999999999999", b"1.5", b'""', b"{}", b"[]"),
    *(b'{"b64": "?"}', b"\xff", b"\\ud800", b"\x00", b'"\\u0000"', b"[[[[", b"]", b"}", b",", b":", b'"inputs"'),
    *(
        b'"instances"',
        b'"examples"',
        b"%00",
        b"%2e%2e",
        b"/",
        b"..",
        b"%ff",
        b"/versions/",
        b"/labels/",
        b"\xe2\x82\xac",
    ),
]


class _Aborted(Exception):
    pass


class _Context:
    """Looks like a ServicerContext."""

    def time_remaining(self) -> None:
        return None

    def abort(self, code: Any, _text: Any) -> None:
        raise _Aborted(code.name)


@pytest.fixture(scope="module")
def served(mixed_model: Path, half_plus: Any, example_model: Path, tmp_path_factory: Any) -> Any:
    """Handlers and metrics of three models, batched, as the server makes them."""
    base, configs = tmp_path_factory.mktemp("models"), []
    for name, model in (("shop", mixed_model), ("half", half_plus(2)), ("examples", example_model)):
        (base / name).mkdir()
        (base / name / "7").symlink_to(model)
        configs.append(ModelConfig(name, base / name))
    metrics = Metrics()
    loader = Loader(parse(["--enable_batching=true"])[0], metrics)
    manager = ModelManager(loader.load, LoadOptions())
    manager.start(configs)
    yield Handlers(manager, metrics), metrics
    manager.stop()
    loader.close()


def _predict_request() -> Any:
    request = predict_pb2.PredictRequest(output_filter=["score", "echo"])
    request.model_spec.name = "shop"
    request.model_spec.version.value = 7
    arrays = {
        "user": np.array([b"a", b"b"], object),
        "count": np.array([1, 2], np.int64),
        "price": np.array([0.5, 1.0], np.float32),
        "tags": np.array([[b"t", b"\x00", b"\x00"]] * 2, object),
    }
    for name, array in arrays.items():
        request.inputs[name].CopyFrom(to_proto(array, as_content=name == "count"))
    return request


def _example_request(kind: Any, signature: str) -> Any:
    request = kind()
    request.model_spec.name = "examples"
    request.model_spec.signature_name = signature
    example = request.input.example_list_with_context.examples.add()
    example.features.feature["x"].float_list.value.append(1.0)
    request.input.example_list_with_context.context.features.feature["tag"].bytes_list.value.append(b"t")
    return request


def _multi_request() -> Any:
    request = inference_pb2.MultiInferenceRequest()
    for method, signature in ((CLASSIFY, "classify"), (REGRESS, "regress")):
        task = request.tasks.add(method_name=method)
        task.model_spec.name, task.model_spec.signature_name = "examples", signature
    request.input.example_list.examples.add().features.feature["x"].float_list.value.append(1.0)
    return request


def _rpcs(handlers: Handlers, metrics: Metrics) -> Any:
    metadata = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    metadata.model_spec.name = "shop"
    status = get_model_status_pb2.GetModelStatusRequest()
    status.model_spec.name = "shop"
    return [
        (_observed("Predict", handlers.predict, metrics), _predict_request()),
        (handlers.classify, _example_request(classification_pb2.ClassificationRequest, "classify")),
        (handlers.regress, _example_request(regression_pb2.RegressionRequest, "regress")),
        (handlers.multi_inference, _multi_request()),
        (lambda request, timeout_s: handlers.model_metadata(request), metadata),
        (lambda request, timeout_s: handlers.model_status(request), status),
    ]


def _mutate(chance: random.Random, body: bytes, others: list[bytes]) -> bytes:
    for _ in range(chance.choice([1, 1, 2, 3, 8])):
        start = chance.randrange(len(body) + 1)
        end = min(len(body), start + chance.choice([0, 1, 1, 2, 8, 40]))
        other = chance.choice(others)
        cut = chance.randrange(len(other) + 1)
        new = chance.choice(
            [b"", bytes([chance.randrange(256)]), chance.choice(_TOKENS), body[start:end] * 3, other[cut : cut + 20]]
        )
        body = body[:start] + new + body[end:]
    return body


def _fuzz_rest(api: RestApi, chance: random.Random, num_cases: int) -> None:
    bodies = [json.dumps(body).encode() for _, body in _BODIES]
    for _ in range(num_cases):
        which = chance.randrange(len(_BODIES))
        body, path = _mutate(chance, bodies[which], bodies), _BODIES[which][0]
        if chance.random() < 0.2:
            path = _mutate(chance, path.encode(), [b"/v1/models/shop/labels/x:predict"]).decode("latin-1")
        answer = api.answer(chance.choice(["POST"] * 8 + ["GET", "PUT"]), path, body)
        assert answer.status in {200, 400, 404}, (path, body, answer)
        assert answer.status == 200 or json.loads(answer.body)["error"]


def _fuzz_rpc(handlers: Handlers, metrics: Metrics, chance: random.Random, num_cases: int) -> set[str]:
    rpcs = _rpcs(handlers, metrics)
    bodies, codes = [request.SerializeToString() for _, request in rpcs], set()
    for _ in range(num_cases):
        which = chance.randrange(len(rpcs))
        body = _mutate(chance, bodies[which], bodies)
        try:
            _call(type(rpcs[which][1]), rpcs[which][0], body, _Context())
            codes.add("OK")
        except _Aborted as aborted:
            code = str(aborted)
            assert code not in {"INTERNAL", "UNKNOWN", "DATA_LOSS"}, (which, body)
            codes.add(code)
    return codes


def _rss() -> int:
    return rss_bytes(os.getpid())


def test_mutated_requests_are_answered_or_refused_for_a_reason(served: Any) -> None:
    handlers, metrics = served
    chance = random.Random(1)
    _fuzz_rest(RestApi(handlers, metrics), chance, 400)
    codes = _fuzz_rpc(handlers, metrics, chance, 400)
    assert codes >= {"OK", "INVALID_ARGUMENT", "NOT_FOUND"}


@pytest.mark.slow
def test_a_hundred_thousand_mutated_requests_leave_the_memory_as_it_was(served: Any) -> None:
    handlers, metrics = served
    api, chance = RestApi(handlers, metrics), random.Random(2)
    _fuzz_rest(api, chance, 10_000)
    _fuzz_rpc(handlers, metrics, chance, 10_000)
    warm = _rss()
    _fuzz_rest(api, chance, 40_000)
    _fuzz_rpc(handlers, metrics, chance, 40_000)
    assert _rss() - warm < 40 * 2**20


@pytest.mark.parametrize("start", ['{"instances": ', '{"inputs": {"x": ', '{"examples": [{"x": ', '{"context": {"x":'])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("verb", ["predict", "classify", "regress"])
def test_a_hundred_thousand_levels_are_refused(served: Any, start: str, opening: str, verb: str) -> None:
    handlers, metrics = served
    for body in (start + opening * 100_000, start + opening * 100_000 + "1" + "]" * 100_000 + "}"):
        assert RestApi(handlers, metrics).answer("POST", f"/v1/models/half:{verb}", body.encode()).status == 400


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "%2e%2e",
        "%2e%2e%2f%2e%2e%2fetc",
        "%00",
        "half%00",
        "%E2%82%AC",
        "h%C3%A4lf",
        "a" * 60_000,
        "%20",
        "half%2F..",
    ],
)
def test_tricks_in_names_labels_and_versions_find_nothing(served: Any, name: str) -> None:
    api = RestApi(*served)
    body = b'{"instances": [1.0]}'
    paths = [f"/v1/models/{name}:predict", f"/v1/models/half/versions/{name}:predict"]
    assert {api.answer("POST", path, body).status for path in paths} <= {400, 404}
    assert api.answer("POST", f"/v1/models/half/labels/{name}:predict", body).status == 400
    assert api.answer("GET", f"/v1/models/{name}", b"").status in {400, 404}
    assert api.answer("GET", f"/v1/models/{name}/metadata", b"").status in {400, 404}


def test_a_name_that_is_not_utf8_is_refused(served: Any) -> None:
    assert RestApi(*served).answer("GET", "/v1/models/%ff%fe", b"").status == 400


def test_names_that_clients_make_up_do_not_fill_the_metrics(served: Any) -> None:
    handlers, metrics = served
    api = RestApi(handlers, metrics)
    for number in range(3000):
        api.answer("GET", f"/v1/models/made-up-{number}", b"")
    api.answer("GET", "/v1/models/" + "x" * 5000, b"")
    page = metrics.prometheus()
    assert page.count("made-up-") <= 1000
    assert 'model_name="(other)",status="NOT_FOUND"' in page
    assert api.answer("GET", "/v1/models/half", b"").status == 200
    assert 'model_name="half",status="OK"' in metrics.prometheus()

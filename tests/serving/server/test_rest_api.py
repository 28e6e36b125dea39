"""The REST API, with and without HTTP around it, on models that are really loaded."""

import contextlib
import gzip
import json
import socket
import time
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.server.discovery import ModelConfig
from serving.server.flags import parse
from serving.server.handlers import Handlers
from serving.server.metrics import Metrics
from serving.server.model_manager import LoadOptions, ModelManager
from serving.server.rest_api import RestApi
from serving.server.rest_app import HttpServer, build_app
from serving.server.servable import Servable
from serving.server.status import StatusError

_ROW = {"user": "a", "count": 1, "price": 0.5, "tags": ["t", "\u0000", "\u0000"]}


@pytest.fixture(scope="module")
def metrics() -> Any:
    return Metrics()


@pytest.fixture(scope="module")
def api(mixed_model: Any, half_plus: Any, tmp_path_factory: Any, metrics: Any) -> Any:
    base = tmp_path_factory.mktemp("models")
    (base / "shop").mkdir()
    (base / "half").mkdir()
    (base / "shop" / "7").symlink_to(mixed_model)
    (base / "half" / "1").symlink_to(half_plus(2))
    manager = ModelManager(lambda _name, _version, path: Servable.load(path), LoadOptions())
    manager.start([ModelConfig("shop", base / "shop"), ModelConfig("half plus/2", base / "half")])
    yield RestApi(Handlers(manager, metrics), metrics)
    manager.stop()


def _post(api: Any, body: Any, path: Any = "/v1/models/shop:predict") -> Any:
    answer = api.answer("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode())
    return answer.status, json.loads(answer.body)


def _half(api: Any, body: Any) -> Any:
    return _post(api, body, "/v1/models/half%20plus%2F2:predict")


def test_row_form_answers_objects_when_there_are_several_outputs(api: Any) -> None:
    status, body = _post(api, {"signature_name": "serving_default", "instances": [_ROW, {**_ROW, "user": "é"}]})
    assert status == 200
    assert body == {
        "predictions": [
            {"echo": "a", "score": 102.5, "user_bytes": {"b64": "YQ=="}},
            {"echo": "é", "score": 2.5, "user_bytes": {"b64": "w6k="}},
        ]
    }


def test_column_form_adds_no_dimension_and_ignores_other_names(api: Any) -> None:
    columns = {name: [value] for name, value in _ROW.items()}
    status, body = _post(api, {"inputs": {**columns, "other": [None]}})
    assert status == 200
    assert body["outputs"]["score"] == [102.5]


def test_a_single_input_takes_bare_values_in_both_forms_and_answers_bare(api: Any) -> None:
    assert _half(api, {"instances": [1, 2.0]}) == (200, {"predictions": [2.5, 3.0]})
    assert _half(api, {"instances": [{"x": 1}, {"x": 2}]}) == (200, {"predictions": [2.5, 3.0]})
    assert _half(api, {"inputs": [1]}) == (200, {"outputs": [2.5]})
    assert _half(api, {"inputs": {"x": 4}}) == (200, {"outputs": 4.0})
    status, _ = _half(api, {"instances": [1, {"x": 2}]})
    assert status == 400


def test_not_a_number_goes_in_and_out_bare(api: Any) -> None:
    answer = api.answer("POST", "/v1/models/half%20plus%2F2:predict", b'{"instances": [NaN, Infinity, -Infinity]}')
    assert answer.body == b'{"predictions": [NaN, Infinity, -Infinity]}'


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "JSON Parse error: The document is empty"),
        (b" \n", "JSON Parse error: The document is empty"),
        (b"{nope", "JSON Parse error:"),
        (b'{"instances": [1', "at offset: "),
        (b"[1]", "must be a JSON object"),
        (b'{"a": ' * 100_000, "nested too deeply"),
        (b'{"instances": ' + b"[" * 500_000 + b"]" * 500_000 + b"}", "nested too deeply"),
        ({}, "exactly one of"),
        ({"instances": [_ROW], "inputs": {}}, "exactly one of"),
        ({"instances": []}, "non-empty list"),
        ({"instances": {}}, "non-empty list"),
        ({"instances": [1]}, "Expecting object"),
        ({"instances": [{}]}, "Missing inputs"),
        ({"instances": [{**_ROW, "extra": 1}]}, "Unexpected inputs: ['extra']"),
        ({"instances": [_ROW, {**_ROW, "tags": ["t"]}]}, "Expecting tensor size"),
        ({"instances": [{**_ROW, "price": "1"}]}, "is not of expected type: float"),
        ({"instances": [{**_ROW, "count": 1.0}]}, "is not of expected type: int64"),
        ({"instances": [{**_ROW, "user": None}]}, "is not of expected type: string"),
        ({"inputs": {"user": ["a"]}}, "Missing named input"),
        ({"inputs": [1]}, "plain value"),
        ({"signature_name": 1, "instances": [_ROW]}, "must be a string"),
        ({"signature_name": "no", "instances": [_ROW]}, 'Serving signature name: "no" not found in signature def'),
        ({"signature_name": "__saved_model_init_op", "inputs": {}}, "no inputs"),
    ],
)
def test_wrong_bodies_are_400_with_a_reason(api: Any, body: Any, text: Any) -> None:
    status, answer = _post(api, body)
    assert status == 400
    assert list(answer) == ["error"]
    assert text in answer["error"]


def test_the_first_of_equal_keys_counts_and_text_after_the_value_is_ignored(api: Any) -> None:
    body = b'{"instances": [1], "instances": "wrong"} and more'
    assert _half(api, body) == (200, {"predictions": [2.5]})


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/v1/models/shop/versions/7:predict", 200, ""),
        ("/V1/MODELS/shop/VERSIONS/7:predict", 200, ""),
        ("/v1/models/shop:Predict", 400, "Malformed request: POST /v1/models/shop:Predict"),
        ("/v1/models/shop:predict?a=1", 400, "Malformed request"),
        ("/v1/models/shop/versions/8:predict", 404, "Servable not found for request: Specific(shop, 8)"),
        ("/v1/models/shop/versions/99999999999999999999:predict", 400, "Failed to convert version"),
        ("/v1/models/shop/versions/-1:predict", 400, "Malformed request"),
        ("/v1/models/shop/labels/canary:predict", 400, "Unrecognized servable version label: canary"),
        ("/v1/models/none:predict", 404, "Servable not found for request: Latest(none)"),
        ("/v1/models:predict", 400, "Missing model name in request"),
        ("/v1/models/%ff:predict", 400, "UTF-8"),
        ("/v1/models/..%2f..%2fetc:predict", 404, "Latest(../../etc)"),
        ("/v1/models/a/b:predict", 400, "Malformed request"),
        ("/v1/models/shop", 400, "Malformed request"),
    ],
)
def test_paths_lead_to_a_version_or_a_clear_error(api: Any, path: Any, status: Any, text: Any) -> None:
    found, body = _post(api, {"instances": [_ROW]}, path)
    assert found == status
    assert text in body.get("error", "")


def _get(api: Any, path: Any, method: Any = "GET") -> Any:
    answer = api.answer(method, path, b"")
    return answer.status, json.loads(answer.body)


def test_status_prints_every_field_as_protobuf_json(api: Any) -> None:
    version = {"version": "7", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    assert _get(api, "/v1/models/shop") == (200, {"model_version_status": [version]})
    assert _get(api, "/v1/models/shop/versions/7") == (200, {"model_version_status": [version]})
    assert _get(api, "/v1/models/shop/labels/any") == (200, {"model_version_status": [version]})
    assert _get(api, "/v1/models/shop/versions/8")[0] == 404
    assert _get(api, "/v1/models/none")[0] == 404
    assert _get(api, "/v1/models") == (400, {"error": "Missing model name in request"})


def test_metadata_shows_the_signatures(api: Any) -> None:
    status, body = _get(api, "/v1/models/shop/metadata")
    assert status == 200
    assert body["model_spec"] == {"name": "shop", "signature_name": "", "version": "7"}
    tags = body["metadata"]["signature_def"]["signature_def"]["serving_default"]["inputs"]["tags"]
    assert tags["dtype"] == "DT_STRING"
    assert [dim["size"] for dim in tags["tensor_shape"]["dim"]] == ["-1", "3"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD", "PATCH"])
def test_other_methods_are_malformed(api: Any, method: Any) -> None:
    assert _get(api, "/v1/models/shop", method) == (
        400,
        {"error": f"Malformed request: {method} /v1/models/shop"},
    )


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=40), st.sampled_from([b'{"instances": [', b'{"inputs": {"x": [', b""]))
def test_random_bodies_are_never_a_server_error(api: Any, body: Any, start: Any) -> None:
    assert api.answer("POST", "/v1/models/half%20plus%2F2:predict", start + body).status in {200, 400}


@contextlib.contextmanager
def _served(api: Any, metrics_path: Any, metrics_text: Any, *arguments: Any) -> Any:
    """Yields an HTTP client of `api` behind a real server on a thread."""
    app = build_app(api, parse(arguments)[0], metrics_path=metrics_path, metrics_text=metrics_text)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = HttpServer(app, host="127.0.0.1", port=port)
    server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20) as client:
        yield client
    server.stop()


@pytest.fixture(scope="module")
def http(api: Any, metrics: Any) -> Any:
    with _served(api, "/metrics", metrics.prometheus) as client:
        yield client


def test_bodies_may_be_gzipped(http: Any) -> None:
    path, headers = "/v1/models/half%20plus%2F2:predict", {"content-encoding": "gzip"}
    packed = gzip.compress(b'{"instances": [1]}')
    assert http.post(path, content=packed, headers=headers).json() == {"predictions": [2.5]}
    assert http.post(path, content=packed[:-9], headers=headers).status_code == 400
    bomb = gzip.compress(b" " * (101 * 2**20), 1)
    assert http.post(path, content=bomb, headers=headers).status_code == 400


def test_other_paths_are_html_404(http: Any) -> None:
    answer = http.get("/")
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")


def test_http_passes_the_path_as_it_came(http: Any) -> None:
    malformed = {"error": "Malformed request: GET /v1/models/shop/metadata?x=1"}
    assert http.get("/v1/models/shop/metadata?x=1").json() == malformed
    assert http.get("/v1/models/sh%6Fp").status_code == 200
    assert http.get("/v1/models/shop").headers["content-type"] == "application/json"


def test_metrics_page_counts_calls_by_model_and_status(http: Any) -> None:
    http.get("/v1/models/metrics-test")
    page = http.get("/metrics").text
    assert "# TYPE :tensorflow:serving:request_count counter" in page
    assert ':tensorflow:serving:request_count{model_name="metrics-test",status="NOT_FOUND"} 1' in page
    assert ':tensorflow:serving:request_latency_count{model_name="shop",API="predict",entrypoint="REST"}' in page


def test_a_call_that_takes_too_long_is_504() -> None:
    class Slow:
        def answer(self, *_: Any) -> None:
            time.sleep(0.5)

    with _served(Slow(), None, str, "--rest_api_timeout_in_ms=50") as client:
        assert client.get("/v1/models/m").status_code == 504
        assert client.options("/v1/models/m", headers={"origin": "http://x"}).status_code == 504


def test_cors_headers_come_only_with_their_flag(api: Any) -> None:
    with _served(api, None, str, "--rest_api_enable_cors_support") as client:
        assert client.get("/v1/models/shop").headers["access-control-allow-origin"] == "*"
        assert client.options("/v1/models/shop", headers={"origin": "http://x"}).status_code == 200
        refused = client.options("/v1/models/shop", headers={"origin": "ftp://x"})
        assert (refused.status_code, refused.content) == (400, b"")


async def _never(*_: Any) -> None:
    """An application that is never called."""


def test_a_port_in_use_is_a_clear_error(api: Any) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        with pytest.raises(StatusError, match="cannot listen on 127"):
            HttpServer(_never, host="127.0.0.1", port=holder.getsockname()[1])

"""Classify, Regress and MultiInference over both surfaces' handlers, on a model that is really loaded."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_serving.apis import classification_pb2, inference_pb2, predict_pb2, regression_pb2

from serving.server.discovery import ModelConfig
from serving.server.handlers import Handlers
from serving.server.metrics import Metrics
from serving.server.model_manager import LoadOptions, ModelManager
from serving.server.predict import CLASSIFY, PREDICT, REGRESS
from serving.server.rest_api import RestApi
from serving.server.servable import Servable
from serving.server.status import Code, StatusError
from serving.server.tensors import to_proto


@pytest.fixture(scope="module")
def metrics() -> Any:
    return Metrics()


@pytest.fixture(scope="module")
def manager(example_model: Any, tmp_path_factory: Any) -> Any:
    base = tmp_path_factory.mktemp("models")
    (base / "3").symlink_to(example_model)
    manager = ModelManager(lambda _name, _version, path: Servable.load(path), LoadOptions())
    manager.start([ModelConfig("m", base)])
    yield manager
    manager.stop()


@pytest.fixture(scope="module")
def handlers(manager: Any, metrics: Any) -> Any:
    return Handlers(manager, metrics)


@pytest.fixture(scope="module")
def api(handlers: Any, metrics: Any) -> Any:
    return RestApi(handlers, metrics)


def _example(**features: Any) -> Any:
    example = tf.train.Example()
    for name, value in features.items():
        if isinstance(value, bytes):
            example.features.feature[name].bytes_list.value.append(value)
        else:
            example.features.feature[name].float_list.value.append(value)
    return example


def _request(kind: Any, signature: Any, *examples: Any, context: Any = None) -> Any:
    request = kind()
    request.model_spec.name, request.model_spec.signature_name = "m", signature
    _fill(request.input, examples, context)
    return request


def _fill(given: Any, examples: Any, context: Any = None) -> None:
    if context is None:
        given.example_list.examples.extend(examples)
    else:
        given.example_list_with_context.examples.extend(examples)
        given.example_list_with_context.context.CopyFrom(context)


def _regress(signature: Any, *examples: Any, **options: Any) -> Any:
    return _request(regression_pb2.RegressionRequest, signature, *examples, **options)


def _classify(signature: Any, *examples: Any, **options: Any) -> Any:
    return _request(classification_pb2.ClassificationRequest, signature, *examples, **options)


def _tasks(*tasks: Any, examples: Any = None) -> Any:
    request = inference_pb2.MultiInferenceRequest()
    for signature, method in tasks:
        task = request.tasks.add(method_name=method)
        task.model_spec.name, task.model_spec.signature_name = "m", signature
    _fill(request.input, [_example(x=4.0, tag=b"t")] if examples is None else examples)
    return request


def _error(call: Any, request: Any) -> Any:
    with pytest.raises(StatusError) as caught:
        call(request)
    return caught.value.code, caught.value.message


@pytest.mark.parametrize("signature", ["regress", "flat"])
def test_regress_answers_one_value_an_example_with_the_resolved_spec(handlers: Any, signature: Any) -> None:
    response = handlers.regress(_regress(signature, _example(x=4.0), _example(x=-1.0)))
    assert [found.value for found in response.result.regressions] == [4.0, 1.5]
    spec = response.model_spec
    assert (spec.name, spec.signature_name, spec.version.value) == ("m", signature, 3)


def test_classify_answers_labels_and_scores_and_empty_ones_where_there_are_none(handlers: Any) -> None:
    def pairs(signature: Any) -> Any:
        response = handlers.classify(_classify(signature, _example(x=4.0, tag=b"t"), _example(x=1.0)))
        return [[(found.label, found.score) for found in row.classes] for row in response.result.classifications]

    assert pairs("classify") == [[("low", 4.0), ("t", -4.0)], [("low", 1.0), ("", -1.0)]]
    assert pairs("scores") == [[("", 4.0), ("", -4.0)], [("", 1.0), ("", -1.0)]]
    assert pairs("classes") == [[("low", 0.0), ("t", 0.0)], [("low", 0.0), ("", 0.0)]]


def test_the_context_is_merged_into_every_example_and_loses_against_it(handlers: Any) -> None:
    context = _example(x=10.0, tag=b"shared")
    response = handlers.classify(_classify("classify", _example(x=4.0), _example(), context=context))
    rows = [[(found.label, found.score) for found in row.classes] for row in response.result.classifications]
    assert rows == [[("low", 4.0), ("shared", -4.0)], [("low", 10.0), ("shared", -10.0)]]


def test_an_input_without_examples_is_refused(handlers: Any) -> None:
    assert _error(handlers.regress, _regress("regress")) == (Code.INVALID_ARGUMENT, "Input is empty")
    only_context = _regress("regress", context=_example(x=1.0))
    assert _error(handlers.regress, only_context) == (Code.INVALID_ARGUMENT, "Input is empty")
    empty = _tasks(("regress", REGRESS), examples=())
    assert _error(handlers.multi_inference, empty) == (Code.INVALID_ARGUMENT, "Input is empty")


@pytest.mark.parametrize(
    ("call", "signature"),
    [
        ("regress", "none"), ("regress", "serving_default"), ("regress", "classify"), ("regress", "wide"),
        ("regress", "first"), ("regress", "whole"), ("regress", ""), ("classify", "none"), ("classify", "regress"),
        ("classify", ""), ("regress", "__saved_model_init_op"),
    ],
)  # fmt: skip
def test_signatures_that_cannot_answer_are_refused(handlers: Any, call: Any, signature: Any) -> None:
    make = _regress if call == "regress" else _classify
    request = make(signature, _example(x=1.0), _example(x=2.0))
    assert _error(getattr(handlers, call), request)[0] is Code.INVALID_ARGUMENT


def test_mistakes_in_the_model_spec_are_those_of_predict(handlers: Any) -> None:
    assert _error(handlers.classify, classification_pb2.ClassificationRequest())[1] == "Missing ModelSpec"
    request = _regress("regress", _example())
    request.model_spec.name = "no"
    assert _error(handlers.regress, request)[0] is Code.NOT_FOUND


def test_multi_inference_answers_all_tasks_from_one_run(handlers: Any, manager: Any, monkeypatch: Any) -> None:
    runs = []
    with manager.acquire("m") as (servable, _):
        run = servable.run_tensors

    def counted(*arguments: Any, **options: Any) -> Any:
        runs.append(arguments)
        return run(*arguments, **options)

    monkeypatch.setattr(servable, "run_tensors", counted)
    response = handlers.multi_inference(_tasks(("regress", REGRESS), ("classify", CLASSIFY)))
    assert len(runs) == 1
    regression, classification = response.results
    assert [found.value for found in regression.regression_result.regressions] == [4.0]
    assert regression.model_spec.signature_name == "regress"
    assert classification.model_spec.version.value == 3
    (row,) = classification.classification_result.classifications
    assert [found.label for found in row.classes] == ["low", "t"]


@pytest.mark.parametrize(
    ("tasks", "code"),
    [
        ([], Code.INVALID_ARGUMENT),
        ([("regress", REGRESS), ("regress", REGRESS)], Code.INVALID_ARGUMENT),
        ([("none", REGRESS)], Code.INVALID_ARGUMENT),
        ([("classify", REGRESS)], Code.INVALID_ARGUMENT),
        ([("regress", PREDICT)], Code.UNIMPLEMENTED),
        ([("regress", "")], Code.UNIMPLEMENTED),
    ],
)
def test_multi_inference_refuses_tasks_that_do_not_fit(handlers: Any, tasks: Any, code: Any) -> None:
    assert _error(handlers.multi_inference, _tasks(*tasks))[0] is code


def test_multi_inference_is_on_one_named_model(handlers: Any) -> None:
    request = _tasks(("regress", REGRESS), ("classify", CLASSIFY))
    request.tasks[1].model_spec.name = "other"
    code, text = _error(handlers.multi_inference, request)
    assert (code, "same model name" in text) == (Code.INVALID_ARGUMENT, True)
    request.tasks[1].model_spec.name = ""
    assert _error(handlers.multi_inference, request)[0] is Code.INVALID_ARGUMENT


def test_only_multi_inference_counts_examples(handlers: Any, metrics: Any) -> None:
    before = metrics.total("/tensorflow/serving/request_example_count_total")
    handlers.regress(_regress("regress", _example(), _example()))
    handlers.multi_inference(_tasks(("regress", REGRESS), examples=[_example()] * 3))
    assert metrics.total(":tensorflow:serving:request_example_count_total") == before + 3
    page = metrics.prometheus()
    assert ':tensorflow:serving:request_example_counts_count{model="m"}' in page
    assert ':tensorflow:serving:runtime_latency_count{model_name="m",API="Regress",runtime="TF1"}' in page


def test_the_method_name_matters_only_with_its_flag(handlers: Any, manager: Any, metrics: Any) -> None:
    strict = Handlers(manager, metrics, check_method_name=True)
    # tf.saved_model.save gives every signature the method name of predict.
    assert _error(strict.regress, _regress("regress", _example()))[0] is Code.INVALID_ARGUMENT
    assert _error(strict.classify, _classify("classify", _example()))[0] is Code.INVALID_ARGUMENT
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "m"
    request.inputs["x"].CopyFrom(to_proto(np.ones(1, np.float32)))
    assert list(strict.predict(request).outputs["y"].float_val) == [2.5]
    with manager.acquire("m") as (servable, _):
        known = dict(servable.signatures)
        try:
            servable.signatures["regress"] = dataclasses.replace(known["regress"], method_name=REGRESS)
            servable.signatures["serving_default"] = dataclasses.replace(known["serving_default"], method_name="own")
            assert len(strict.regress(_regress("regress", _example())).result.regressions) == 1
            assert _error(strict.predict, request)[0] is Code.INTERNAL
            assert handlers.predict(request).model_spec.version.value == 3
            body = b'{"instances": [1]}'
            assert RestApi(strict, metrics).answer("POST", "/v1/models/m:predict", body).status == 500
        finally:
            servable.signatures.update(known)


def _post(api: Any, verb: Any, body: Any) -> Any:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = api.answer("POST", f"/v1/models/m:{verb}", text)
    return answer.status, json.loads(answer.body)


def test_rest_regress_answers_numbers(api: Any) -> None:
    body = {"signature_name": "regress", "examples": [{"x": 4.0}, {"x": [-1.0]}, {}]}
    assert _post(api, "regress", body) == (200, {"results": [4.0, 1.5, 2.0]})


def test_rest_classify_answers_pairs_of_label_and_score(api: Any) -> None:
    body = {
        "signature_name": "classify",
        "context": {"tag": {"b64": "dA=="}},
        "examples": [{"x": 4.0}, {"x": 1.5, "tag": 'é"'}],
    }
    assert _post(api, "classify", body) == (
        200,
        {"results": [[["low", 4.0], ["t", -4.0]], [["low", 1.5], ['é"', -1.5]]]},
    )


def test_rest_floats_may_be_special_or_too_large(api: Any) -> None:
    text = b'{"signature_name": "flat", "examples": [{"x": NaN}, {"x": Infinity}, {"x": 1e300}]}'
    answer = api.answer("POST", "/v1/models/m:regress", text)
    assert answer.body == b'{"results": [NaN, Infinity, Infinity]}'


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", {}, {"examples": []}, {"examples": {}}, {"examples": [1]}, {"examples": [{"x": [1.0, 2]}]},
        {"examples": [{"x": 10}]}, {"examples": [{"x": None}]}, {"examples": [{"x": [[1.0]]}]},
        {"examples": [{"x": {"y": 1}}]}, {"examples": [{"x": ["a", 1.0]}]}, {"examples": [{"x": 2**63}]},
        {"examples": [{"tag": {"b64": "?"}}]}, {"examples": [{"tag": {"b64": 1}}]}, {"examples": [{"\ud800": 1.0}]},
        {"examples": [{"tag": "\ud800"}]}, {"examples": [{"x": 1.0}], "context": [1]},
        {"examples": [{"x": 1.0}], "context": {"x": None}}, {"examples": [{"x": 1.0}], "signature_name": 1},
        {"examples": [{"x": 1.0}], "signature_name": "\ud800"}, {"examples": [{"x": 1.0}], "signature_name": "no"},
        {"instances": [1]},
    ],
)  # fmt: skip
@pytest.mark.parametrize("verb", ["regress", "classify"])
def test_wrong_rest_bodies_are_400(api: Any, verb: Any, body: Any) -> None:
    if isinstance(body, dict):
        body = {"signature_name": verb, **body}
    status, answer = _post(api, verb, body)
    assert (status, list(answer)) == (400, ["error"])


def test_integers_and_booleans_are_one_kind_and_an_empty_list_is_a_feature_without_values(api: Any) -> None:
    body = {"signature_name": "regress", "examples": [{"other": [1, True, -(2**63)], "x": []}]}
    assert _post(api, "regress", body) == (200, {"results": [2.0]})


def test_rest_calls_are_counted_under_their_verb_in_lower_case(api: Any, metrics: Any) -> None:
    _post(api, "regress", {"signature_name": "regress", "examples": [{}]})
    label = 'request_latency_count{model_name="m",API="regress",entrypoint="REST"}'
    assert f":tensorflow:serving:{label}" in metrics.prometheus()


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "tag", "b64", "é"]), inner),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(["examples", "context", "signature_name"]), _VALUES), st.booleans())
def test_random_rest_bodies_are_never_a_server_error(api: Any, body: Any, good: bool) -> None:
    if good:
        body = {**body, "signature_name": "regress", "examples": [{"x": body.get("examples")}]}
    assert _post(api, "regress", body)[0] in {200, 400}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4), st.sampled_from([0, 1, 2]))
def test_mutated_requests_are_answered_or_refused_with_a_reason(handlers: Any, changes: Any, which: Any) -> None:
    request = [
        _regress("regress", _example(x=4.0), context=_example(tag=b"t")),
        _classify("classify", _example(x=4.0)),
        _tasks(("regress", REGRESS), ("classify", CLASSIFY)),
    ][which]
    body = bytearray(request.SerializeToString())
    for position, value in changes:
        body[position % len(body)] = value
    try:
        mutated = type(request).FromString(bytes(body))
    except DecodeError:
        return
    try:
        [handlers.regress, handlers.classify, handlers.multi_inference][which](mutated)
    except StatusError as error:
        expected = {Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.FAILED_PRECONDITION, Code.UNIMPLEMENTED}
        assert error.code in expected, error

"""SavedModels run in a session."""

import threading
import time
from typing import Any

import numpy as np
import pytest

from serving.server.flags import parse
from serving.server.servable import Servable
from serving.server.session_options import session_config
from serving.server.status import Code, StatusError


@pytest.fixture(scope="module")
def mixed(mixed_model: Any) -> Any:
    servable = Servable.load(mixed_model)
    yield servable
    servable.close()


def _inputs(**changes: Any) -> Any:
    inputs = {
        "user": np.array([b"a", b"zz"], object),
        "count": np.array([1, 2], np.int64),
        "price": np.array([0.5, 0.25], np.float32),
        "tags": np.array([[b"t", b"\x00", b"\x00"], [b"t", b"u", b""]], object),
    }
    inputs.update(changes)
    return inputs


def _error(servable: Any, inputs: Any, outputs: Any = None, signature: Any = "serving_default") -> Any:
    with pytest.raises(StatusError) as caught:
        servable.run(signature, inputs, outputs)
    return caught.value.code, caught.value.message


def test_computes_all_outputs_with_tables_initialised(mixed: Any) -> None:
    outputs = mixed.run("serving_default", _inputs())
    assert sorted(outputs) == ["echo", "score", "user_bytes"]
    # 0.5 + 100 + 1 + one tag; 0.25 + 0 + 2 + three tags ("" is a tag, only the marker is none).
    assert outputs["score"].tolist() == [102.5, 5.25]
    assert outputs["echo"].tolist() == [b"a", b"zz"]


def test_computes_only_the_outputs_asked_for(mixed: Any) -> None:
    assert list(mixed.run("serving_default", _inputs(), ["score"])) == ["score"]


def test_lists_signatures_with_the_initialiser_as_tf_serving_does(mixed: Any) -> None:
    assert set(mixed.signatures) == {"serving_default", "__saved_model_init_op"}


def test_zero_rows_give_zero_scores(mixed: Any) -> None:
    empty = {name: array[:0] for name, array in _inputs().items()}
    assert mixed.run("serving_default", empty)["score"].shape == (0,)


def test_mistakes_give_the_codes_and_texts_of_tf_serving(mixed: Any) -> None:
    assert _error(mixed, _inputs(), signature="none") == (
        Code.FAILED_PRECONDITION,
        'Serving signature key "none" not found.',
    )
    fewer = {name: array for name, array in _inputs().items() if name != "count"}
    code, text = _error(mixed, fewer)
    assert code is Code.INVALID_ARGUMENT
    assert text.startswith("input size does not match signature: 3!=4")
    assert "Missing but required: {count}" in text
    assert "Sent extra: {more}" in _error(mixed, _inputs(more=np.zeros(1)))[1]
    code, text = _error(mixed, {**fewer, "other": np.zeros(1)})
    assert code is Code.INVALID_ARGUMENT
    assert text.startswith("Signature input alias: count not found in request and no default value provided")
    assert _error(mixed, _inputs(), ["nope"])[0] is Code.INVALID_ARGUMENT
    assert _error(mixed, _inputs(), ["score", "score"])[0] is Code.INVALID_ARGUMENT


def test_dtypes_and_shapes_are_judged_by_the_runtime(mixed: Any) -> None:
    code, text = _error(mixed, _inputs(price=np.array([1, 2], np.int64)))
    assert code is Code.INVALID_ARGUMENT
    assert "Type mismatch: actual int64 vs. expect float" in text
    assert _error(mixed, _inputs(price=np.array([1.0, 2.0])))[0] is Code.INVALID_ARGUMENT
    code, text = _error(mixed, _inputs(price=np.array([1.0, 2.0, 3.0], np.float32)))
    assert code is Code.INVALID_ARGUMENT
    assert "Incompatible shapes" in text
    # Other than the placeholder says, but the graph can run it: accepted.
    wide = np.full([2, 5], b"t", object)
    assert mixed.run("serving_default", _inputs(tags=wide), ["score"])["score"].tolist() == [106.5, 7.25]


def test_serves_many_threads_at_once(half_plus: Any) -> None:
    servable = Servable.load(half_plus(2))
    wrong = []

    def work(number: Any) -> None:
        for _ in range(50):
            value = servable.run("serving_default", {"x": np.array([number], np.float32)})["y"]
            if value.tolist() != [number / 2 + 2]:
                wrong.append((number, value))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    servable.close()
    assert wrong == []


def test_a_folder_without_a_model_and_a_damaged_model_do_not_load(tmp_path: Any) -> None:
    with pytest.raises(StatusError) as caught:
        Servable.load(tmp_path / "absent")
    assert caught.value.code is Code.NOT_FOUND
    (tmp_path / "saved_model.pb").write_bytes(b"\xff\xffgarbage")
    with pytest.raises(StatusError, match=r"Could not load SavedModel|saved_model\.pb"):
        Servable.load(tmp_path)


def test_a_model_without_its_variables_does_not_load(half_plus: Any, tmp_path: Any) -> None:
    (tmp_path / "saved_model.pb").write_bytes((half_plus(2) / "saved_model.pb").read_bytes())
    with pytest.raises(StatusError):
        servable = Servable.load(tmp_path)
        servable.run("serving_default", {"x": np.zeros(1, np.float32)})


@pytest.fixture(scope="module")
def slow(slow_model: Any) -> Any:
    # As the server loads it by default: runs without a deadline are in the caller's own thread.
    servable = Servable.load(slow_model, session_config=session_config(parse([])[0]))
    yield servable
    servable.close()


def _count(servable: Any, number: Any, timeout_s: Any = None) -> Any:
    signature = servable.signature("serving_default")
    feeds = signature.bind({"n": np.array(number, np.int64)})
    return servable.run_tensors(feeds, list(signature.output_tensors.values()), timeout_s=timeout_s)[0].tolist()


def test_a_run_ends_at_its_deadline_and_the_model_answers_on(slow: Any) -> None:
    assert _count(slow, 50_000) == 50_000
    start_s = time.monotonic()
    with pytest.raises(StatusError) as caught:
        _count(slow, 10**12, timeout_s=0.05)
    assert caught.value.code is Code.DEADLINE_EXCEEDED
    assert time.monotonic() - start_s < 10
    assert _count(slow, 3, timeout_s=0.5) == 3
    assert _count(slow, 3, timeout_s=1000) == 3


def test_a_run_under_a_deadline_takes_and_refuses_what_others_do(mixed: Any) -> None:
    signature = mixed.signature("serving_default")

    def score(**changes: Any) -> Any:
        mixed._slowest_s = 1e6
        feeds = signature.bind(_inputs(**changes))
        return mixed.run_tensors(feeds, [signature.output_tensors["score"]], timeout_s=20)[0].tolist()

    assert score() == [102.5, 5.25]
    assert score(tags=np.full([2, 5], b"t", object)) == [106.5, 7.25]
    with pytest.raises(StatusError) as caught:
        score(price=np.array([1, 2], np.int64))
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_what_clients_ask_for_does_not_fill_the_memory(mixed: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("serving.server.servable._MAX_CALLABLES", 4)
    signature = mixed.signature("serving_default")
    tensors = list(signature.output_tensors.values())
    for number in range(9):
        mixed.run_tensors(signature.bind(_inputs()), [tensors[number // 3], tensors[number % 3]])
    assert len(mixed._callables) <= 5

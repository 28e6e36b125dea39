"""Batching: what is run together, what is refused, and how arrays are joined and cut."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.server.batch_merge import merge, num_rows_of, padded_size, split
from serving.server.batching import BatchScheduler
from serving.server.batching_parameters import BatchingParameters
from serving.server.config_files import batching_parameters
from serving.server.metrics import Metrics
from serving.server.servable import Servable
from serving.server.status import Code, StatusError


class _Graph:
    """y = 2 x, and the batches it was given; it waits while `gate` is closed."""

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self.timeouts: list[Any] = []
        self.gate = threading.Event()
        self.gate.set()

    def run(self, feeds: Any, fetches: Any, *, timeout_s: Any = None) -> Any:
        self.gate.wait(20)
        self.batches.append({name: array.tolist() for name, array in feeds.items()})
        self.timeouts.append(timeout_s)
        return [feeds["x"] * 2 for _ in fetches]


@pytest.fixture
def graph() -> Any:
    return _Graph()


@pytest.fixture
def batched(graph: Any) -> Any:
    """Returns a function parameters -> run, on a scheduler with one thread, and where its metrics are."""
    schedulers = []

    def make(*, num_threads: Any = 1, **parameters: Any) -> Any:
        metrics = Metrics()
        scheduler = BatchScheduler(num_threads=num_threads, thread_pool_name="pool", metrics=metrics)
        schedulers.append(scheduler)
        run = scheduler.wrap(graph.run, parameters=BatchingParameters(**parameters))
        return run, metrics

    yield make
    graph.gate.set()
    for scheduler in schedulers:
        scheduler.stop()


def _x(*values: Any) -> Any:
    return {"x": np.array(values, np.float32)}


def _together(run: Any, requests: Any, graph: Any) -> Any:
    """Sends a request that keeps the only thread busy, then the others one after the other, then lets all go."""
    graph.gate.clear()
    with ThreadPoolExecutor(len(requests) + 1) as pool:
        busy = pool.submit(run, _x(-1), ["y"])
        time.sleep(0.05)
        answers = []
        for request in requests:
            answers.append(pool.submit(run, request, ["y"]))
            time.sleep(0.02)
        graph.gate.set()
        busy.result(20)
        return [answer.result(20)[0].tolist() for answer in answers]


def _error(call: Any, *arguments: Any, **options: Any) -> Any:
    with pytest.raises(StatusError) as caught:
        call(*arguments, **options)
    return caught.value.code, caught.value.message


def test_requests_that_wait_are_run_as_one_and_each_gets_its_own_rows(batched: Any, graph: Any) -> None:
    run, metrics = batched()
    assert _together(run, [_x(1), _x(2, 3), _x()], graph) == [[2], [4, 6], []]
    assert graph.batches == [{"x": [-1]}, {"x": [1, 2, 3]}]
    page = metrics.prometheus()
    assert ":tensorflow:serving:batching_session:wrapped_run_count{} 2" in page
    assert ":tensorflow:serving:batching_session:input_batch_size_sum{} 4" in page
    assert ':tensorflow:serving:batching_session:queuing_latency_count{thread_pool_name="pool"} 4' in page


def test_a_batch_is_run_when_it_is_full(batched: Any, graph: Any) -> None:
    run, _ = batched(max_batch_size=3)
    assert _together(run, [_x(1), _x(2), _x(3, 4), _x(5)], graph) == [[2], [4], [6, 8], [10]]
    assert graph.batches[1:] == [{"x": [1, 2]}, {"x": [3, 4, 5]}]


def test_a_lone_request_waits_for_company_but_not_longer_than_told(batched: Any, graph: Any) -> None:
    run, _ = batched(batch_timeout_micros=200_000)
    start_s = time.monotonic()
    run(_x(1), ["y"])
    assert 0.19 < time.monotonic() - start_s < 5
    run, _ = batched(batch_timeout_micros=20_000_000, max_batch_size=2, num_threads=2)
    start_s = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda value: run(_x(value), ["y"]), [1, 2]))
    assert time.monotonic() - start_s < 10
    assert sorted(graph.batches[1]["x"]) == [1, 2]


def test_other_outputs_inputs_or_dtypes_are_not_joined(batched: Any, graph: Any) -> None:
    run, _ = batched()
    graph.gate.clear()
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(run, _x(0), ["y"])
        time.sleep(0.05)
        others = [
            pool.submit(run, _x(1), ["y"]),
            pool.submit(run, _x(2), ["z"]),
            pool.submit(run, {"x": np.array([3], np.int64)}, ["y"]),
            pool.submit(run, {**_x(4), "w": np.zeros(1)}, ["y"]),
        ]
        time.sleep(0.1)
        graph.gate.set()
        for future in [first, *others]:
            future.result(20)
    assert [len(batch["x"]) for batch in graph.batches] == [1] * 5


def test_requests_that_cannot_be_batched_are_refused(batched: Any) -> None:
    run, _ = batched(max_batch_size=2)
    code, text = _error(run, {**_x(1, 2), "w": np.zeros(1)}, ["y"])
    assert code is Code.INVALID_ARGUMENT
    assert "equal 0th-dimension" in text
    assert _error(run, {"x": np.float32(1).reshape(())}, ["y"])[0] is Code.INVALID_ARGUMENT
    too_large = (Code.INVALID_ARGUMENT, "Task size 3 is larger than maximum input batch size 2")
    assert _error(run, _x(1, 2, 3), ["y"]) == too_large


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_a_full_queue_is_unavailable_and_those_in_it_are_answered(batched: Any, graph: Any, limit: Any) -> None:
    run, _ = batched(max_batch_size=1, max_enqueued_batches=limit)
    graph.gate.clear()
    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(run, _x(0), ["y"])]
        time.sleep(0.05)
        for value in range(max(1, limit)):
            running.append(pool.submit(run, _x(value), ["y"]))
            time.sleep(0.05)
        text = "The batch scheduling queue to which this task was submitted is full"
        assert _error(run, _x(9), ["y"]) == (Code.UNAVAILABLE, text)
        graph.gate.set()
        for future in running:
            future.result(20)


def test_a_large_request_is_split_into_parts_that_share_batches(batched: Any, graph: Any) -> None:
    parameters = {"max_batch_size": 10, "max_execution_batch_size": 3, "enable_large_batch_splitting": True}
    run, _ = batched(**parameters)
    assert _together(run, [_x(1), _x(2, 3, 4, 5, 6, 7), _x(8)], graph) == [[2], [4, 6, 8, 10, 12, 14], [16]]
    assert [batch["x"] for batch in graph.batches[1:]] == [[1, 2, 3], [4, 5, 6], [7, 8]]
    assert _error(run, _x(*range(11)), ["y"])[0] is Code.INVALID_ARGUMENT


def test_batches_are_filled_up_to_an_allowed_size_with_a_real_row(batched: Any, graph: Any) -> None:
    run, metrics = batched(max_batch_size=8, allowed_batch_sizes=(2, 4, 8))
    assert run(_x(7, 8, 9), ["y"])[0].tolist() == [14, 16, 18]
    assert graph.batches == [{"x": [7, 8, 9, 7]}]
    assert run(_x(), ["y"])[0].tolist() == []
    padding = ':tensorflow:serving:batching_session:padding_size_sum{execution_batch_size="4"} 1'
    assert padding in metrics.prometheus()


def test_a_failure_reaches_every_request_of_the_batch_and_the_thread_lives_on(batched: Any, graph: Any) -> None:
    run, _ = batched()
    with pytest.raises(KeyError):
        run({"w": np.zeros(1)}, ["y"])
    assert run(_x(1), ["y"])[0].tolist() == [2]


def test_lists_of_other_lengths_fail_unless_padding_is_on(batched: Any, graph: Any) -> None:
    requests = [{"x": np.array([[1, 2]], np.float32)}, {"x": np.array([[3]], np.float32)}]
    run, _ = batched()
    with pytest.raises(StatusError) as caught:
        _together(run, requests, graph)
    assert caught.value.code is Code.FAILED_PRECONDITION
    run, _ = batched(pad_variable_length_inputs=True)
    # Padded with the tensor's own first element.
    assert _together(run, requests, graph) == [[[2, 4]], [[6, 6]]]


def test_a_deadline_that_passes_in_the_queue_frees_the_caller_and_the_batch(batched: Any, graph: Any) -> None:
    run, _ = batched()
    graph.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(run, _x(0), ["y"])
        time.sleep(0.05)
        assert _error(run, _x(1), ["y"], timeout_s=0.05)[0] is Code.DEADLINE_EXCEEDED
        graph.gate.set()
        busy.result(20)
    assert run(_x(2), ["y"], timeout_s=50)[0].tolist() == [4]
    assert [batch["x"] for batch in graph.batches] == [[0], [2]]
    assert graph.timeouts[0] is None
    assert 40 < graph.timeouts[1] <= 50


def test_stopping_ends_what_waits(batched: Any, graph: Any) -> None:
    scheduler = BatchScheduler(num_threads=1, thread_pool_name="p", metrics=Metrics())
    run = scheduler.wrap(graph.run, parameters=BatchingParameters(batch_timeout_micros=10_000_000))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run, _x(1), ["y"])
        time.sleep(0.05)
        scheduler.stop()
        assert _error(waiting.result, 20)[0] is Code.UNAVAILABLE


def test_many_callers_get_their_own_answers_from_a_real_model(half_plus: Any) -> None:
    scheduler = BatchScheduler(num_threads=2, thread_pool_name="p", metrics=Metrics())
    parameters = BatchingParameters(max_batch_size=7, max_enqueued_batches=100)
    servable = Servable.load(half_plus(2), batching=lambda run: scheduler.wrap(run, parameters=parameters))

    def ask(number: Any) -> Any:
        rows = np.arange(number % 5, dtype=np.float32) + number
        found = servable.run("serving_default", {"x": rows})["y"]
        return found.tolist() == (rows / 2 + 2).tolist()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(400)))
    scheduler.stop()
    servable.close()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(0, 4))
def test_splitting_undoes_merging(sizes: Any, padding: Any) -> None:
    tasks = [[np.arange(count * 2).reshape(count, 2) + 100 * i, np.full(count, i)] for i, count in enumerate(sizes)]
    size = sum(sizes) + (padding if sum(sizes) else 0)
    merged = merge(tasks, size=size, pad_ragged=False)
    assert [len(array) for array in merged] == [size, size]
    for task, back in zip(tasks, split(merged, sizes, size=size), strict=True):
        assert [array.tolist() for array in task] == [array.tolist() for array in back]


def test_outputs_without_a_row_for_each_row_are_refused() -> None:
    for output in (np.zeros(3), np.zeros(())):
        assert _error(split, [output], [2], size=2)[0] is Code.FAILED_PRECONDITION


def test_row_counts_and_allowed_sizes() -> None:
    assert num_rows_of([np.zeros([3, 2]), np.zeros(3)]) == 3
    assert [padded_size(rows, (2, 4)) for rows in (1, 2, 3, 4, 5)] == [2, 2, 4, 4, 5]
    assert padded_size(3, ()) == 3
    strings = merge([[np.array([[b"a", b"b"]], object)], [np.empty([1, 0], object)]], size=2, pad_ragged=True)
    assert strings[0].tolist() == [[b"a", b"b"], [b"", b""]]


def test_parameters_come_from_a_text_proto_with_the_defaults_of_the_scheduler(tmp_path: Any) -> None:
    path = tmp_path / "batching.config"
    path.write_text("")
    assert batching_parameters(path) == BatchingParameters()
    path.write_text(
        "max_batch_size { value: 512 } batch_timeout_micros { value: 1000 } max_enqueued_batches { value: 16 }"
        ' num_batch_threads { value: 4 } thread_pool_name { value: "p" } allowed_batch_sizes: 128'
        " allowed_batch_sizes: 256 pad_variable_length_inputs: true enable_large_batch_splitting { value: true }"
        " max_execution_batch_size { value: 256 }"
    )
    assert batching_parameters(path) == BatchingParameters(512, 1000, 16, 4, "p", (128, 256), True, True, 256)


@pytest.mark.parametrize(
    "text",
    [
        "allowed_batch_sizes: 2 allowed_batch_sizes: 4",
        "max_batch_size { value: 4 } allowed_batch_sizes: 4 allowed_batch_sizes: 2",
        "max_batch_size { value: 4 } allowed_batch_sizes: 4 allowed_batch_sizes: 4",
        "max_batch_size { value: 0 }",
        "num_batch_threads { value: 0 }",
        "max_execution_batch_size { value: 2000 } enable_large_batch_splitting { value: true }",
    ],
)
def test_parameters_that_contradict_each_other_are_refused(tmp_path: Any, text: Any) -> None:
    path = tmp_path / "batching.config"
    path.write_text(text)
    assert _error(batching_parameters, path)[0] is Code.INVALID_ARGUMENT

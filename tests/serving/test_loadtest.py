"""Load tests: the schedule, latencies from when requests were due, figures, and a real server."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.server
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from preprocessing.errors import ConfigError
from serving.load_drive import Send, drive, run_precisely
from serving.load_figures import figures, percentiles_ms
from serving.load_plot import plot, windows
from serving.load_schedule import NOT_SENT, Samples, arrival_times, share_of
from serving.load_send import LoadTarget, check_loopback
from serving.loadtest import run_load
from serving.server.status import Code

MS = 1e-3


def samples(due: list[float], sent: list[float], done: list[float], codes: list[int]) -> Samples:
    return Samples(np.array(due), np.array(sent), np.array(done), np.array(codes, np.int16))


@contextlib.asynccontextmanager
async def opened(send: Send) -> AsyncIterator[Send]:
    yield send


def driven(send: Send, due_s: Any, **options: Any) -> Samples:
    return run_precisely(opened(send), functools.partial(drive, bodies=[b"a", b"b"], due_s=np.array(due_s), **options))


def test_uniform_arrivals_are_the_rate_times_the_duration() -> None:
    np.testing.assert_allclose(arrival_times("uniform", qps=4, duration_s=1, seed=0), [0, 0.25, 0.5, 0.75])


def test_poisson_arrivals_have_exponential_gaps_of_the_mean() -> None:
    times = arrival_times("poisson", qps=1000, duration_s=20, seed=5)
    gaps = np.diff(times)
    assert (times >= 0).all()
    assert (times < 20).all()
    assert (gaps >= 0).all()
    assert gaps.mean() == pytest.approx(1 * MS, rel=0.03)
    assert gaps.std() == pytest.approx(1 * MS, rel=0.05)  # of an exponential the spread is the mean
    assert (gaps > 1 * MS).mean() == pytest.approx(np.exp(-1), abs=0.02)
    np.testing.assert_array_equal(times, arrival_times("poisson", qps=1000, duration_s=20, seed=5))
    assert not np.array_equal(times[:5], arrival_times("poisson", qps=1000, duration_s=20, seed=6)[:5])


def test_processes_share_every_arrival_once() -> None:
    times = np.arange(7.0)
    parts = [share_of(times, index=index, processes=3) for index in range(3)]
    assert [part.tolist() for part in parts] == [[0, 3, 6], [1, 4], [2, 5]]


def test_a_stall_is_counted_for_every_request_that_was_due_meanwhile() -> None:
    """A server that stands still for 200 ms: a closed loop would see one slow request, here a fifth of them wait."""
    free_at = time.perf_counter() + 0.5

    async def send(body: bytes) -> int:
        await asyncio.sleep(max(0.0, free_at - time.perf_counter()))
        return int(Code.OK)

    found = driven(send, np.arange(0, 0.5, 0.01))
    latency = found.done_s - found.due_s
    waited = free_at_of(found)
    expected = np.maximum(waited - found.due_s, 0.0)
    np.testing.assert_allclose(latency[expected > 0.05], expected[expected > 0.05], atol=0.05)
    assert (latency > 0.1).sum() >= 10


def free_at_of(found: Samples) -> float:
    return float(found.done_s[0])


def test_a_client_that_is_late_adds_its_lateness() -> None:
    async def send(body: bytes) -> int:
        time.sleep(0.02)  # the loop itself is busy: the next one is sent late
        return int(Code.OK)

    found = driven(send, [0.0, 0.0, 0.0, 0.0])
    assert found.done_s[-1] - found.due_s[-1] >= 0.08 - 0.005
    assert found.sent_s[-1] - found.due_s[-1] >= 0.06 - 0.005
    assert figures(found, qps=100).client_is_late


def test_bodies_are_taken_in_turn_and_codes_kept_in_order() -> None:
    seen = []

    async def send(body: bytes) -> int:
        seen.append(body)
        return int(Code.OK if body == b"a" else Code.UNAVAILABLE)

    found = driven(send, [0.0, 0.001, 0.002])
    assert seen == [b"a", b"b", b"a"]
    assert found.codes.tolist() == [0, 14, 0]
    seen.clear()
    driven(send, [0.0, 0.001], first_body=1, step=2)
    assert seen == [b"b", b"b"]


def test_with_too_many_open_a_request_is_not_sent_and_counted() -> None:
    async def send(body: bytes) -> int:
        await asyncio.sleep(0.2)
        return int(Code.OK)

    found = driven(send, np.linspace(0, 0.05, 5), max_open=2)
    assert found.codes.tolist() == [0, 0, NOT_SENT, NOT_SENT, NOT_SENT]
    assert figures(found, qps=100).errors == {"NOT_SENT": 3}


def test_a_stopped_test_sends_no_more() -> None:
    stop = threading.Event()

    async def send(body: bytes) -> int:
        stop.set()
        return int(Code.OK)

    found = driven(send, [0.0, 5.0, 60.0], stopped=stop.is_set)
    assert found.codes.tolist() == [0, NOT_SENT, NOT_SENT]


def test_percentiles_are_values_that_were_measured() -> None:
    found = percentiles_ms(np.arange(1.0, 1001.0) * MS)
    expected = {"p50": 500, "p75": 750, "p90": 900, "p95": 950, "p99": 990, "p99.9": 999, "mean": 500.5, "max": 1000}
    assert found == pytest.approx(expected)
    assert percentiles_ms(np.array([])) == {}


def test_figures_count_good_answers_only_in_latencies_and_rates() -> None:
    found = figures(samples([0, 1, 2, 3], [0, 1, 2, np.nan], [0.1, 1.3, 7.0, np.nan], [0, 0, 4, NOT_SENT]), qps=1.0)
    assert (found.num_due, found.num_ok) == (4, 2)
    assert found.errors == {"NOT_SENT": 1, "DEADLINE_EXCEEDED": 1}
    assert found.latency_ms["max"] == pytest.approx(300)
    assert found.latency_ms["p50"] == pytest.approx(100)
    assert found.achieved_qps == pytest.approx(2 / 7)
    assert not found.client_is_late
    assert "samples" not in found.to_json()


def test_nothing_but_failures_still_gives_figures() -> None:
    found = figures(samples([0], [0], [0.5], [14]), qps=1.0)
    assert found.latency_ms == {}
    assert found.achieved_qps == 0


@pytest.mark.parametrize("address", ["127.0.0.1:8500", "localhost:1", "[::1]:8500", "127.9.9.9:1"])
def test_this_machine_may_be_loaded(address: str) -> None:
    check_loopback(address)


@pytest.mark.parametrize("address", ["10.0.0.1:1", "example.org:80", "0.0.0.0:1", "localhost.example.org:1", "[::2]:1"])
def test_another_machine_needs_to_be_allowed(address: str) -> None:
    with pytest.raises(ConfigError, match="--allow-remote"):
        run_load(LoadTarget(address), [b""], qps=1, duration_s=1)


@pytest.mark.parametrize(("qps", "duration_s"), [(0, 1), (1, 0), (float("nan"), 1)])
def test_a_rate_and_a_duration_are_needed(qps: float, duration_s: float) -> None:
    with pytest.raises(ConfigError):
        run_load(LoadTarget("127.0.0.1:1"), [b""], qps=qps, duration_s=duration_s)


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200 if body == b"good" and self.path == "/right" else 503)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def web() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(10)


def test_rest_requests_arrive_and_codes_come_back(web: str) -> None:
    seen: list[int] = []
    target = LoadTarget(web, "rest", "/right")
    found = run_load(
        target, [b"good", b"bad"], qps=40, duration_s=0.5, arrivals="uniform", processes=1, observe=seen.append
    )
    assert (found.num_due, found.num_ok, found.errors) == (20, 10, {"UNAVAILABLE": 10})
    assert seen[-1] == 20


def test_a_server_that_is_not_there_is_unavailable() -> None:
    target = LoadTarget("127.0.0.1:9", "rest", "/")
    assert run_load(target, [b"x"], qps=20, duration_s=0.2, arrivals="uniform").errors == {"UNAVAILABLE": 4}


@pytest.mark.slow
def test_several_processes_send_the_one_schedule(web: str) -> None:
    target = LoadTarget(web, "rest", "/right")
    found = run_load(target, [b"good", b"bad"], qps=50, duration_s=1, arrivals="uniform", processes=2)
    assert (found.num_due, found.num_ok) == (50, 25)
    np.testing.assert_allclose(found.samples.due_s, np.arange(50) / 50)
    assert found.samples.codes.tolist() == [0, 14] * 25


def test_windows_hold_every_time_once() -> None:
    parts = windows(np.array([0.0, 0.9, 1.0, 2.0]), end_s=2.0, width_s=1.0)
    assert [part.tolist() for part in parts] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("codes", [[0, 0, 14], [14, 14, 14]])
def test_the_picture_is_drawn_whatever_came(tmp_path: Path, codes: list[int]) -> None:
    found = figures(samples([0, 1, 2], [0, 1, 2], [0.1, 1.1, 2.1], codes), qps=1.0)
    plot(found, tmp_path / "a.png", title="$x")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")

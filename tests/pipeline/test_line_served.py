"""The published model behind a real server: what it answers is what was judged, and a newer version takes over."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest

from preprocessing.dataset import open_dataset
from tests.pipeline.tiny_line import ROWS_PER_DAY, Outcome, rankmill, tiny_line

pytestmark = pytest.mark.serving
TIMEOUT_S = 120.0


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def serve(config: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen([sys.executable, "-m", "pipeline", "serve", str(config)], stdout=file, stderr=file)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("served")
    port, rest_port = free_ports(2)
    config = tiny_line(root, serve={"port": port, "rest_port": rest_port})
    assert rankmill("run", config).code == 0
    server = serve(config, root / "server.log")
    yield root
    server.terminate()
    assert server.wait(30) in (0, -15)


def raw_rows(root: Path) -> list[dict[str, Any]]:
    """Returns the raw rows of the test split as a client would send them, in record order."""
    rows = []
    (folder,) = (path for path in (root / "work" / "dataset").iterdir() if not path.name.startswith("."))
    dataset = open_dataset(folder)
    for path in (folder / shard.rows for shard in dataset.splits["test"]):
        for row in pq.read_table(path, columns=["user", "item", "category", "price"]).to_pylist():
            plain = {name: value.decode() if isinstance(value, bytes) else value for name, value in row.items()}
            rows.append({name: value for name, value in plain.items() if value is not None})
    return rows


def offline_scores(run: Path) -> npt.NDArray[np.float32]:
    folder = Path(json.loads((run / "run.json").read_text())["evaluate"]["folder"])
    scores: npt.NDArray[np.float32] = np.load(folder / "scores-test.npy")[:, 0]
    return scores


def scores_of(outcome: Outcome) -> npt.NDArray[np.float64]:
    assert (outcome.code, outcome.err) == (0, "")
    return np.array([json.loads(line)["click"] for line in outcome.out.splitlines()])


def first_run(root: Path) -> Path:
    return Path(rankmill("run", root / "config.yaml").last_line)


@pytest.mark.parametrize("api", ["grpc", "rest"])
def test_served_scores_are_the_offline_scores_of_the_same_raw_rows(served: Path, api: str) -> None:
    rows = served / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in raw_rows(served)))
    assert any("price" not in json.loads(line) for line in rows.read_text().splitlines())
    found = scores_of(rankmill("predict", served / "config.yaml", "--rows", rows, "--api", api, "--wait", TIMEOUT_S))
    expected = offline_scores(first_run(served))
    assert found.shape == expected.shape == (ROWS_PER_DAY,)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_a_sample_of_the_test_split_is_asked_without_a_file(served: Path) -> None:
    found = scores_of(rankmill("predict", served / "config.yaml", "--sample", 7, "--wait", TIMEOUT_S))
    np.testing.assert_allclose(found, offline_scores(first_run(served))[:7], rtol=0, atol=1e-6)


def test_a_column_that_the_model_does_not_have_is_one_line(served: Path) -> None:
    rows = served / "unknown.jsonl"
    rows.write_text('{"user": "u1", "itm": "i1"}\n')
    outcome = rankmill("predict", served / "config.yaml", "--rows", rows, "--wait", TIMEOUT_S)
    assert outcome.code == 1
    (line,) = outcome.err.splitlines()
    assert "no column 'itm'; nearest column: 'item'" in line


def test_a_port_in_use_is_one_clear_line(served: Path) -> None:
    ports = free_ports(2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ports[0]))
        taken.listen()
        second = subprocess.run(
            [sys.executable, "-m", "pipeline", "serve", str(served / "config.yaml"),
             "--set", f"serve.port={ports[0]}", "--set", f"serve.rest_port={ports[1]}"],
            check=False, capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
    assert second.returncode != 0
    assert "Traceback" not in second.stderr
    assert str(ports[0]) in second.stderr.splitlines()[-1]


def test_a_newer_version_is_picked_up_without_a_restart(served: Path) -> None:
    changed = rankmill("run", served / "config.yaml", "--set", "seed=2")
    assert "published as version 2" in changed.out
    expected = offline_scores(Path(changed.last_line))
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        found = scores_of(rankmill("predict", served / "config.yaml", "--rows", served / "rows.jsonl"))
        if np.abs(found - expected).max() <= 1e-6:
            break
        assert time.monotonic() < deadline
        time.sleep(0.5)

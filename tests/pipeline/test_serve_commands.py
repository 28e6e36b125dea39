"""loadtest, shadow and monitor: what they refuse without a server, and a whole round on a served line."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.shadow import newest_rows
from preprocessing.errors import SourceError
from tests.pipeline.tiny_line import rankmill, tiny_line

TIMEOUT_S = 120


def log_file(path: Path, times_ms: list[int]) -> None:
    pq.write_table(pa.table({"@time_ms": times_ms, "user": [f"u{time}" for time in times_ms]}), path)


def test_the_newest_rows_are_taken_across_files_in_order_of_time(tmp_path: Path) -> None:
    log_file(tmp_path / "1.parquet", [1, 2, 3])
    log_file(tmp_path / "2.parquet", [6, 5])
    log_file(tmp_path / "3.parquet", [4, 7])
    assert newest_rows(tmp_path, 3)["@time_ms"].to_pylist() == [5, 6, 7]
    assert newest_rows(tmp_path, 100)["user"].to_pylist() == [f"u{time}" for time in range(1, 8)]
    assert newest_rows(tmp_path / "1.parquet", 2)["@time_ms"].to_pylist() == [2, 3]


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no finished file"):
        newest_rows(tmp_path, 3)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("loadtest", "--set", "serve.host=10.0.0.1"), "--allow-remote"),
        (("loadtest", "--version", "1", "--label", "stable"), "one of --version and --label"),
        (("shadow", "nowhere", "--against", "log"), "both sides are 'log'"),
        (("shadow", "nowhere", "--against", "1"), "nowhere holds no finished file"),
    ],
)
def test_mistakes_are_one_line_before_any_work(tmp_path: Path, command: tuple[str, ...], text: str) -> None:
    config = tiny_line(tmp_path)
    outcome = rankmill(command[0], config, *command[1:])
    assert outcome.code != 0
    assert text in " ".join(outcome.err.split())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("commands")
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        ports = {"port": one.getsockname()[1], "rest_port": other.getsockname()[1]}
    log = {"dir": str(root / "log")}
    config = tiny_line(root, serve={**ports, "request_log": log, "monitor": {"min_rows": 50}})
    assert rankmill("run", config).code == 0
    with (root / "server.log").open("wb") as file:
        server = subprocess.Popen([sys.executable, "-m", "pipeline", "serve", str(config)], stdout=file, stderr=file)
    try:
        assert rankmill("predict", config, "--sample", 60, "--wait", TIMEOUT_S).code == 0
        yield root
    finally:
        server.terminate()
        server.wait(30)


@pytest.mark.serving
@pytest.mark.slow
def test_requests_are_replayed_and_watched_and_load_is_put_on(served: Path) -> None:
    config, log = served / "config.yaml", served / "log"
    same = rankmill("shadow", config, log, "--against", "stable", "--max-difference", "1e-6", "--json")
    assert same.code == 0, same.err
    assert json.loads(same.last_line)["click"]["num_rows"] == 60

    moved = served / "moved"
    moved.mkdir()
    (path,) = log.glob("*.parquet")
    table = pq.read_table(path)
    place = table.column_names.index("@score.click")
    changed = pa.array(table["@score.click"].to_numpy() + np.float32(0.1))
    pq.write_table(table.set_column(place, "@score.click", changed), moved / "a.parquet")
    other = rankmill("shadow", config, moved, "--against", "1", "--max-difference", "0.05", "--json")
    assert other.code == 1
    assert json.loads(other.last_line)["click"]["largest"] == pytest.approx(0.1, abs=1e-5)

    fine = rankmill("monitor", config, log, "--html", served / "page.html", "--max-oov-share", "0.5")
    assert fine.code == 0, fine.out
    assert "Requests: " in (served / "page.html").read_text(encoding="utf-8")
    users = pa.array([b"nobody"] * table.num_rows)
    pq.write_table(table.set_column(table.column_names.index("user"), "user", users), moved / "a.parquet")
    drifted = rankmill("monitor", config, moved, "--max-oov-share", "0.5", "--json")
    assert drifted.code == 1
    found = {one["name"]: one for one in json.loads(drifted.last_line)["columns"]}
    assert found["user"]["oov_share"] == 1.0

    for signature in ("serving_default", "packed", "rank"):
        options = ("--qps", 10, "--duration", 2, "--batch", 5, "--timeout", 60, "--signature", signature)
        loaded = rankmill("loadtest", config, *options, "--out", served / signature, "--json")
        assert loaded.code == 0, loaded.err + loaded.out
        assert json.loads((served / signature / "loadtest.json").read_text())["errors"] == {}
        assert (served / signature / "loadtest.png").exists()

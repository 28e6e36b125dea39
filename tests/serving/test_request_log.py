"""The request log: what is kept, that nothing waits for it, and that a kill loses no finished batch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preprocessing.errors import SourceError
from serving import request_log
from serving.client_calls import Answer, Asked, Selected, SignatureInfo
from serving.client_record import Exchange
from serving.request_log import RequestLog
from serving.request_log_files import OpenFile, finish_left_behind, read_log
from serving.request_log_rows import raw_columns, score_columns, to_batch
from serving.request_log_spec import RequestLogSpec
from serving.rows import InputColumn

ROOT = Path(__file__).parents[2]
INFO = SignatureInfo(
    (
        InputColumn("user", "DT_STRING", (-1,)),
        InputColumn("price", "DT_FLOAT", (-1,)),
        InputColumn("age", "DT_INT64", (-1,)),
        InputColumn("tags", "DT_STRING", (-1, 3)),
    ),
    {"click": "DT_FLOAT"},
)


def exchange(rows: list[dict[str, Any]], *, request_id: str = "", version: int | None = 7) -> Exchange:
    scores = np.arange(len(rows), dtype=np.float32) / 4
    asked = Asked(Selected("shop", None, "stable"), "serving_default", {})
    answer = Answer({"click": scores}, version)
    return Exchange(rows, asked, INFO, answer, started_ms=1000, latency_ms=2.5, request_id=request_id)


def test_a_row_is_what_the_model_got_with_missing_values_as_null() -> None:
    batch = to_batch(exchange([{"user": "a", "tags": ["x", None, "y"]}, {"price": 1.5, "age": 3, "user": None}]))
    assert batch.column("user").to_pylist() == [b"a", None]
    assert batch.column("price").to_pylist() == [None, 1.5]
    assert batch.column("age").to_pylist() == [None, 3]
    assert batch.column("tags").to_pylist() == [[b"x", None, b"y"], []]
    assert batch.column("@score.click").to_pylist() == [0.0, 0.25]
    assert batch.column("@version").to_pylist() == [7, 7]
    assert batch.column("@row").to_pylist() == [0, 1]
    assert batch.column("@label").to_pylist() == ["stable", "stable"]
    assert batch.column("@time_ms").to_pylist() == [1000, 1000]
    assert sorted(raw_columns(batch.schema)) == ["age", "price", "tags", "user"]
    assert score_columns(batch.schema) == ["click"]


def test_an_empty_text_is_not_missing() -> None:
    assert to_batch(exchange([{"user": ""}, {"user": "\0\0"}])).column("user").to_pylist() == [b"", b"\0\0"]


def test_an_unknown_version_is_null() -> None:
    assert to_batch(exchange([{}], version=None)).column("@version").to_pylist() == [None]


def test_closing_finishes_the_file(tmp_path: Path) -> None:
    with RequestLog(RequestLogSpec(dir=str(tmp_path))) as log:
        for number in range(5):
            log.record(exchange([{"age": number}]))
    (table,) = read_log(tmp_path)
    assert table["age"].to_pylist() == [0, 1, 2, 3, 4]
    assert (log.written, log.dropped, log.failed) == (5, 0, 0)
    assert not list(tmp_path.glob(".*"))


def test_a_file_is_finished_by_size_and_none_is_lost(tmp_path: Path) -> None:
    with RequestLog(RequestLogSpec(dir=str(tmp_path), max_file_mb=0.005)) as log:
        for number in range(20):
            log.record(exchange([{"age": number}]))
    tables = list(read_log(tmp_path))
    assert len(tables) > 1
    assert sorted(pa.concat_tables(tables)["age"].to_pylist()) == list(range(20))


def test_a_file_is_finished_by_age_without_a_further_request(tmp_path: Path) -> None:
    with RequestLog(RequestLogSpec(dir=str(tmp_path), max_file_s=0.01)) as log:
        log.record(exchange([{"age": 1}]))
        deadline = time.monotonic() + 20
        while not list(tmp_path.glob("*.parquet")):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_the_draw_follows_from_id_and_seed_and_keeps_the_share(tmp_path: Path) -> None:
    spec = RequestLogSpec(dir=str(tmp_path), sample=0.25, seed=3)
    with RequestLog(spec) as one, RequestLog(spec) as other, RequestLog(spec.model_copy(update={"seed": 4})) as third:
        ids = [f"r{number}" for number in range(4000)]
        kept = [one.wants(name) for name in ids]
        assert kept == [other.wants(name) for name in ids]
        assert kept != [third.wants(name) for name in ids]
        assert sum(kept) == pytest.approx(1000, abs=4 * np.sqrt(4000 * 0.25 * 0.75))
        assert 800 < sum(one.wants("") for _ in range(4000)) < 1200


def test_a_full_queue_drops_and_counts_and_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    def wait(one: Exchange) -> pa.RecordBatch:
        go.wait(20)
        return to_batch(one)

    monkeypatch.setattr(request_log, "to_batch", wait)
    log = RequestLog(RequestLogSpec(dir=str(tmp_path), max_queued=2))
    start = time.monotonic()
    for _ in range(50):
        log.record(exchange([{}]))
    assert time.monotonic() - start < 5
    assert log.dropped >= 47
    go.set()
    log.close()
    assert log.written + log.dropped == 50


def test_a_folder_that_cannot_be_written_fails_no_request(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with RequestLog(RequestLogSpec(dir=str(tmp_path / "file" / "log"))) as log:
        log.record(exchange([{}]))
    assert log.failed >= 1
    assert log.written == 0


def test_a_new_signature_begins_a_new_file(tmp_path: Path) -> None:
    other = SignatureInfo((InputColumn("age", "DT_INT64", (-1,)),), {"click": "DT_FLOAT"})
    with RequestLog(RequestLogSpec(dir=str(tmp_path))) as log:
        log.record(exchange([{"age": 1}]))
        first = exchange([{"age": 2}])
        log.record(Exchange(first.rows, first.asked, other, first.answer, 1, 1.0, ""))
    assert sorted(len(table.column_names) for table in read_log(tmp_path)) == [10, 13]


def test_a_torn_batch_costs_itself_only(tmp_path: Path) -> None:
    batch = to_batch(exchange([{"age": 5}]))
    file = OpenFile(tmp_path, batch.schema)
    file.write(batch)
    whole = file.size_bytes()
    file.write(batch)
    (path,) = tmp_path.glob(".*.open")
    content = path.read_bytes()[: whole + 40]
    file.finish()
    left = tmp_path / "left"
    left.mkdir()
    (left / ".x.open").write_bytes(content)
    assert finish_left_behind(left) == 1
    (table,) = read_log(left)
    assert table["age"].to_pylist() == [5]


def test_an_open_file_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    batch = to_batch(exchange([{}]))
    file = OpenFile(tmp_path, batch.schema)
    file.write(batch)
    assert finish_left_behind(tmp_path) == 0
    with pytest.raises(SourceError, match="1 still being written"):
        list(read_log(tmp_path))
    file.finish()
    assert len(list(read_log(tmp_path))) == 1


def test_a_killed_process_loses_no_written_row(tmp_path: Path) -> None:
    code = (
        "import sys, time; from tests.serving.test_request_log import exchange\n"
        "from serving.request_log import RequestLog; from serving.request_log_spec import RequestLogSpec\n"
        "log = RequestLog(RequestLogSpec(dir=sys.argv[1]))\n"
        "for n in range(3): log.record(exchange([{'age': n}]))\n"
        "while log.written < 3: time.sleep(0.01)\n"
        "print('written', flush=True); time.sleep(60)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        timer = threading.Timer(60, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "written\n"
        finally:
            timer.cancel()
            os.kill(process.pid, signal.SIGKILL)
    assert not list(tmp_path.glob("*.parquet"))
    with RequestLog(RequestLogSpec(dir=str(tmp_path))):
        pass
    (path,) = tmp_path.glob("*.parquet")
    assert pq.read_table(path)["age"].to_pylist() == [0, 1, 2]


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match="no column @time_ms"):
        list(read_log(tmp_path))

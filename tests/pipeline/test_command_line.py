"""The command line: exit codes, one clear line for what the user got wrong, and predictions asked of no server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from pipeline import __main__ as command_line
from pipeline.interrupts import noticed_interrupts
from pipeline.request_rows import read_rows_file
from preprocessing.errors import ConfigError
from tests.pipeline.tiny_line import Outcome, rankmill, tiny_line


def one_line(outcome: Outcome, *, code: int) -> str:
    assert outcome.code == code
    (line,) = outcome.err.splitlines()
    assert line.startswith("error: ")
    return line


def test_the_schema_is_json(tmp_path: Path) -> None:
    outcome = rankmill("schema")
    assert outcome.code == 0
    assert {"data", "features", "model", "train", "gate"} <= set(json.loads(outcome.out)["properties"])


@pytest.mark.parametrize("arguments", [["nonsense"], ["run"], ["run", "a.yaml", "--nonsense"], ["simulate"]])
def test_a_wrong_call_is_a_usage_error(arguments: list[str]) -> None:
    outcome = rankmill(*arguments)
    assert outcome.code == 2
    assert "Error" in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.kidn=deepfm", "model.kidn: unknown key; did you mean 'kind'?"),
        ("model.kind=deepmf", "did you mean 'deepfm'?"),
        ("train.batch_size", "expected a.b.c=value"),
        ("data.impressions=logs", "'logs'"),
    ],
)
def test_a_wrong_config_is_one_line_before_any_work(tmp_path: Path, override: str, message: str) -> None:
    config = tiny_line(tmp_path)
    for command in ("run", "preprocess", "train", "gate", "publish", "serve"):
        assert message in one_line(rankmill(command, config, "--set", override), code=2)
    assert not (tmp_path / "work").exists()


def test_a_config_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    assert "no such config file" in one_line(rankmill("run", tmp_path / "no.yaml"), code=2)


def test_several_mistakes_are_a_line_each(tmp_path: Path) -> None:
    outcome = rankmill("run", tiny_line(tmp_path), "--set", "seed=-1", "--set", "train.epochs=many")
    assert outcome.code == 2
    assert len(outcome.err.splitlines()) == 2


def test_simulate_writes_logs_once(tmp_path: Path) -> None:
    arguments = ["simulate", "--out", tmp_path / "logs", "--days", 2, "--rows-per-day", 100]
    done = rankmill(*arguments)
    assert (done.code, done.last_line) == (0, str(tmp_path / "logs"))
    assert "best possible AUC" in done.out
    assert rankmill(*arguments) == done
    assert "holds the logs of another simulation" in one_line(rankmill(*arguments, "--seed", 8), code=1)
    assert "not a day" in one_line(rankmill(*arguments, "--start", "tomorrow"), code=2)


def test_serving_without_a_version_says_what_to_run(tmp_path: Path) -> None:
    assert "holds no version; run `rankmill run` first" in one_line(rankmill("serve", tiny_line(tmp_path)), code=1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"", "holds no row"),
        (b'{"user": "u1"}\n{"user": ', "line 2: not JSON"),
        (b"[1, 2]\n", "line 1: a row is a JSON object"),
        (b'{"user": "\xff"}', "cannot be read as UTF-8"),
    ],
)
def test_rows_that_are_no_rows_are_one_line(tmp_path: Path, content: bytes | None, message: str) -> None:
    config, rows = tiny_line(tmp_path), tmp_path / "rows.jsonl"
    if content is not None:
        rows.write_bytes(content)
    assert message in one_line(rankmill("predict", config, "--rows", rows), code=2)


def test_rows_or_a_sample_and_not_both(tmp_path: Path) -> None:
    config = tiny_line(tmp_path)
    assert "give one of" in one_line(rankmill("predict", config), code=2)
    assert "give one of" in one_line(rankmill("predict", config, "--rows", "x", "--sample", 2), code=2)
    assert "run `rankmill preprocess` first" in one_line(rankmill("predict", config, "--sample", 2), code=1)


def test_a_row_may_hold_any_character(tmp_path: Path) -> None:
    rows = [{"user": "line\u2028separator\x85and\x0cfeed"}, {"user": "é\x00"}]
    path = tmp_path / "rows.jsonl"
    path.write_text("\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8", newline="")
    assert read_rows_file(path) == rows
    with pytest.raises(ConfigError, match="no such file"):
        read_rows_file(tmp_path / "none")


@pytest.mark.parametrize("api", ["grpc", "rest"])
def test_no_server_is_one_line(tmp_path: Path, api: str) -> None:
    config, rows = tiny_line(tmp_path), tmp_path / "rows.jsonl"
    rows.write_text('{"user": "u1"}\n')
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        ports = ["--set", f"serve.port={port}", "--set", f"serve.rest_port={port}"]
        line = one_line(rankmill("predict", config, "--rows", rows, "--api", api, *ports), code=1)
        assert str(port) in line
        waited = rankmill("predict", config, "--rows", rows, "--api", api, "--wait", 0.2, *ports)
        assert "was not available" in one_line(waited, code=1)


def raising(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


def interrupted_inside_native_code() -> None:
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        raise AttributeError("what native code makes of it") from None


@pytest.mark.parametrize("command", [raising(KeyboardInterrupt()), interrupted_inside_native_code])
def test_an_interrupt_ends_with_its_own_code(command: Callable[[], None]) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with mock.patch.object(command_line, "app", lambda **_: command()):
            outcome = rankmill()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert (outcome.code, outcome.err) == (130, "interrupted; the same command goes on from here\n")


def test_an_interrupt_that_the_command_library_catches_ends_with_its_own_code() -> None:
    with mock.patch("json.dumps", raising_with_arguments(KeyboardInterrupt())):
        assert rankmill("schema").code == 130


def raising_with_arguments(error: BaseException) -> Callable[..., str]:
    def function(*_: object, **__: object) -> str:
        raise error

    return function


def test_a_process_that_ignores_interrupts_still_does() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with noticed_interrupts() as was_interrupted:
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            assert not was_interrupted()
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_error_that_nobody_made_on_purpose_keeps_its_traceback() -> None:
    with (
        mock.patch.object(command_line, "app", lambda **_: raising(ZeroDivisionError("oh"))()),
        mock.patch.object(sys, "argv", ["rankmill"]),
        pytest.raises(ZeroDivisionError),
    ):
        command_line.main()


def test_a_terminal_without_unicode_is_no_reason_to_stop(tmp_path: Path) -> None:
    from io import BytesIO, TextIOWrapper

    from pipeline.artefacts import Plan
    from pipeline.display import Display

    for encoding, mark in (("ascii", b">"), ("utf-8", "▶".encode())):
        raw = BytesIO()
        with mock.patch.object(sys, "stdout", TextIOWrapper(raw, encoding=encoding)) as out:
            display = Display()
            with display.stage(Plan("train", tmp_path, {})):
                pass
            display.verdicts([])
            out.flush()
            assert raw.getvalue().startswith(mark)


def test_commands_begin_without_the_libraries_that_take_seconds_to_import() -> None:
    code = (
        "import sys, pipeline.__main__, pipeline.compare\n"
        "print(sorted({'tensorflow', 'apache_beam', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"

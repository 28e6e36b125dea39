"""Command lines of servers, and what is said when one does not come up."""

import sys
from pathlib import Path
from typing import Any

import pytest

from preprocessing.errors import ServingError
from serving.launch import ServeOptions, serve_command, start, wait_until_available
from serving.server.flags import parse

_OPTIONS = ServeOptions(
    model_name="shop", model_base_path=Path("/m/shop"), port=1, rest_api_port=2, flags={"enable_batching": True, "x": 3}
)


def test_takes_the_binary_when_there_is_one() -> None:
    assert serve_command(_OPTIONS, binary="/bin/tms") == [
        "/bin/tms", "--port=1", "--rest_api_port=2", "--model_name=shop", "--model_base_path=/m/shop",
        "--enable_batching=true", "--x=3",
    ]  # fmt: skip


def test_takes_the_embedded_server_otherwise_with_the_same_flags() -> None:
    command = serve_command(_OPTIONS)
    assert command[:3] == [sys.executable, "-m", "serving.server"]
    assert command[3:-1] == serve_command(_OPTIONS, binary="x")[1:]
    assert command[-1] == "--bind_address=127.0.0.1"
    assert serve_command(_OPTIONS, backend="embedded", binary="x") == command
    flags, unknown = parse(command[3:])
    assert (flags.model_name, flags.port, unknown) == ("shop", 1, ("--x=3",))


def test_a_container_publishes_on_the_bind_address_and_mounts_read_only() -> None:
    command = serve_command(_OPTIONS, backend="docker", docker_image="tensorflow/serving:2.19.0")
    assert command == [
        "docker", "run", "--rm", "-p", "127.0.0.1:1:8500", "-p", "127.0.0.1:2:8501",
        "-v", "/m/shop:/models/shop:ro", "-e", "MODEL_NAME=shop", "tensorflow/serving:2.19.0",
        "--enable_batching=true", "--x=3",
    ]  # fmt: skip


def test_a_config_file_takes_the_place_of_name_and_path() -> None:
    options = ServeOptions(model_config_file=Path("/c/models.config"), mounts=(Path("/m"),))
    assert "--model_config_file=/c/models.config" in serve_command(options)
    assert not any(part.startswith("--model_name") for part in serve_command(options))
    docker = serve_command(options, backend="docker")
    # the folder, not the file: a mounted file does not change when it is replaced by rename
    assert {"/m:/m:ro", "/c:/c:ro"} <= set(docker)
    assert not any("models.config:" in part for part in docker)


def test_a_missing_binary_or_model_is_an_error() -> None:
    with pytest.raises(ServingError, match="not on PATH"):
        serve_command(_OPTIONS, backend="binary")
    with pytest.raises(ServingError, match="nothing to serve"):
        serve_command(ServeOptions())
    with pytest.raises(ServingError, match="cannot start"):
        start(["/no/such/program"], log_path=Path("/dev/null"))


def test_a_server_that_dies_is_reported_with_the_end_of_its_log(tmp_path: Any, free_port: Any) -> None:
    server = start([sys.executable, "-c", "print('no such model'); raise SystemExit(3)"], log_path=tmp_path / "log")
    with pytest.raises(ServingError, match=r"(?s)ended with code 3.*no such model"):
        wait_until_available("127.0.0.1", free_port(), model_name="m", timeout_s=30, server=server)


def test_a_server_that_never_answers_is_given_up_and_can_be_stopped(tmp_path: Any, free_port: Any) -> None:
    server = start([sys.executable, "-c", "import time; time.sleep(60)"], log_path=tmp_path / "log")
    with pytest.raises(ServingError, match="was not available"):
        wait_until_available("127.0.0.1", free_port(), model_name="m", timeout_s=0.3, server=server)
    assert server.stop() != 0

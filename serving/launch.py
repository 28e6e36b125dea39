"""Starts a model server: TF Serving's binary if there is one, its container if asked, else the embedded server.

The flags are the same for all three. The binary and the container listen where their own rules say: the binary on
every address, the container on the host address that its ports are published on.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import httpx

from preprocessing.errors import ServingError

__all__ = ["ServeOptions", "ServerProcess", "find_binary", "serve_command", "start", "wait_until_available"]

BINARY = "tensorflow_model_server"
_POLL_S = 0.1
_STOP_S = 10.0
_LOG_LINES = 20


@dataclasses.dataclass(frozen=True)
class ServeOptions:
    """What to serve and where; `flags` are further flags of the model server by name.

    Give `model_base_path`, or `model_config_file` for several models. With a container, the folder of that file and
    `mounts`, the folders that it and the flags name, are mounted, read-only, under the same paths.
    """

    model_name: str = "default"
    model_base_path: Path | None = None
    model_config_file: Path | None = None
    port: int = 8500
    rest_api_port: int = 8501
    bind_address: str = "127.0.0.1"
    flags: Mapping[str, str | int | bool] = dataclasses.field(default_factory=dict)
    mounts: tuple[Path, ...] = ()


def find_binary() -> str | None:
    """Returns the path of TF Serving's binary, or None if it is not on PATH."""
    return shutil.which(BINARY)


def serve_command(
    options: ServeOptions,
    *,
    backend: Literal["auto", "binary", "docker", "embedded"] = "auto",
    binary: str | None = None,
    docker_image: str = "tensorflow/serving:latest",
) -> list[str]:
    """Returns the command line of a server.

    Args:
        options: what to serve and where.
        backend: "auto" takes the binary if `binary` is given, else the embedded server.
        binary: path of TF Serving's binary, as `find_binary` returns it.
        docker_image: of the container.

    Raises:
        ServingError: if there is nothing to serve, or the binary is wanted and not there.
    """
    if options.model_base_path is None and options.model_config_file is None:
        raise ServingError("nothing to serve: give model_base_path or model_config_file")
    if backend == "docker":
        return _docker_command(options, docker_image)
    if backend == "binary" and binary is None:
        raise ServingError(f"{BINARY} is not on PATH; install TF Serving, or use the embedded server or docker")
    ports = [f"--port={options.port}", f"--rest_api_port={options.rest_api_port}"]
    common = ports + _model_flags(options) + _further_flags(options.flags)
    if binary is not None and backend in {"auto", "binary"}:
        return [binary, *common]
    return [sys.executable, "-m", "serving.server", *common, f"--bind_address={options.bind_address}"]


def _model_flags(options: ServeOptions) -> list[str]:
    if options.model_config_file is not None:
        return [f"--model_config_file={options.model_config_file.absolute()}"]
    base_path = (options.model_base_path or Path()).absolute()
    return [f"--model_name={options.model_name}", f"--model_base_path={base_path}"]


def _further_flags(flags: Mapping[str, str | int | bool]) -> list[str]:
    return [f"--{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in flags.items()]


def _docker_command(options: ServeOptions, image: str) -> list[str]:
    command = ["docker", "run", "--rm"]
    if options.port:
        command += ["-p", f"{options.bind_address}:{options.port}:8500"]
    if options.rest_api_port:
        command += ["-p", f"{options.bind_address}:{options.rest_api_port}:8501"]
    if options.model_config_file is not None:
        # The folder of the file: a file that is mounted by itself stays the old one when it is replaced by rename.
        folders = {path.absolute(): None for path in (options.model_config_file.parent, *options.mounts)}
        for path in folders:
            command += ["-v", f"{path}:{path}:ro"]
        return [*command, image, *_model_flags(options), *_further_flags(options.flags)]
    base_path = (options.model_base_path or Path()).absolute()
    command += ["-v", f"{base_path}:/models/{options.model_name}:ro", "-e", f"MODEL_NAME={options.model_name}"]
    return [*command, image, *_further_flags(options.flags)]


@dataclasses.dataclass(frozen=True)
class ServerProcess:
    """A server that was started, and the file that its output goes to."""

    process: subprocess.Popen[bytes]
    log_path: Path

    def last_log_lines(self) -> str:
        """Returns the end of the log."""
        try:
            lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            return f"(no log: {error})"
        return "\n".join(lines[-_LOG_LINES:])

    def stop(self, *, timeout_s: float = _STOP_S) -> int:
        """Asks the server to end, and kills it if it does not; returns its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def start(command: Sequence[str], *, log_path: Path) -> ServerProcess:
    """Starts a server whose output goes to `log_path`.

    Raises:
        ServingError: if the program cannot be started.
    """
    root = str(Path(__file__).resolve().parent.parent)
    search_path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    environment = {"TF_CPP_MIN_LOG_LEVEL": "1", **os.environ, "PYTHONPATH": search_path}
    try:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
    except OSError as error:
        raise ServingError(f"cannot start {command[0]}: {error}") from error
    return ServerProcess(process, log_path)


def wait_until_available(
    host: str, rest_port: int, *, model_name: str, timeout_s: float, server: ServerProcess | None = None
) -> None:
    """Returns when a version of the model is AVAILABLE.

    Args:
        host: of the server.
        rest_port: its HTTP port.
        model_name: as served.
        timeout_s: how long to wait.
        server: if given, its end is noticed and its log is in the error.

    Raises:
        ServingError: if the server ended or the time is over, with the last lines of its log.
    """
    deadline = time.monotonic() + timeout_s
    url = f"http://{host}:{rest_port}/v1/models/{model_name}"
    with httpx.Client(timeout=2.0, trust_env=False) as http:
        while time.monotonic() < deadline:
            if _is_available(http, url):
                return
            if server is not None and server.process.poll() is not None:
                raise ServingError(f"the model server ended with code {server.process.returncode}{_log_of(server)}")
            time.sleep(_POLL_S)
    raise ServingError(f"model {model_name} was not available at {url} within {timeout_s:g} s{_log_of(server)}")


def _is_available(http: httpx.Client, url: str) -> bool:
    try:
        response = http.get(url)
        found = response.json().get("model_version_status", []) if response.status_code == httpx.codes.OK else []
    except (httpx.HTTPError, ValueError):
        return False
    return any(version.get("state") == "AVAILABLE" for version in found)


def _log_of(server: ServerProcess | None) -> str:
    return "" if server is None else f"; the end of its log:\n{server.last_log_lines()}"

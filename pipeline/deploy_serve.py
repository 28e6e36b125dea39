"""What is deployed to serve a model, whatever runs it: the server's command line and the files that it reads.

The server reads `models.config` in the store, which `publish`, `promote` and `rollback` rewrite: a label is moved
without a new deployment. The store is seen under the same path as where it was written, or is a copy of a remote one
that `rankmill sync` keeps.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
from pathlib import Path

from pipeline.config import Config
from preprocessing.errors import ConfigError
from serving.deployment import ServerFiles, batching_text, monitoring_text, production_flags
from serving.version_store import latest, version_path

__all__ = ["MODELS_FILE", "ServeDeployment", "config_texts", "default_image", "server_flags", "smallest_memory"]

MODELS_FILE = "models.config"
BATCHING_FILE = "batching.config"
MONITORING_FILE = "monitoring.config"
_OVERHEAD = 512 << 20


@dataclasses.dataclass(frozen=True)
class ServeDeployment:
    """What to deploy.

    Attributes:
        config: of the line.
        store: the folder of `models.config`, as the server sees it.
        files: the folder of the other config files, as the server sees it.
        port: of gRPC.
        rest_port: of HTTP.
    """

    config: Config
    store: Path
    files: Path
    port: int = 8500
    rest_port: int = 8501

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.config.export.model_name


def config_texts(config: Config) -> dict[str, str]:
    """Returns the server's config files, by name, that do not change with versions."""
    texts = {MONITORING_FILE: monitoring_text()}
    if config.serve.batching is not None:
        texts[BATCHING_FILE] = batching_text(config.serve.batching)
    return texts


def server_flags(deployment: ServeDeployment) -> list[str]:
    """Returns the arguments of `tensorflow_model_server`."""
    serve = deployment.config.serve
    files = ServerFiles(
        models=deployment.store / MODELS_FILE,
        monitoring=deployment.files / MONITORING_FILE,
        batching=None if serve.batching is None else deployment.files / BATCHING_FILE,
    )
    flags = production_flags(files, threads=serve.threads, poll_s=serve.poll_s)
    ports = [f"--port={deployment.port}", f"--rest_api_port={deployment.rest_port}"]
    return ports + [f"--{name}={_text(value)}" for name, value in flags.items()]


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def smallest_memory(store: Path) -> int | None:
    """Returns the bytes that serving the newest version takes while another takes its place; None without one."""
    version = latest(store)
    if version is None:
        return None
    size = sum(path.stat().st_size for path in version_path(store, version).rglob("*") if path.is_file())
    return 2 * size + _OVERHEAD


def check_memory(store: Path, *, given: float, flag: str) -> None:
    """Raises ConfigError if two copies of the newest version in a store would not fit."""
    needed = smallest_memory(store)
    if needed is not None and given < needed:
        raise ConfigError(
            f"{flag}: the newest version in {store} takes {needed / (1 << 20):.0f} MiB while the next one loads "
            "(two copies, and the server); give at least that"
        )


def default_image() -> str:
    """Returns TF Serving's image of the release that the exported models are made for."""
    return f"tensorflow/serving:{importlib.metadata.version('tensorflow-serving-api')}"

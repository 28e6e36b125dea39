"""What `rankmill loadtest` does: rows of the config's data, completed as a client would, at a rate."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from pipeline.config import Config
from pipeline.publish_features import complete_rows
from serving.client_calls import Selected
from serving.load_figures import LoadResult
from serving.load_requests import load_requests
from serving.load_schedule import Arrivals
from serving.loadtest import run_load

__all__ = ["Load", "run_loadtest", "write_result"]


@dataclasses.dataclass(frozen=True)
class Load:
    """What is sent and how: see `serving.loadtest.run_load` and `serving.load_requests.load_requests`."""

    qps: float
    duration_s: float
    api: Literal["grpc", "rest"]
    signature: str
    batch: int
    arrivals: Arrivals
    timeout_s: float
    processes: int
    version: int | None
    label: str | None
    allow_remote: bool


def run_loadtest(
    config: Config, load: Load, rows: Sequence[dict[str, Any]], *, observe: Callable[[int], None] = lambda sent: None
) -> LoadResult:
    """Returns the figures of a load test on the config's server.

    Args:
        config: says where the server is and what the model is called.
        load: what is sent and how.
        rows: raw rows; what the model looks up is added.
        observe: told the number of requests sent so far.

    Raises:
        ConfigError: if the server is another machine and that is not allowed, or there are too few rows.
        ServingError: if the server cannot be reached or a row does not fit.
    """
    port = config.serve.port if load.api == "grpc" else config.serve.rest_port
    target, bodies = load_requests(
        f"{config.serve.host}:{port}",
        complete_rows(config, rows),
        selected=Selected(config.export.model_name, load.version, load.label),
        api=load.api,
        signature=load.signature,
        batch=load.batch,
    )
    return run_load(
        target,
        bodies,
        qps=load.qps,
        duration_s=load.duration_s,
        arrivals=load.arrivals,
        timeout_s=load.timeout_s,
        seed=config.seed,
        processes=load.processes,
        allow_remote=load.allow_remote,
        observe=observe,
    )


def write_result(result: LoadResult, load: Load, folder: Path) -> list[Path]:
    """Writes loadtest.json and loadtest.png into a folder and returns their paths."""
    from serving.load_plot import plot

    folder.mkdir(parents=True, exist_ok=True)
    figures, picture = folder / "loadtest.json", folder / "loadtest.png"
    machine = {"machine": platform.machine(), "python": platform.python_version()}
    content = {"load": dataclasses.asdict(load), **result.to_json(), **machine}
    figures.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    title = f"{load.qps:g} requests/s of {load.batch} rows, {load.signature}, {load.api}"
    plot(result, picture, title=title)
    return [figures, picture]

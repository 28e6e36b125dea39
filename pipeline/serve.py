"""Serving from the store, and asking the server: what `rankmill serve` and `rankmill predict` do."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pipeline.config import Config
from pipeline.deploy_serve import BATCHING_FILE, MONITORING_FILE, config_texts
from pipeline.publish_features import complete_rows
from pipeline.request_rows import request_rows
from pipeline.store_place import own_address, place_of
from preprocessing.errors import ArtefactError, ServingError
from serving.client import connect
from serving.deployment import ServerFiles, production_flags
from serving.history import read_events
from serving.labels import promote
from serving.launch import ServeOptions, find_binary, serve_command, wait_until_available
from serving.models_config import MODELS_FILE, read_model, write_model, write_text
from serving.request_log import RequestLog
from serving.starting import note_start
from serving.version_store import latest

__all__ = ["predict_rows", "serve_forever", "serve_options"]

ROWS_PER_REQUEST = 512
TIMEOUT_S = 30.0


def serve_forever(config: Config) -> None:
    """Becomes the model server: this process is replaced by it, so that signals reach it and nothing else.

    Raises:
        ArtefactError: if the store has no version, or none that is promoted.
        ServingError: if the server cannot be started.
    """
    options = serve_options(config)
    command = serve_command(options, backend="docker" if config.serve.docker else "auto", binary=find_binary())
    print(" ".join(command), flush=True)  # noqa: T201
    note_start(config.store().absolute().parent, own_address(config))
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise ServingError(f"cannot start {command[0]}: {error}") from error


def serve_options(config: Config) -> ServeOptions:
    """Returns what a server of the store is started with; its config files are written.

    Raises:
        ArtefactError: if the store has no version, or none that is promoted.
    """
    root = config.store().absolute().parent
    _ensure_promoted(config)
    folder = Path(config.work_dir).absolute() / "serve"
    for name, text in config_texts(config).items():
        write_text(folder / name, text)
    batching = None if config.serve.batching is None else folder / BATCHING_FILE
    files = ServerFiles(models=root / MODELS_FILE, monitoring=folder / MONITORING_FILE, batching=batching)
    flags = production_flags(files, threads=config.serve.threads, poll_s=config.serve.poll_s)
    return ServeOptions(
        model_name=config.export.model_name,
        model_config_file=files.models,
        port=config.serve.port,
        rest_api_port=config.serve.rest_port,
        bind_address=config.serve.host,
        flags={name: value for name, value in flags.items() if name != "model_config_file"},
        mounts=(root, folder),
    )


def _ensure_promoted(config: Config) -> None:
    """Makes sure that servers are told of the model: a store filled before there were labels serves its newest."""
    store = config.store().absolute()
    newest = latest(store)
    if newest is None:
        raise ArtefactError(f"{store} holds no version; run `rankmill run` first")
    served = read_model(store.parent, store.name)
    if served is not None and served.versions:
        if served.base_path != store:  # the folder was moved
            write_model(store.parent, dataclasses.replace(served, base_path=store))
        return
    if config.export.promote == "none" or any(event.action == "promote" for event in read_events(store)):
        raise ArtefactError(f"no version in {store} is promoted; promote one: rankmill promote CONFIG {newest}")
    promote(dataclasses.replace(place_of(config, lambda _: None), servers=()), newest, why="a server was started")


def predict_rows(
    config: Config, *, rows: Path | None, sample: int, api: Literal["grpc", "rest"], wait_s: float
) -> Iterator[dict[str, Any]]:
    """Yields the scores of each row, by label, from the running server.

    Args:
        config: says where the server is and what the model is called.
        rows: a file of JSON lines, or "-" for standard input.
        sample: take so many rows of the test split instead.
        api: the protocol.
        wait_s: how long to wait for the server.

    Raises:
        ConfigError: if not exactly one of `rows` and `sample` is given, or a row is no JSON object.
        ServingError: if the server cannot be reached or refuses the rows.
    """
    records = complete_rows(config, request_rows(config, rows=rows, sample=sample))
    host, model = config.serve.host, config.export.model_name
    if wait_s > 0:
        wait_until_available(host, config.serve.rest_port, model_name=model, timeout_s=wait_s)
    port = config.serve.port if api == "grpc" else config.serve.rest_port
    log = config.serve.request_log
    with contextlib.ExitStack() as stack:
        recorder = None if log is None else stack.enter_context(RequestLog(log))
        client = stack.enter_context(connect(f"{host}:{port}", api=api, timeout_s=TIMEOUT_S, recorder=recorder))
        for start in range(0, len(records), ROWS_PER_REQUEST):
            outputs = client.predict(model, records[start : start + ROWS_PER_REQUEST])
            for values in zip(*outputs.values(), strict=True):
                yield dict(zip(outputs, map(float, values), strict=True))

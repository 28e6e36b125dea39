"""Serving from the store, and asking the server: what `rankmill serve` and `rankmill predict` do."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from pipeline import stages
from pipeline.artefacts import open_artefact
from pipeline.config import Config
from pipeline.deploy_serve import BATCHING_FILE, MONITORING_FILE, config_texts
from pipeline.publish_features import complete_rows
from pipeline.store_place import place_of
from preprocessing.dataset import open_dataset
from preprocessing.errors import ArtefactError, ConfigError, ServingError
from serving.client import connect
from serving.deployment import ServerFiles, production_flags
from serving.history import read_events
from serving.labels import promote
from serving.launch import ServeOptions, find_binary, serve_command, wait_until_available
from serving.models_config import MODELS_FILE, read_model, write_model, write_text
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
    if (rows is None) == (sample == 0):
        raise ConfigError("give one of --rows FILE and --sample N")
    records = complete_rows(config, _sample(config, sample) if rows is None else _read_rows(rows))
    host, model = config.serve.host, config.export.model_name
    if wait_s > 0:
        wait_until_available(host, config.serve.rest_port, model_name=model, timeout_s=wait_s)
    port = config.serve.port if api == "grpc" else config.serve.rest_port
    with connect(f"{host}:{port}", api=api, timeout_s=TIMEOUT_S) as client:
        for start in range(0, len(records), ROWS_PER_REQUEST):
            outputs = client.predict(model, records[start : start + ROWS_PER_REQUEST])
            for values in zip(*outputs.values(), strict=True):
                yield dict(zip(outputs, map(float, values), strict=True))


def _read_rows(path: Path) -> list[dict[str, Any]]:
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"--rows {path}: no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--rows {path}: cannot be read as UTF-8 text: {error}") from error
    records = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"--rows {path}, line {number}: not JSON: {error}") from error
        if not isinstance(record, dict):
            raise ConfigError(f"--rows {path}, line {number}: a row is a JSON object of columns, this is {line[:60]!r}")
        records.append(record)
    if not records:
        raise ConfigError(f"--rows {path}: holds no row")
    return records


def _sample(config: Config, num_rows: int) -> list[dict[str, Any]]:
    """Returns raw rows of the test split as a client would send them: only what the signature takes."""
    from pipeline.scoring import read_rows

    inputs = stages.find_inputs(config)
    dataset = open_dataset(open_artefact(stages.plan("dataset", config, inputs)).folder)
    columns = [column.name for column in dataset.schema.raw_columns]
    table = pa.concat_tables(read_rows(dataset, "test", columns=columns)).slice(0, num_rows)
    return [_plain(row) for row in table.to_pylist()]


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not _is_missing(value)}


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))

"""The state after the last period, published beside the model, and what completes requests from it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline import stages
from pipeline.artefacts import open_artefact
from pipeline.config import Config
from preprocessing.dataset import open_dataset
from preprocessing.derive_plan import key_sets
from preprocessing.errors import ArtefactError
from preprocessing.periods import period_start_ms
from preprocessing.row_files import read_rows
from preprocessing.spec import DerivedColumn, columns_made, columns_of
from serving.features import FeatureCompleter, open_features
from serving.features_folder import prune_snapshots, publish_snapshot
from serving.features_layout import Clock, known_column
from serving.features_snapshot import write_snapshot
from serving.version_store import versions

__all__ = ["complete_rows", "looked_up", "open_completer", "publish_features", "served_period"]

_MS_PER_S = 1000
_ROWS_AT_A_TIME = 512


def looked_up(config: Config) -> tuple[str, ...]:
    """Returns the point-in-time columns that the model takes."""
    used = {column for feature in config.features for column in columns_of(feature)}
    return tuple(name for one in config.data.derived for name in columns_made(one) if name in used)


def open_completer(config: Config, *, version: int | None = None) -> FeatureCompleter | None:
    """Returns what completes requests to the model; None where the model takes no point-in-time column.

    Args:
        config: says where the features are.
        version: of the model; by default the live one, and with Redis the one pushed last.

    Raises:
        ArtefactError: if no features were published.
        ServingError: if Redis cannot be reached.
    """
    if not looked_up(config):
        return None
    return open_features(
        config.serve.features, store=config.store(), model_name=config.export.model_name, version=version
    )


def complete_rows(
    config: Config, rows: Sequence[Mapping[str, Any]], *, now_ms: int | None = None
) -> Sequence[Mapping[str, Any]]:
    """Returns rows with the point-in-time columns that they lack; rows that lack none need no published features."""
    needed = frozenset(looked_up(config))
    if all(needed <= row.keys() for row in rows):
        return rows
    completer = open_completer(config)
    if completer is None:
        return rows
    moment_ms = round(time.time() * _MS_PER_S) if now_ms is None else now_ms
    try:
        return [
            row
            for start in range(0, len(rows), _ROWS_AT_A_TIME)
            for row in completer.complete(rows[start : start + _ROWS_AT_A_TIME], moment_ms)
        ]
    finally:
        completer.close()


def publish_features(config: Config, version: int) -> Path | None:
    """Returns the snapshot that now stands beside a version; None where the model takes no point-in-time column.

    The state is that after the newest period that was over when the examples were made: after one that goes on, the
    windows of counts and rates would reach into hours that nobody has seen.

    Raises:
        ArtefactError: if the examples or the dataset are not there, or the store cannot be written.
    """
    if not looked_up(config):
        return None
    inputs = stages.find_inputs(config)
    examples = open_artefact(stages.plan("examples", config, inputs)).content
    taken = [column.name for column in _schema(config, inputs).raw_columns]
    period, state_ms = served_period(config, examples)
    data = config.data
    clock = Clock(freshness=data.freshness, period=data.period, time_zone=data.time_zone, state_ms=state_ms)
    chosen = _needed(config, taken)

    def write(folder: Path, note: Mapping[str, Any]) -> None:
        states = [(columns, _state(config, period, columns)) for columns in chosen]
        write_snapshot(
            folder, states, clock=clock, model_name=config.export.model_name, version=version, inputs=taken, note=note
        )

    key = {
        "state": period["key"],
        "clock": clock.model_dump(mode="json"),
        "columns": [[one.model_dump(mode="json") for one in columns] for columns in chosen],
        "inputs": sorted(taken),
    }
    store = config.store()
    snapshot = publish_snapshot(store, version, key=key, write=write)
    prune_snapshots(store, keep=[*versions(store), version])
    return snapshot


def _schema(config: Config, inputs: stages.Inputs) -> Any:
    return open_dataset(open_artefact(stages.plan("dataset", config, inputs)).folder).schema


def served_period(config: Config, examples: Mapping[str, Any]) -> tuple[Mapping[str, Any], int]:
    """Returns the period whose state is served, and when it ended."""
    data = config.data
    ends = [
        (period_start_ms(period["number"] + 1, data.period, time_zone=data.time_zone), period)
        for period in examples["periods"]
        if period["state"] is not None
    ]
    if not ends:
        raise ArtefactError("the examples have no point-in-time state; run `rankmill preprocess` again")
    over = [found for found in ends if found[0] <= examples["as_of_ms"]]
    state_ms, period = (over or ends)[-1]
    return period, state_ms


def _needed(config: Config, taken: Sequence[str]) -> list[list[DerivedColumn]]:
    """Returns the columns that the model takes, those of one key together."""
    chosen = [
        [one for one in columns if set(columns_made(one)) & set(taken)] for columns in key_sets(config.data).values()
    ]
    return [columns for columns in chosen if columns]


def _state(config: Config, period: Mapping[str, Any], columns: Sequence[DerivedColumn]) -> pa.Table:
    from preprocessing.derive_job import state_file

    names = [*columns[0].key]
    for one in columns:
        names += [one.name, known_column(one.name)] if one.kind == "history" else [one.name]
    return read_rows(Path(config.work_dir) / period["state"] / state_file(columns[0].key), names)

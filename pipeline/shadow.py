"""What `rankmill shadow` does: the newest rows of a request log scored by two sides."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from pipeline.config import Config
from pipeline.scoring import loaded_model
from preprocessing.errors import ConfigError, SourceError
from serving.client import Client, connect
from serving.client_calls import Selected
from serving.request_log_files import read_log
from serving.request_log_rows import raw_columns
from serving.rows import InputColumn, rows_to_arrays
from serving.shadow import Difference, Scorer, Scores, compare, logged, replay

__all__ = ["LOGGED", "newest_rows", "run_shadow"]

LOGGED = "log"
_BATCH_ROWS = 256
_TIMEOUT_S = 30.0


def run_shadow(
    config: Config,
    log: Path,
    *,
    base: str,
    against: str,
    max_rows: int,
    tolerance: float,
    api: Literal["grpc", "rest"],
    observe: Callable[[int], None] = lambda rows: None,
) -> dict[str, Difference]:
    """Returns how the scores of two sides differ, by output.

    A side is a version number or a label of the running server, "newest" for its newest version, the folder of a
    SavedModel, or "log" for the scores that were given at the time.

    Args:
        config: says where the server is and what the model is called.
        log: folder, or one file, of a request log.
        base: one side.
        against: what is held against it.
        max_rows: the newest rows of the log.
        tolerance: differences up to it do not count as such.
        api: to ask the server by.
        observe: told the number of rows scored so far.

    Raises:
        ConfigError: if both sides are the same.
        SourceError: if the log has no row.
        ServingError: if a side cannot score the rows.
    """
    if base == against:
        raise ConfigError(f"both sides are {base!r}; give two that differ")
    with contextlib.ExitStack() as stack:
        sides = [stack.enter_context(_scorer(config, name, api)) for name in (base, against)]
        rows = [newest_rows(log, max_rows)]
        return compare(replay(rows, *sides, batch_rows=_BATCH_ROWS, observe=observe), tolerance=tolerance)


def newest_rows(log: Path, max_rows: int) -> pa.Table:
    """Returns the newest rows of a log, in order of time.

    Raises:
        SourceError: if it has none.
    """
    kept: list[pa.Table] = []
    for table in read_log(log):
        kept.append(table)
        while len(kept) > 1 and sum(part.num_rows for part in kept[1:]) >= max_rows:
            del kept[0]
    try:
        rows = pa.concat_tables(kept, promote_options="default").sort_by("@time_ms")
    except pa.ArrowException as error:
        raise SourceError(f"{log}: a column changed its type from file to file ({error}); give one file") from error
    if not rows.num_rows:
        raise SourceError(f"{log} holds no row")
    return rows.slice(max(0, rows.num_rows - max_rows))


@contextlib.contextmanager
def _scorer(config: Config, side: str, api: Literal["grpc", "rest"]) -> Iterator[Scorer]:
    if side == LOGGED:
        yield logged
    elif (Path(side) / "saved_model.pb").exists():
        with loaded_model(Path(side)) as servable:
            yield _of_folder(servable)
    else:
        port = config.serve.port if api == "grpc" else config.serve.rest_port
        with connect(f"{config.serve.host}:{port}", api=api, timeout_s=_TIMEOUT_S) as client:
            yield _of_server(client, _selected(config.export.model_name, side))


def _selected(model_name: str, side: str) -> Selected:
    if side == "newest":
        return Selected(model_name)
    return Selected(model_name, version=int(side)) if side.isdecimal() else Selected(model_name, label=side)


def _of_server(client: Client, selected: Selected) -> Scorer:
    def score(rows: pa.Table) -> Scores:
        return _numbers(client.ask(selected, _rows(rows), ignore_unknown=True).outputs)

    return score


def _of_folder(servable: Any) -> Scorer:
    from tensorflow.core.framework.types_pb2 import DataType

    signature = servable.signature("serving_default")
    columns = [
        InputColumn(name, DataType.Name(number), signature.input_shapes[name])
        for name, number in signature.input_dtypes.items()
    ]

    def score(rows: pa.Table) -> Scores:
        arrays = rows_to_arrays(_rows(rows), columns, ignore_unknown=True)
        return _numbers(servable.run("serving_default", arrays))

    return score


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.select(raw_columns(table.schema)).to_pylist()
    return rows


def _numbers(outputs: dict[str, Any]) -> Scores:
    return {name: values.astype(np.float64) for name, values in outputs.items() if values.dtype.kind == "f"}

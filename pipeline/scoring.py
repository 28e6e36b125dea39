"""Scores of an exported model on raw joined rows: what is judged is what is served.

Shapes: N rows, K labels.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.dataset import Dataset
from preprocessing.errors import ArtefactError
from preprocessing.raw_values import raw_tensors
from preprocessing.schema import LABEL_PREFIX, WEIGHT_COLUMN, RawColumn
from serving.export import DEFAULT_SIGNATURE
from serving.server.servable import Servable
from serving.server.signature import Signature

__all__ = ["ScoredRows", "input_tensors", "loaded_model", "read_rows", "score_rows", "score_split"]

_DTYPES = {"DT_STRING": "string", "DT_INT64": "int64", "DT_FLOAT": "float32"}


@dataclasses.dataclass(frozen=True)
class ScoredRows:
    """The rows of one split in record order.

    Attributes:
        labels: float32 [N, K].
        scores: float32 [N, K], probabilities.
        weights: float32 [N].
        columns: what else was asked for, N rows.
    """

    labels: npt.NDArray[np.float32]
    scores: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32]
    columns: pa.Table


def read_rows(dataset: Dataset, split: str, *, columns: Sequence[str] | None = None) -> list[pa.Table]:
    """Returns the raw joined rows of a split, a table for each shard, in record order."""
    tables = []
    for shard in dataset.splits[split]:
        path = dataset.folder / shard.rows
        try:
            table = pq.read_table(path, columns=None if columns is None else list(columns))
        except (OSError, pa.ArrowInvalid) as error:
            raise ArtefactError(f"{path} cannot be read: {error}; run preprocess again") from error
        if table.num_rows != shard.num_rows:
            raise ArtefactError(f"{path} has {table.num_rows} rows, its manifest says {shard.num_rows}")
        tables.append(table)
    return tables


@contextlib.contextmanager
def loaded_model(saved_model: Path) -> Iterator[Servable]:
    """Loads an exported model for the time of the block."""
    servable = Servable.load(saved_model)
    try:
        yield servable
    finally:
        servable.close()


def score_split(
    saved_model: Path,
    dataset: Dataset,
    split: str,
    *,
    keep: Sequence[str] = (),
    batch_size: int,
    observe: Callable[[int], None] = lambda rows: None,
) -> ScoredRows:
    """Returns the scores of every row of a split, each once, by the exported model's `serving_default`.

    Args:
        saved_model: the exported model; its inputs may be others than the dataset's features.
        dataset: whose raw rows are scored.
        split: "train", "valid" or "test".
        keep: columns of the rows to return beside the scores.
        batch_size: rows a call.
        observe: told the number of rows scored so far.

    Raises:
        ArtefactError: if the rows lack a column that the model takes, or the model does not give a label.
    """
    with loaded_model(saved_model) as servable:
        inputs = [column.name for column in _raw_columns(servable.signature(DEFAULT_SIGNATURE))]
        of_rows = [WEIGHT_COLUMN, *(LABEL_PREFIX + name for name in dataset.schema.labels), *keep]
        tables = _read(dataset, split, sorted({*inputs, *of_rows}), saved_model)
        done, scores = 0, []
        for table in tables:
            for start in range(0, table.num_rows, batch_size):
                rows = table.slice(start, batch_size)
                scores.append(score_rows(servable, rows, dataset.schema.labels))
                done += rows.num_rows
                observe(done)
    whole = pa.concat_tables(table.select(of_rows) for table in tables)
    labels = [whole[LABEL_PREFIX + name].to_numpy() for name in dataset.schema.labels]
    return ScoredRows(
        labels=np.stack(labels, axis=1),
        scores=np.concatenate(scores),
        weights=whole[WEIGHT_COLUMN].to_numpy(),
        columns=whole.select(sorted(set(keep))),
    )


def score_rows(servable: Servable, rows: pa.Table, labels: Sequence[str]) -> npt.NDArray[np.float32]:
    """Returns the probabilities of rows, [N, K].

    Raises:
        ArtefactError: if the model does not give one of the labels.
    """
    signature = servable.signature(DEFAULT_SIGNATURE)
    absent = [name for name in labels if name not in signature.output_tensors]
    if absent:
        raise ArtefactError(f"{servable.path} gives no {absent[0]!r}; it gives {', '.join(signature.output_tensors)}")
    outputs = servable.run(DEFAULT_SIGNATURE, input_tensors(servable, rows), list(labels))
    return np.stack([outputs[name] for name in labels], axis=1)


def input_tensors(servable: Servable, rows: pa.Table) -> dict[str, npt.NDArray[Any]]:
    """Returns what a model's `serving_default` takes of raw rows, by input: [N], or [N, L] for lists."""
    return raw_tensors(rows, _raw_columns(servable.signature(DEFAULT_SIGNATURE)))


def _raw_columns(signature: Signature) -> list[RawColumn]:
    """Returns what a signature takes, as columns of raw rows."""
    from tensorflow.core.framework.types_pb2 import DataType

    columns = []
    for name, number in signature.input_dtypes.items():
        shape = signature.input_shapes[name] or (-1,)
        dtype = _DTYPES[DataType.Name(number)]
        columns.append(RawColumn(name=name, dtype=dtype, length=shape[1] if len(shape) > 1 else None))
    return columns


def _read(dataset: Dataset, split: str, columns: Sequence[str], saved_model: Path) -> list[pa.Table]:
    first = dataset.folder / dataset.splits[split][0].rows
    absent = sorted(set(columns) - set(pq.read_schema(first).names))
    if absent:
        raise ArtefactError(f"{saved_model} takes column {absent[0]!r}, which the rows of {dataset.folder} do not have")
    return read_rows(dataset, split, columns=columns)

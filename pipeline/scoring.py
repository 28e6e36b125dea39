"""Scores of an exported model on raw joined rows: what is judged is what is served."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from preprocessing.dataset import Dataset
from preprocessing.errors import ArtefactError
from preprocessing.raw_values import raw_tensors
from preprocessing.schema import LABEL_PREFIX, WEIGHT_COLUMN
from serving.export import DEFAULT_SIGNATURE
from serving.server.servable import Servable

__all__ = ["ScoredRows", "read_rows", "score_split"]


@dataclasses.dataclass(frozen=True)
class ScoredRows:
    """The rows of one split in record order.

    Attributes:
        labels: float32 [N, K].
        scores: float32 [N, K], probabilities.
        weights: float32 [N].
        groups: int [N], a number for each user; None without a user role.
    """

    labels: np.ndarray
    scores: np.ndarray
    weights: np.ndarray
    groups: np.ndarray | None


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


def score_split(
    saved_model: Path,
    dataset: Dataset,
    split: str,
    *,
    user: str | None,
    batch_size: int,
    observe: Callable[[int], None] = lambda rows: None,
) -> ScoredRows:
    """Returns the scores of every row of a split, each once, by the exported model's `serving_default`.

    Args:
        saved_model: the exported model.
        dataset: whose raw rows are scored.
        split: "train", "valid" or "test".
        user: the column whose values are the groups of GAUC.
        batch_size: rows a call.
        observe: told the number of rows scored so far.
    """
    schema = dataset.schema
    needed = {column.name for column in schema.raw_columns} | {LABEL_PREFIX + name for name in schema.labels}
    needed |= {WEIGHT_COLUMN} | ({user} if user else set())
    scores, labels, weights, groups = [], [], [], []
    servable = Servable.load(saved_model)
    try:
        done = 0
        for table in read_rows(dataset, split, columns=sorted(needed)):
            for start in range(0, table.num_rows, batch_size):
                rows = table.slice(start, batch_size)
                outputs = servable.run(DEFAULT_SIGNATURE, raw_tensors(rows, schema), list(schema.labels))
                scores.append(np.stack([outputs[name] for name in schema.labels], axis=1))
                done += rows.num_rows
                observe(done)
            labels.append(np.stack([table[LABEL_PREFIX + name].to_numpy() for name in schema.labels], axis=1))
            weights.append(table[WEIGHT_COLUMN].to_numpy())
            groups += [table[user]] if user else []
    finally:
        servable.close()
    return ScoredRows(
        np.concatenate(labels),
        np.concatenate(scores),
        weights=np.concatenate(weights),
        groups=_codes(groups) if user else None,
    )


def _codes(chunks: Sequence[pa.ChunkedArray]) -> np.ndarray:
    """Returns a number for each distinct value; a row without one is a group of its own, so it says nothing."""
    whole = pa.chunked_array([chunk for column in chunks for chunk in column.chunks]).combine_chunks()
    encoded = whole.dictionary_encode()
    alone = pa.array(np.arange(len(whole)) + len(encoded.dictionary))
    return pc.coalesce(encoded.indices.cast(pa.int64()), alone).to_numpy()

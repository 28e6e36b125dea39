"""What `rankmill monitor` does: a request log held against the data that the model was trained on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import stages
from pipeline.artefacts import open_artefact
from pipeline.config import Config
from pipeline.shadow import newest_rows
from preprocessing import vocabulary
from preprocessing.dataset import Dataset, open_dataset
from preprocessing.feature_spec import columns_of, table_of
from preprocessing.profile import Profile, profile
from serving.monitor import Monitored, monitor, oov_share
from serving.monitor_spec import MonitorSpec
from serving.request_log_rows import SCORE, raw_columns

__all__ = ["monitor_log"]

_REFERENCE_ROWS = 500_000
_SCORE_SPLIT = "test"


def monitor_log(config: Config, log: Path, *, max_rows: int, limits: MonitorSpec) -> Monitored:
    """Returns the newest rows of a log held against the training split.

    Scores are held against those that the model gave to the test split when it was judged.

    Args:
        config: whose line trained the model.
        log: folder, or one file, of a request log.
        max_rows: the newest rows of the log.
        limits: what is too much.

    Raises:
        ArtefactError: if the line has not been run.
        SourceError: if the log has no row.
    """
    inputs = stages.find_inputs(config)
    dataset = open_dataset(open_artefact(stages.plan("dataset", config, inputs)).folder)
    rows = newest_rows(log, max_rows)
    columns = [name for name in raw_columns(rows.schema) if name in {one.name for one in dataset.schema.raw_columns}]
    requests = rows.select(columns)
    return monitor(
        reference=profile(_training_rows(dataset, columns), []),
        current=profile(requests, []),
        reference_scores=_judged_scores(config, inputs, dataset),
        current_scores=profile(_scores(rows), []),
        oov_shares=dict(_oov_shares(config, dataset, requests)),
        limits=limits,
    )


def _training_rows(dataset: Dataset, columns: list[str]) -> pa.Table:
    """Returns rows of the training split, of every shard the same share if it is long."""
    shards = dataset.splits["train"]
    share = min(1.0, _REFERENCE_ROWS / max(1, dataset.num_rows("train")))
    parts = []
    for shard in shards:
        table = pq.read_table(dataset.folder / shard.rows, columns=columns)
        count = int(np.ceil(table.num_rows * share))
        # Evenly spread: the first rows of a shard may be those of one hour or one user.
        places = np.linspace(0, table.num_rows, num=count, endpoint=False).astype(np.int64)
        parts.append(table if share == 1.0 else table.take(pa.array(places)))
    return pa.concat_tables(parts)


def _scores(rows: pa.Table) -> pa.Table:
    names = [name for name in rows.column_names if name.startswith(SCORE)]
    return rows.select(names).rename_columns([name.removeprefix(SCORE) for name in names])


def _judged_scores(config: Config, inputs: stages.Inputs, dataset: Dataset) -> Profile:
    folder = open_artefact(stages.plan("evaluate", config, inputs)).folder
    scores = np.load(folder / f"scores-{_SCORE_SPLIT}.npy", allow_pickle=False)
    return profile(pa.table({name: scores[:, k] for k, name in enumerate(dataset.schema.labels)}), [])


def _oov_shares(config: Config, dataset: Dataset, requests: pa.Table) -> Iterator[tuple[str, float]]:
    """Yields each column of one feature with a vocabulary, and the share of its values that are not in it."""
    for feature in config.features:
        path = dataset.folder / "vocabularies" / f"{table_of(feature)}.parquet"
        columns = columns_of(feature)
        if len(columns) == 1 and columns[0] in requests.column_names and path.exists():
            yield columns[0], oov_share(requests[columns[0]], vocabulary.load(path).tokens)

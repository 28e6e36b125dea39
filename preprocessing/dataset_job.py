"""Second Beam job: labelled rows to records. Analysis of the training split, then one transform for all splits.

rows/train/*.parquet -> analyse -> merge -> transform (one TensorFlow graph), vocabularies, statistics
rows/*/*.parquet     -> transform -> <split>/<period>-<shard>.tfrecord, in the order of the rows
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.utils.shared import Shared

from preprocessing import analysis
from preprocessing.dataset import SCHEMA_FILE, TRANSFORM_FOLDER, Shard
from preprocessing.encode import encode_columns
from preprocessing.errors import ArtefactError
from preprocessing.examples import write_records
from preprocessing.manifest import write_json
from preprocessing.runner import follow_progress, plain_errors, report_rows
from preprocessing.schema import LABEL_PREFIX, WEIGHT_COLUMN, DatasetSchema
from preprocessing.spec import FeatureSpec, columns_of
from preprocessing.transform import load_transform, save_transform
from preprocessing.transform_plan import plan_transform

__all__ = ["build_dataset"]


def build_dataset(
    examples: Path,
    shards: Mapping[str, Sequence[tuple[str, str, int]]],
    *,
    features: Sequence[FeatureSpec],
    labels: Sequence[str],
    time_zone: str,
    folder: Path,
    final_folder: Path,
    pipeline: Callable[[], beam.Pipeline],
    observe: Callable[[int], None] = lambda rows: None,
) -> dict[str, list[Shard]]:
    """Runs the job into `folder` (a temporary one; the caller completes it) and returns the shards of each split.

    Args:
        examples: the finished artefact of `examples_job`.
        shards: of each split, (period, file relative to `examples`, rows).
        features: the features section of the config.
        labels: names of the labels, in order.
        time_zone: zone of hours and days of the week.
        folder: where the dataset is written; `scratch` below it is the caller's to remove.
        final_folder: where it will stand; row files are referred to from there.
        pipeline: makes a Beam pipeline.
        observe: told the number of rows analysed and encoded so far.
    """
    needed = sorted({column for feature in features for column in columns_of(feature)})
    columns = [*needed, *(LABEL_PREFIX + label for label in labels), WEIGHT_COLUMN]
    progress = folder / "scratch" / "progress"
    states = folder / "scratch" / "states"
    states.mkdir(parents=True)
    for split in shards:
        (folder / split).mkdir()
    with plain_errors(), follow_progress(progress, observe):
        with pipeline() as p:
            files = [str(examples / path) for _, path, _ in shards["train"]]
            analyse = beam.Map(_analyse, features=features, columns=needed, folder=str(states), progress=str(progress))
            _ = p | beam.Create(files) | beam.Reshuffle() | analyse
        sample = examples / shards["train"][0][1]
        schema = _plan(sample, features, labels=labels, time_zone=time_zone, folder=folder, states=states)
        with pipeline() as p:
            work = [
                (str(examples / path), str(folder / _record_name(path)))
                for paths in shards.values()
                for _, path, _ in paths
            ]
            encode = _Encode(
                folder / TRANSFORM_FOLDER, schema, features=features, columns=columns, progress=str(progress)
            )
            _ = p | beam.Create(work) | beam.Reshuffle() | beam.ParDo(encode)
    here = Path(os.path.relpath(examples, final_folder))
    return {
        split: [
            Shard(period=period, records=_record_name(path), rows=str(here / path), num_rows=num_rows)
            for period, path, num_rows in paths
        ]
        for split, paths in shards.items()
    }


def _record_name(rows_path: str) -> str:
    split, name = Path(rows_path).parts[-2:]
    return f"{split}/{name.removesuffix('.parquet')}.tfrecord"


def _analyse(path: str, *, features: Sequence[FeatureSpec], columns: Sequence[str], folder: str, progress: str) -> None:
    table = _read_rows(path, columns)
    state = analysis.analyse(table, features)
    target = Path(folder) / f"{Path(path).name}.state"
    temporary = target.with_name(f".{uuid.uuid4().hex}")
    temporary.write_bytes(analysis.to_bytes(state))
    temporary.replace(target)
    report_rows(progress, table.num_rows)


def _read_rows(path: str, columns: Sequence[str]) -> pa.Table:
    try:
        return pq.read_table(path, columns=list(columns))
    except (OSError, pa.ArrowException) as error:
        raise ArtefactError(f"{path} cannot be read: {error}; remove its artefact and run again") from error


def _plan(
    sample: Path, features: Sequence[FeatureSpec], *, labels: Sequence[str], time_zone: str, folder: Path, states: Path
) -> DatasetSchema:
    """Merges the states in the order of their names, and writes all that the transform is made of."""
    files = sorted(path for path in states.iterdir() if path.suffix == ".state")
    state = analysis.merge([analysis.from_bytes(path.read_bytes()) for path in files])
    file_schema: pa.Schema = pq.read_schema(sample)
    raw_types = {column: file_schema.field(column).type for feature in features for column in columns_of(feature)}
    plan = plan_transform(features, state, time_zone=time_zone, labels=labels, raw_types=raw_types)
    save_transform(plan, folder / TRANSFORM_FOLDER)
    vocabularies = folder / "vocabularies"
    vocabularies.mkdir()
    for table, vocabulary in plan.vocabularies.items():
        vocabulary.save(vocabularies / f"{table}.parquet")
    write_json(folder / "statistics.json", analysis.summary(state))
    (folder / SCHEMA_FILE).write_text(plan.schema.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return plan.schema


class _Encode(beam.DoFn):
    """Encodes one file of rows into one file of records."""

    def __init__(
        self,
        transform: Path,
        schema: DatasetSchema,
        *,
        features: Sequence[FeatureSpec],
        columns: list[str],
        progress: str,
    ) -> None:
        self._folder = transform
        self._schema = schema
        self._features = tuple(features)
        self._columns = columns
        self._progress = progress
        self._shared = Shared()
        self._transform: Any = None

    def setup(self) -> None:
        """Takes the transform that all threads of this process share: loading it costs seconds."""
        self._transform = self._shared.acquire(lambda: load_transform(self._folder))

    def process(self, element: tuple[str, str]) -> None:
        rows_path, records_path = element
        table = _read_rows(rows_path, self._columns)
        encoded = encode_columns(self._transform, self._schema, self._features, table)
        temporary = f"{records_path}.{uuid.uuid4().hex}.tmp"
        write_records(Path(temporary), encoded)
        os.replace(temporary, records_path)
        report_rows(self._progress, table.num_rows)

"""Last Beam job: labelled rows to records. Analysis of the training split, then one transform for all splits.

rows of the training window -> analyse, a state for each file -> merge -> transform (one TensorFlow graph), vocabularies
rows of all splits          -> transform -> <split>/<period>-<shard>.tfrecord, in the order of the rows

States are kept by what they were made from: a daily run analyses the files of the new day.
"""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing import analysis
from preprocessing.dataset import SCHEMA_FILE, TRANSFORM_FOLDER, Shard
from preprocessing.encode_job import EncodeTask, SavedTransform, encode_files
from preprocessing.manifest import digest, write_json
from preprocessing.row_files import drop_twin, read_rows
from preprocessing.runner import MakePipeline, follow_progress, plain_errors, report_rows
from preprocessing.spec import FeatureSpec, columns_of
from preprocessing.transform import save_transform
from preprocessing.transform_plan import plan_transform
from preprocessing.vocabulary import Vocabulary
from preprocessing.vocabulary_chain import grown_vocabularies

__all__ = ["RowFile", "build_dataset"]

# Raised when a change of our code changes what a state holds.
_STATE_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class RowFile:
    """A file of labelled rows: the period they are of, its path below the work folder, their number."""

    period: str
    path: str
    num_rows: int


def build_dataset(
    work: Path,
    files: Mapping[str, Sequence[RowFile]],
    *,
    features: Sequence[FeatureSpec],
    labels: Sequence[str],
    time_zone: str,
    folder: Path,
    final_folder: Path,
    pipeline: MakePipeline,
    windows: Sequence[Sequence[RowFile]] = (),
    negative_keep: float = 1.0,
    observe: Callable[[int], None] = lambda rows: None,
) -> dict[str, list[Shard]]:
    """Runs the job into `folder` (a temporary one; the caller completes it) and returns the shards of each split.

    Args:
        work: the work folder; the paths of row files are relative to it, and states are kept below it.
        files: of each split, the files of its rows in order.
        features: the features section of the config.
        labels: names of the labels, in order.
        time_zone: zone of hours and days of the week.
        folder: where the dataset is written; `scratch` below it is the caller's to remove.
        final_folder: where it will stand; row files are referred to from there.
        pipeline: makes a Beam pipeline.
        windows: training windows along which vocabularies grow, the last one being that of `files`; none: they are
            built afresh.
        negative_keep: share of the negative training rows that is kept.
        observe: told the number of rows analysed and encoded so far.
    """
    progress = folder / "scratch" / "progress"
    states = work / "states"
    states.mkdir(parents=True, exist_ok=True)
    for split in files:
        (folder / split).mkdir()
    names = {file: states / _state_name(file, features) for file in _distinct([files["train"], *windows])}
    with plain_errors(), follow_progress(progress, observe):
        _analyse_files(work, names, features, progress=progress, pipeline=pipeline)
        vocabularies = None
        if windows:
            chain = [[names[file] for file in window] for window in windows]
            vocabularies = grown_vocabularies(features, chain, root=work / "vocabularies")
        transform = _plan(
            work / files["train"][0].path,
            features,
            labels=labels,
            time_zone=time_zone,
            folder=folder,
            states=[names[file] for file in files["train"]],
            vocabularies=vocabularies,
            negative_keep=negative_keep,
        )
        shards = _shards(files, here=Path(os.path.relpath(work, final_folder)))
        tasks = [
            EncodeTask(str(work / file.path), str(folder / shard.records), negative_keep if split == "train" else 1.0)
            for split in files
            for file, shard in zip(files[split], shards[split], strict=True)
        ]
        rows = encode_files(tasks, transform, scratch=folder / "scratch", progress=progress, pipeline=pipeline)
    for file in _distinct([*files.values(), *windows]):
        drop_twin(work / file.path)
    return {
        split: [shard.model_copy(update={"num_rows": rows[str(folder / shard.records)]}) for shard in shards[split]]
        for split in shards
    }


def _analyse_files(
    work: Path,
    states: Mapping[RowFile, Path],
    features: Sequence[FeatureSpec],
    *,
    progress: Path,
    pipeline: MakePipeline,
) -> None:
    """Writes the state of each file that has none yet."""
    missing = [(str(work / file.path), str(path)) for file, path in states.items() if not path.exists()]
    if not missing:
        return
    needed = sorted({column for feature in features for column in columns_of(feature)})
    with pipeline() as p:
        analyse = beam.Map(_analyse, features=features, columns=needed, progress=str(progress))
        _ = p | beam.Create(missing) | beam.Reshuffle() | analyse


def _distinct(groups: Sequence[Sequence[RowFile]]) -> list[RowFile]:
    return list(dict.fromkeys(file for group in groups for file in group))


def _state_name(file: RowFile, features: Sequence[FeatureSpec]) -> str:
    """Returns a name that follows from the rows, which the path tells, and from what is looked at in them."""
    return f"{digest([_STATE_FORMAT, file.path, [feature.model_dump(mode='json') for feature in features]])}.state"


def _shards(files: Mapping[str, Sequence[RowFile]], *, here: Path) -> dict[str, list[Shard]]:
    """Returns the shards to be written: of each period its files by number."""
    shards: dict[str, list[Shard]] = {split: [] for split in files}
    for split, members in files.items():
        seen: dict[str, int] = {}
        for file in members:
            number = seen[file.period] = seen.get(file.period, -1) + 1
            records = f"{split}/{file.period}-{number:05d}.tfrecord"
            rows = str(here / file.path)
            shards[split].append(Shard(period=file.period, records=records, rows=rows, num_rows=file.num_rows))
    return shards


def _analyse(
    element: tuple[str, str], *, features: Sequence[FeatureSpec], columns: Sequence[str], progress: str
) -> None:
    path, target = element
    table = read_rows(path, columns, dictionaries=True)
    state = analysis.analyse(table, features)
    temporary = Path(target).with_name(f".{uuid.uuid4().hex}")
    temporary.write_bytes(analysis.to_bytes(state))
    temporary.replace(target)
    report_rows(progress, table.num_rows)


def _plan(
    sample: Path,
    features: Sequence[FeatureSpec],
    *,
    labels: Sequence[str],
    time_zone: str,
    folder: Path,
    states: Sequence[Path],
    vocabularies: Mapping[str, Vocabulary] | None,
    negative_keep: float,
) -> SavedTransform:
    """Merges the states in their order, and writes all that the transform is made of."""
    state = analysis.merge([analysis.from_bytes(path.read_bytes()) for path in states])
    file_schema: pa.Schema = pq.read_schema(sample)
    raw_types = {column: file_schema.field(column).type for feature in features for column in columns_of(feature)}
    plan = plan_transform(
        features,
        state,
        time_zone=time_zone,
        labels=labels,
        raw_types=raw_types,
        vocabularies=vocabularies,
        negative_keep=negative_keep,
    )
    module = save_transform(plan, folder / TRANSFORM_FOLDER)
    words = folder / "vocabularies"
    words.mkdir()
    for table, vocabulary in plan.vocabularies.items():
        vocabulary.save(words / f"{table}.parquet")
    write_json(folder / "statistics.json", analysis.summary(state))
    (folder / SCHEMA_FILE).write_text(plan.schema.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return SavedTransform(folder / TRANSFORM_FOLDER, plan.schema, tuple(features), module)

"""Beam job: files of labelled rows to files of records, each in the order of its rows."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.utils.shared import Shared

from preprocessing.encode import encode_columns
from preprocessing.examples import write_records
from preprocessing.manifest import digest
from preprocessing.negative_sampling import kept_rows
from preprocessing.row_files import read_rows
from preprocessing.runner import MakePipeline, report_rows
from preprocessing.schema import LABEL_PREFIX, WEIGHT_COLUMN, DatasetSchema
from preprocessing.spec import FeatureSpec, columns_of
from preprocessing.transform import load_transform
from preprocessing.worker_results import all_results, put_result

__all__ = ["EncodeTask", "SavedTransform", "encode_files"]

# Transforms at hand in this process, by their folders: to load one again costs as much as encoding many rows.
_AT_HAND: dict[str, Any] = {}


@dataclasses.dataclass(frozen=True)
class EncodeTask:
    """A file of rows, the file of records to be made of it, and which share of its negative rows is kept."""

    rows: str
    records: str
    keep: float


@dataclasses.dataclass(frozen=True)
class SavedTransform:
    """A transform that was written to `folder`, and what it is of; `module` is the object that was written."""

    folder: Path
    schema: DatasetSchema
    features: tuple[FeatureSpec, ...]
    module: Any


def encode_files(
    tasks: Sequence[EncodeTask], transform: SavedTransform, *, scratch: Path, progress: Path, pipeline: MakePipeline
) -> dict[str, int]:
    """Writes the records of each file and returns their number, by file of records.

    Args:
        tasks: the files.
        transform: what makes records of rows.
        scratch: an existing folder of the caller's, for what the workers tell.
        progress: folder of the counts of rows done.
        pipeline: makes a Beam pipeline.
    """
    results = scratch / "encoded"
    results.mkdir()
    encode = _Encode(transform, results=str(results), progress=str(progress))
    with _at_hand(transform), pipeline() as p:
        elements = [dataclasses.astuple(task) for task in tasks]
        _ = p | beam.Create(elements) | beam.Reshuffle() | beam.ParDo(encode)
    return dict(all_results(results))


@contextlib.contextmanager
def _at_hand(transform: SavedTransform) -> Iterator[None]:
    _AT_HAND[str(transform.folder)] = transform.module
    try:
        yield
    finally:
        del _AT_HAND[str(transform.folder)]


class _Encode(beam.DoFn):
    """Encodes one file of rows into one file of records."""

    def __init__(self, transform: SavedTransform, *, results: str, progress: str) -> None:
        self._folder, self._schema, self._features = transform.folder, transform.schema, transform.features
        needed = sorted({column for feature in self._features for column in columns_of(feature)})
        self._columns = [*needed, *(LABEL_PREFIX + label for label in self._schema.labels), WEIGHT_COLUMN]
        self._results, self._progress = results, progress
        self._shared = Shared()
        self._transform: Any = None

    def setup(self) -> None:
        """Takes the transform that all threads of this process share; another process loads it."""
        self._transform = _AT_HAND.get(str(self._folder))
        if self._transform is None:
            self._transform = self._shared.acquire(lambda: load_transform(self._folder))

    def process(self, element: tuple[str, str, float]) -> None:
        rows_path, records_path, keep = element
        num_rows, table = self._read(rows_path, keep)
        encoded = encode_columns(self._transform, self._schema, self._features, table)
        temporary = f"{records_path}.{uuid.uuid4().hex}.tmp"
        write_records(Path(temporary), encoded)
        os.replace(temporary, records_path)
        report_rows(self._progress, num_rows)
        put_result(self._results, digest(records_path), [records_path, table.num_rows])

    def _read(self, path: str, keep: float) -> tuple[int, pa.Table]:
        """Returns the number of rows in a file, and those to encode: which are kept follows from all raw columns."""
        if keep == 1.0:
            table = read_rows(path, self._columns, dictionaries=True)
            return table.num_rows, table
        whole = read_rows(path, dictionaries=True)
        chosen = whole.filter(pa.array(kept_rows(whole, keep=keep, labels=self._schema.labels)))
        return whole.num_rows, chosen.select(self._columns)

"""Beam job: the profile of each file of joined rows, one state a file: a daily run profiles its own day only."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.errors import ArtefactError
from preprocessing.joining import KNOWN_PREFIX
from preprocessing.log_sources import HASH_COLUMN
from preprocessing.profile import profile
from preprocessing.profile_state import to_bytes
from preprocessing.raw_values import is_list, raw_dtype
from preprocessing.runner import MakePipeline, follow_progress, plain_errors, report_rows

__all__ = ["profile_rows"]

# What the jobs keep beside the raw columns and the labels says nothing about the data.
_INTERNAL = (HASH_COLUMN, KNOWN_PREFIX)


def profile_rows(
    files: Sequence[tuple[Path, Path]],
    *,
    labels: Sequence[str],
    progress: Path,
    pipeline: MakePipeline,
    observe: Callable[[int], None] = lambda rows: None,
) -> None:
    """Writes the profile of each file of rows.

    Args:
        files: (Parquet file of labelled rows, where its profile goes).
        labels: names of the labels.
        progress: a folder of the caller's for the counts of rows done.
        pipeline: makes a Beam pipeline.
        observe: told the number of rows profiled so far.

    Raises:
        ArtefactError: a file cannot be read.
        DataError: its columns cannot be profiled.
    """
    for _, target in files:
        target.parent.mkdir(parents=True, exist_ok=True)
    work = [(str(rows), str(target)) for rows, target in files]
    with plain_errors(), follow_progress(progress, observe), pipeline() as p:
        profiles = beam.Map(_profile_file, labels=tuple(labels), progress=str(progress))
        _ = p | beam.Create(work) | beam.Reshuffle() | profiles


def _profile_file(element: tuple[str, str], *, labels: Sequence[str], progress: str) -> None:
    rows_path, target = element
    table = _read_rows(rows_path)
    table = table.drop_columns([name for name in table.column_names if name.startswith(_INTERNAL)])
    temporary = Path(target).with_name(f".{uuid.uuid4().hex}.tmp")
    temporary.write_bytes(to_bytes(profile(table, labels)))
    temporary.replace(target)
    report_rows(progress, table.num_rows)


def _read_rows(path: str) -> pa.Table:
    """Returns the rows with text as dictionaries, as it is stored: half the work of reading it, and of counting it."""
    try:
        text = [name for field in pq.read_schema(path) for name in _text_columns(field)]
        return pq.read_table(path, read_dictionary=text)
    except (OSError, pa.ArrowException) as error:
        raise ArtefactError(f"{path} cannot be read: {error}; remove its artefact and run again") from error


def _text_columns(field: pa.Field) -> list[str]:
    if raw_dtype(field.type) != "string":
        return []
    return [f"{field.name}.list.element" if is_list(field.type) else field.name]

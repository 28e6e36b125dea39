"""Beam job: the profile of each file of joined rows, one state a file: a daily run profiles its own day only."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.errors import ArtefactError
from preprocessing.profile import profile
from preprocessing.profile_state import to_bytes
from preprocessing.raw_values import is_list, raw_dtype
from preprocessing.runner import follow_progress, plain_errors, report_rows

__all__ = ["profile_rows", "state_path"]


def state_path(folder: Path, period: str, rows: Path) -> Path:
    """Returns where the profile of a file of rows is kept: PERIOD.SPLIT.NAME.profile.parquet."""
    return folder / f"{period}.{rows.parent.name}.{rows.stem}.profile.parquet"


def profile_rows(
    files: Sequence[tuple[str, Path]],
    *,
    labels: Sequence[str],
    folder: Path,
    pipeline: Callable[[], beam.Pipeline],
    observe: Callable[[int], None] = lambda rows: None,
) -> None:
    """Writes the profile of each file into `folder`, at its `state_path`; what is there is written over.

    Args:
        files: (period, Parquet file of joined rows).
        labels: names of the labels.
        folder: made if it is not there.
        pipeline: makes a Beam pipeline.
        observe: told the number of rows profiled so far.

    Raises:
        ArtefactError: a file cannot be read.
        DataError: its columns cannot be profiled.
    """
    folder.mkdir(parents=True, exist_ok=True)
    progress = folder / f".progress-{uuid.uuid4().hex}"
    work = [(str(path), str(state_path(folder, period, path))) for period, path in files]
    try:
        with plain_errors(), follow_progress(progress, observe), pipeline() as p:
            profiles = beam.Map(_profile_file, labels=tuple(labels), progress=str(progress))
            _ = p | beam.Create(work) | beam.Reshuffle() | profiles
    finally:
        for path in progress.glob("*"):
            path.unlink()
        progress.rmdir()


def _profile_file(element: tuple[str, str], *, labels: Sequence[str], progress: str) -> None:
    rows_path, target = element
    table = _read_rows(rows_path)
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

"""Rejected rows out as text to edit, with a note of where each came from and why it was rejected.

    FOLDER/<source>.csv                 rejected rows, to be repaired; one left as it is, is tried again as it is
    FOLDER/origins/<source>.csv         the same, to compare with
    FOLDER/origins/<source>.csv.json    where each row came from, and why it was rejected

Rows of one source with different headers, or in different partition folders, are in files of their own. Rows of
Parquet files are JSON lines here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline import replay_store
from pipeline.config import Config
from pipeline.example_stage import Inputs
from preprocessing import replay
from preprocessing.errors import ConfigError
from preprocessing.manifest import write_json
from preprocessing.reasons import REASONS
from preprocessing.sources import file_format
from preprocessing.spec import SourceSpec

__all__ = ["ORIGINS", "REPLAY_REASONS", "VERSION", "Exported", "export_rejects"]

ORIGINS = "origins"
VERSION = 1
REPLAY_REASONS = {
    **REASONS,
    "added_row": "the row is none of those that were exported; put new rows into a file of the source itself",
    "runs_over": "the row runs over into the next one; a quote is not closed",
    "wrong_encoding": "a character of the row cannot be written in the encoding of the source",
}


@dataclasses.dataclass(frozen=True)
class Exported:
    """A file of rejected rows: how many, and how many for which reason."""

    path: Path
    source: str
    rows: int
    reasons: dict[str, int]


_Reject = Mapping[str, Any]


def export_rejects(config: Config, inputs: Inputs, folder: Path) -> list[Exported]:
    """Writes the rejected rows of the config's sources, as they are now, for a person to repair.

    Raises:
        ConfigError: if the folder holds anything.
        SourceError: if a file cannot be read again.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"--export {folder}: is there already and not empty; repairs in it would be lost, give another"
        )
    groups: dict[tuple[str, str, str, bytes | None], list[_Reject]] = {}
    headers: dict[str, bytes | None] = {}
    for reject in _rejects(config, inputs):
        source, path = reject["source"], reject["file"]
        spec = config.data.sources[source]
        kind = file_format(path, spec.format)
        if path not in headers:
            headers[path] = _header(path, spec, kind)
        groups.setdefault((source, kind, _partitions(path, spec), headers[path]), []).append(reject)
    (folder / ORIGINS).mkdir(parents=True, exist_ok=True)
    numbers: dict[str, int] = {}
    exported = []
    for (source, kind, partitions, header), rows in groups.items():
        numbers[source] = numbers.get(source, 0) + 1
        suffix = "" if numbers[source] == 1 else f"-{numbers[source]}"
        name = f"{source}{suffix}.{'jsonl' if kind == 'parquet' else kind}"
        exported.append(_export(folder, name, rows, source=source, kind=kind, partitions=partitions, header=header))
    return exported


def _header(path: str, spec: SourceSpec, kind: str) -> bytes | None:
    if kind not in ("csv", "tsv"):
        return None
    return replay.header_text(path, spec, delimiter="\t" if kind == "tsv" else ",")


def _partitions(path: str, spec: SourceSpec) -> str:
    """Returns the partition folders of a file that its rows need: dt=2026-11-01/."""
    needed = {column.source_name or name for name, column in spec.columns.items() if column.partition}
    needed |= {spec.day_partition} if spec.day_partition is not None else set()
    return "".join(f"{part}/" for part in path.split("/")[:-1] if part.partition("=")[0] in needed and "=" in part)


def _rejects(config: Config, inputs: Inputs) -> Iterator[_Reject]:
    """Yields the rejects of the files as they are now, without those that were replayed."""
    from preprocessing.example_days import ingest_units

    work = Path(config.work_dir)
    known = replay_store.replayed_rows(work)
    root, split_bytes = work / "ingest", config.preprocess.split_bytes
    units = ingest_units(config.data, inputs.files, root=root, split_bytes=split_bytes, now_ms=0)
    for source, members in units.items():
        for unit in members:
            path = root / unit.key / "rejects.parquet"
            for row in pq.read_table(path).to_pylist() if path.is_file() else ():
                if (unit.fingerprint, row["position"]) not in known.get(source, ()):
                    # The same content may have been read under another name before.
                    yield {**row, "source": source, "file": unit.path, "fingerprint": unit.fingerprint}


def _export(
    folder: Path, name: str, rows: Sequence[_Reject], *, source: str, kind: str, partitions: str, header: bytes | None
) -> Exported:
    data = b"".join(line + b"\n" for line in [*([] if header is None else [header]), *(row["raw"] for row in rows)])
    for target in (folder / ORIGINS / name, folder / name):
        target.write_bytes(data)
    reasons: dict[str, int] = {}
    for row in rows:
        reasons[row["reason"]] = reasons.get(row["reason"], 0) + 1
    origins = [
        {
            **{field: row[field] for field in ("file", "fingerprint", "position", "reason", "column")},
            "why": REPLAY_REASONS.get(row["reason"], row["reason"]),
            "lines": row["raw"].count(b"\n") + 1,
        }
        for row in rows
    ]
    described = {"version": VERSION, "source": source, "kind": kind, "partitions": partitions, "rows": origins}
    header_lines = 0 if header is None else header.count(b"\n") + 1
    write_json(folder / ORIGINS / f"{name}.json", {**described, "header_lines": header_lines})
    return Exported(folder / name, source, len(rows), reasons)

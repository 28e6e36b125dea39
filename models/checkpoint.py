"""Checkpoints: logical tables by rows, dense weights by name, one manifest with checksums.

Nothing in one depends on how many replicas wrote it or where they held their rows: each model takes from it the
rows that it holds. See `checkpoint_files` for what is in a folder and `checkpoint_writer` for how it comes there.
A folder without a manifest does not exist for a reader.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from models.checkpoint_files import Entry, checked, dense_files, meets, read_array
from models.checkpoint_identity import FORMAT, check_identity
from models.checkpoint_writer import CheckpointWriter, remove, save_checkpoint
from models.ranking_model import RankingModel
from models.tables import WEIGHTS
from preprocessing.errors import ArtefactError, ConfigError, CorruptError
from preprocessing.manifest import exists, read_manifest

__all__ = [
    "CheckpointWriter",
    "latest_checkpoint",
    "load_checkpoint",
    "prune_checkpoints",
    "save_checkpoint",
    "unfinished_checkpoints",
]

Files = dict[str, Entry]


def load_checkpoint(folder: Path, model: RankingModel, *, slots: bool = True) -> dict[str, Any]:
    """Sets the model's weights, statistics and, with `slots`, optimizer state; returns the progress saved with them.

    All checksums of what this process takes are verified before the model is touched. With several processes each
    one calls it.

    Raises:
        CorruptError: if a file is missing or its content is not what was written.
        ArtefactError: if there is no finished checkpoint, or it belongs to another schema or model.
    """
    manifest = read_manifest(folder)
    check_identity(folder, model, manifest=manifest, slots=slots)
    files: Files = manifest["files"]
    rows = _needed_rows(folder, model, files=files, slots=slots)
    dense = list(dense_files(model, slots=slots))
    _check_all([*rows, *(file.path for file in dense)], folder, model, files=files)
    for path, entry in rows.items():
        _load_rows(folder, path, model, files=files, entry=entry)
    for file in dense:
        file.write(read_array(folder, file.path, files=files, shape=file.shape, dtype=file.dtype))
    return dict(manifest["progress"])


def _check_all(paths: Sequence[str], folder: Path, model: RankingModel, *, files: Files) -> None:
    """Verifies files; if one is damaged for any process, all refuse the checkpoint."""
    failure: ArtefactError | None = None
    try:
        for path in paths:
            checked(folder, path, files=files)
    except ArtefactError as error:
        failure = error
    fine = model.replicas.told(int(failure is None))
    if failure is not None:
        raise failure
    if not all(fine):
        raise CorruptError(f"{folder}: worker {fine.index(0)} found a damaged file; use an earlier checkpoint")


def _needed_rows(folder: Path, model: RankingModel, *, files: Files, slots: bool) -> Files:
    """Returns the files with rows that this process holds, after a look whether all rows are there."""
    needed: Files = {}
    for table in model.tables.plan.tables:
        held = model.tables.held_rows(table.name)
        for group in model.tables.groups:
            for array in model.tables.arrays(group) if slots else (WEIGHTS,):
                found = _files_of(files, table=table.name, group=group, array=array)
                count = sum(len(range(*entry["rows"])) for entry in found.values())
                if count != table.num_rows:
                    raise ArtefactError(
                        f"checkpoint {folder} has {count} of {table.num_rows} rows of table {table.name!r} ({group}, "
                        f"{array}); it was written by another version"
                    )
                needed |= {path: entry for path, entry in found.items() if meets(range(*entry["rows"]), held)}
    return needed


def _files_of(files: Files, **key: str) -> Files:
    return {path: entry for path, entry in files.items() if all(entry.get(name) == key[name] for name in key)}


def _load_rows(folder: Path, path: str, model: RankingModel, *, files: Files, entry: Mapping[str, Any]) -> None:
    ids = range(*entry["rows"])
    shape = (len(ids), model.tables.width(entry["group"]))
    values = read_array(folder, path, files=files, shape=shape, dtype=model.tables.dtype)
    model.tables.write(entry["table"], entry["group"], array=entry["array"], ids=ids, values=values)


def _by_age(root: Path) -> list[Path]:
    """Returns the finished checkpoints in `root`, oldest first: by the step in their progress, then by name."""
    found = []
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        if not folder.name.startswith(".") and exists(folder):
            try:
                manifest = read_manifest(folder)
            except ArtefactError:
                continue  # not finished: it does not exist for a reader
            if manifest.get("format") == FORMAT and "files" in manifest:
                found.append((manifest.get("progress", {}).get("step", -1), folder.name, folder))
    return [folder for _, _, folder in sorted(found)]


def latest_checkpoint(root: Path) -> Path | None:
    """Returns the finished checkpoint with the highest `progress["step"]` in `root`, or None."""
    return next(reversed(_by_age(root)), None)


def unfinished_checkpoints(root: Path) -> list[Path]:
    """Returns what writers that were killed, or are still at work, have in `root`."""
    return sorted(root.glob(".*.tmp"))


def prune_checkpoints(root: Path, *, keep: int, spare: str | None = None) -> None:
    """Removes all but the latest `keep` checkpoints in `root`, and what interrupted writers left there.

    Args:
        root: where they are; one process at a time calls this.
        keep: how many stay.
        spare: the `session` of writers that may be at work.

    Raises:
        ConfigError: if `keep` is below 1.
    """
    if keep < 1:
        raise ConfigError(f"at least one checkpoint must be kept, not {keep}")
    for folder in _by_age(root)[:-keep]:
        remove(folder)
    for leftover in unfinished_checkpoints(root):
        if spare is not None and f".{spare}." in leftover.name:
            continue
        shutil.rmtree(leftover, ignore_errors=True)

"""Checkpoints: logical tables by row range, dense weights by name, one manifest with checksums.

<folder>/tables/<table>/<group>.<array>.<first row>.npy    rows of a table: weights or an optimizer slot
<folder>/dense/<name>.npy                                  dense weights and batch-norm statistics
<folder>/slots/<slot>/<name>.npy                           state of the dense optimizer
<folder>/manifest.json                                     what it belongs to, progress, size and CRC-32 of each file

Nothing in it depends on replicas. Names are percent-quoted. Complete when renamed into place; never pickled.
"""

from __future__ import annotations

import io
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from models.ranking_model import RankingModel
from models.tables import WEIGHTS
from preprocessing.errors import ArtefactError, ConfigError, CorruptError
from preprocessing.manifest import complete, exists, read_manifest

__all__ = ["latest_checkpoint", "load_checkpoint", "prune_checkpoints", "save_checkpoint"]

_FORMAT = 1
_FILE_BYTES = 64 << 20
# What shapes the weights; the rest of a spec may change between save and load.
_SHAPING = ("kind", "embedding_dim", "hidden_units", "batch_norm", "cross_layers")

Files = dict[str, dict[str, int]]


def _identity(model: RankingModel) -> dict[str, Any]:
    spec = model.spec.model_dump(mode="json", include=set(_SHAPING))
    if model.spec.kind != "dcn":
        del spec["cross_layers"]
    return {"schema": model.schema.fingerprint(), **{f"model.{key}": value for key, value in spec.items()}}


def _optimizer_kinds(model: RankingModel) -> dict[str, str]:
    kinds = {storage.group: storage.optimizer.kind for storage in model.tables.plan.storages}
    return {**kinds, "dense": model.optimizers.dense.kind}


def _row_ranges(model: RankingModel) -> Iterator[tuple[str, str, str, int, int]]:
    """Yields (table, group, array, start, stop) of each file of table rows."""
    for table in model.tables.plan.tables:
        for group in model.tables.groups:
            per_file = max(1, _FILE_BYTES // (model.tables.width(group) * 8))
            for array in model.tables.arrays(group):
                for start in range(0, table.num_rows, per_file):
                    yield table.name, group, array, start, min(start + per_file, table.num_rows)


def _rows_path(table: str, group: str, array: str, start: int) -> str:
    return f"tables/{quote(table, safe='')}/{group}.{array}.{start:012d}.npy"


def _dense_paths(model: RankingModel, *, slots: bool) -> Iterator[tuple[str, tf.Variable]]:
    for name, variable in model.dense_variables.items():
        yield f"dense/{quote(name, safe='')}.npy", variable
    for slot, variables in model.dense_slots.items() if slots else ():
        for name, variable in variables.items():
            yield f"slots/{slot}/{quote(name, safe='')}.npy", variable


def _write(folder: Path, path: str, *, values: NDArray[np.floating]) -> dict[str, int]:
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=False)
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(buffer.getbuffer())
    return {"crc32": zlib.crc32(buffer.getbuffer()), "size_bytes": buffer.getbuffer().nbytes}


def _write_all(folder: Path, model: RankingModel) -> Files:
    files: Files = {}
    for table, group, array, start, stop in _row_ranges(model):
        path = _rows_path(table, group, array, start)
        values = model.tables.read(table, group, array=array, ids=range(start, stop))
        files[path] = _write(folder, path, values=values)
    for path, variable in _dense_paths(model, slots=True):
        files[path] = _write(folder, path, values=np.asarray(variable.numpy()))
    return files


def save_checkpoint(folder: Path, model: RankingModel, *, progress: Mapping[str, Any]) -> None:
    """Writes `folder`, or replaces it: a temporary folder, then its manifest, then a rename.

    Args:
        folder: the checkpoint; a reader sees all of it or nothing.
        model: what is saved.
        progress: JSON values that come back from `load_checkpoint`, such as `{"step": 100}`.

    Raises:
        ArtefactError: if it cannot be written.
    """
    temporary = folder.parent / f".{folder.name}.{os.getpid()}.tmp"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        manifest = {
            "format": _FORMAT,
            "identity": _identity(model),
            "optimizers": _optimizer_kinds(model),
            "files": _write_all(temporary, model),
            "progress": dict(progress),
        }
        if folder.exists():
            _remove(folder)
        complete(temporary, folder, manifest=manifest)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise ArtefactError(f"checkpoint {folder} cannot be written: {error}; free space or choose another") from error


def _remove(folder: Path) -> None:
    """Removes a checkpoint so that no reader sees a part of it."""
    hidden = folder.parent / f".{folder.name}.{os.getpid()}.old.tmp"
    folder.rename(hidden)
    shutil.rmtree(hidden)


def _checked(folder: Path, path: str, *, files: Files) -> bytes:
    if path not in files:
        raise ArtefactError(f"checkpoint {folder} has no {path}; it was written by another version")
    try:
        content = (folder / path).read_bytes()
    except OSError as error:
        raise CorruptError(f"{folder / path} cannot be read: {error}; use an earlier checkpoint") from error
    if len(content) != files[path]["size_bytes"] or zlib.crc32(content) != files[path]["crc32"]:
        raise CorruptError(
            f"{folder / path}: {len(content)} bytes with CRC-32 {zlib.crc32(content)}, the manifest says "
            f"{files[path]['size_bytes']} and {files[path]['crc32']}; use an earlier checkpoint"
        )
    return content


def _read(folder: Path, path: str, *, files: Files, shape: tuple[int, ...], dtype: str) -> NDArray[np.floating]:
    values = np.load(io.BytesIO(_checked(folder, path, files=files)), allow_pickle=False)
    if values.shape != shape or values.dtype != np.dtype(dtype):
        raise ArtefactError(
            f"{folder / path} holds {values.dtype} {values.shape}, this model needs {dtype} {shape}; "
            "load it into the model that wrote it"
        )
    return values


def _check_identity(folder: Path, model: RankingModel, *, manifest: Mapping[str, Any], slots: bool) -> None:
    if manifest.get("format") != _FORMAT:
        raise ArtefactError(f"{folder} is not a checkpoint of format {_FORMAT}: format {manifest.get('format')!r}")
    saved, wanted = dict(manifest["identity"]), _identity(model)
    if slots:
        saved |= {f"optimizer of {group}": kind for group, kind in manifest["optimizers"].items()}
        wanted |= {f"optimizer of {group}": kind for group, kind in _optimizer_kinds(model).items()}
    differences = [
        f"{key} is {saved.get(key)!r} there and {wanted.get(key)!r} here"
        for key in sorted(saved.keys() | wanted.keys())
        if saved.get(key) != wanted.get(key)
    ]
    if differences:
        raise ArtefactError(f"checkpoint {folder} is of another model: {'; '.join(differences)}; train anew")


def load_checkpoint(folder: Path, model: RankingModel, *, slots: bool = True) -> dict[str, Any]:
    """Sets the model's weights, statistics and, with `slots`, optimizer state; returns the progress saved with them.

    All checksums are verified before the model is touched.

    Raises:
        CorruptError: if a file is missing or its content is not what was written.
        ArtefactError: if there is no finished checkpoint, or it belongs to another schema or model.
    """
    manifest = read_manifest(folder)
    _check_identity(folder, model, manifest=manifest, slots=slots)
    files: Files = manifest["files"]
    for path in files:
        _checked(folder, path, files=files)
    for table, group, array, start, stop in _row_ranges(model):
        if slots or array == WEIGHTS:
            path, shape = _rows_path(table, group, array, start), (stop - start, model.tables.width(group))
            values = _read(folder, path, files=files, shape=shape, dtype=model.tables.dtype)
            model.tables.write(table, group, array=array, ids=range(start, stop), values=values)
    for path, variable in _dense_paths(model, slots=slots):
        shape = tuple(variable.shape.as_list())
        variable.assign(_read(folder, path, files=files, shape=shape, dtype=variable.dtype.name))
    return dict(manifest["progress"])


def _by_age(root: Path) -> list[Path]:
    """Returns the finished checkpoints in `root`, oldest first: by the step in their progress, then by name."""
    found = []
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        if not folder.name.startswith(".") and exists(folder):
            try:
                manifest = read_manifest(folder)
            except ArtefactError:
                continue  # not finished: it does not exist for a reader
            if manifest.get("format") == _FORMAT and "files" in manifest:
                found.append((manifest.get("progress", {}).get("step", -1), folder.name, folder))
    return [folder for _, _, folder in sorted(found)]


def latest_checkpoint(root: Path) -> Path | None:
    """Returns the finished checkpoint with the highest `progress["step"]` in `root`, or None."""
    return next(reversed(_by_age(root)), None)


def prune_checkpoints(root: Path, *, keep: int) -> None:
    """Removes all but the latest `keep` checkpoints in `root`, and what interrupted writers left there.

    To be called by the one process that writes to `root`.

    Raises:
        ConfigError: if `keep` is below 1.
    """
    if keep < 1:
        raise ConfigError(f"at least one checkpoint must be kept, not {keep}")
    for folder in _by_age(root)[:-keep]:
        _remove(folder)
    for leftover in root.glob(".*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)

"""The feature snapshot on disk: the state after a period, cut down to what completes a request, ready to be mapped.

FOLDER/manifest.json    layout, checksums, written last: a folder without it does not exist
FOLDER/<k>.arrow        of the k-th key set, one batch of rows sorted by the hash of the key:
    __hash              uint64
    the key columns     large_binary, int64 or float64
    NAME                of a count int64, of a rate float64, of a history large_list; texts by dictionary
    __known_NAME        large_list<int64>, ms, where the history has ages or a horizon
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import ValidationError

from preprocessing.columnar import hash_rows
from preprocessing.derived_spec import DerivedColumn
from preprocessing.dictionaries import plain_type
from preprocessing.errors import ArtefactError, CorruptError
from preprocessing.manifest import complete, read_manifest
from preprocessing.raw_values import is_list
from serving.features_layout import FORMAT, Clock, KeySet, KeyType, Layout

__all__ = ["HASH_COLUMN", "key_sets_of", "open_layout", "write_snapshot"]

HASH_COLUMN = "__hash"
_STAGE = "features"
_ARROW: dict[KeyType, pa.DataType] = {"string": pa.large_binary(), "int64": pa.int64(), "float64": pa.float64()}


def key_sets_of(states: Sequence[tuple[Sequence[DerivedColumn], pa.Table]]) -> tuple[KeySet, ...]:
    """Returns the key sets of states: of each the columns, all with one key, and its state."""
    found = []
    for place, (columns, state) in enumerate(states):
        key = columns[0].key
        found.append(
            KeySet(
                key=key,
                types=tuple(_type_of(state.schema.field(name).type) for name in key),
                columns=tuple(columns),
                value_types={
                    one.name: _type_of(state.schema.field(one.name).type) for one in columns if one.kind == "history"
                },
                rows=state.num_rows,
                file=f"{place}.arrow",
            )
        )
    return tuple(found)


def _type_of(kind: pa.DataType) -> KeyType:
    plain = plain_type(kind.value_type if is_list(kind) else kind)
    if pa.types.is_integer(plain):
        return "int64"
    return "float64" if pa.types.is_floating(plain) else "string"


def write_snapshot(
    folder: Path,
    states: Sequence[tuple[Sequence[DerivedColumn], pa.Table]],
    *,
    clock: Clock,
    model_name: str,
    version: int,
    inputs: Sequence[str],
    note: Mapping[str, Any],
) -> Layout:
    """Writes a snapshot into the new folder `folder` and returns its layout.

    Args:
        folder: appears by rename when it is complete.
        states: of each key the columns that the model needs, and the state; see `preprocessing.entity_state`.
        clock: how the moment of a request is found, and when the state was taken.
        model_name: the model that it is for.
        version: of the model.
        inputs: all columns that the model takes.
        note: JSON values kept in the manifest.
    """
    layout = Layout(
        model_name=model_name, version=version, clock=clock, key_sets=key_sets_of(states), inputs=frozenset(inputs)
    )
    temporary = folder.with_name(f".{folder.name}.partial")
    temporary.mkdir(parents=True)
    for key_set, (_, state) in zip(layout.key_sets, states, strict=True):
        _write(_stored(key_set, state), temporary / key_set.file)
    sums = {key_set.file: _checksum(temporary / key_set.file) for key_set in layout.key_sets}
    content = {"layout": layout.model_dump(mode="json"), "sha256": sums}
    complete(temporary, folder, manifest={"stage": _STAGE, "content": content, **note})
    return layout


def _stored(key_set: KeySet, state: pa.Table) -> pa.Table:
    """Returns the columns of a file, sorted by the hash of the key."""
    hashes = hash_rows(state, key_set.key)
    columns: dict[str, pa.Array] = {HASH_COLUMN: pa.array(hashes)}
    for name, kind in zip(key_set.key, key_set.types, strict=True):
        columns[name] = _one(state[name].cast(plain_type(state[name].type)).cast(_ARROW[kind]))
    columns |= {one.name: _one(state[one.name]) for one in key_set.scalars}
    columns |= {name: _list(state[name], kind) for name, kind in key_set.lists().items()}
    table = pa.table(columns)
    if (hashes[1:] < hashes[:-1]).any():
        table = table.take(pa.array(np.argsort(hashes, kind="stable")))
    return table


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _list(column: pa.ChunkedArray, kind: KeyType) -> pa.LargeListArray:
    """Returns lists with offsets of 64 bits, texts by a dictionary of all of them."""
    lengths = [np.diff(chunk.offsets.to_numpy()) for chunk in column.chunks]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([np.zeros(0, np.int64), *lengths]))]).astype(np.int64)
    values = pa.chunked_array([chunk.flatten() for chunk in column.chunks], column.type.value_type)
    if kind == "string":
        encoded = values.cast(pa.large_binary()).dictionary_encode().unify_dictionaries()
        dictionary = encoded.chunk(0).dictionary if encoded.num_chunks else pa.array([], pa.large_binary())
        codes = _one(pa.chunked_array([chunk.indices for chunk in encoded.chunks], pa.int32()))
        return pa.LargeListArray.from_arrays(pa.array(offsets), pa.DictionaryArray.from_arrays(codes, dictionary))
    return pa.LargeListArray.from_arrays(pa.array(offsets), _one(values))


def _write(table: pa.Table, path: Path) -> None:
    batches = table.combine_chunks().to_batches()
    with path.open("wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        for batch in batches or [
            pa.RecordBatch.from_arrays([pa.array([], f.type) for f in table.schema], table.schema.names)
        ]:
            writer.write_batch(batch)


def open_layout(folder: Path, *, verify: bool = True) -> Layout:
    """Returns the layout of a snapshot whose files are as they were written.

    Args:
        folder: of the snapshot.
        verify: whether the checksums are compared, which reads every byte once.

    Raises:
        ArtefactError: if there is no snapshot, or it has another format.
        CorruptError: if a file does not match its checksum.
    """
    content = read_manifest(folder).get("content", {})
    found = content.get("layout", {}).get("format")
    if found != FORMAT:
        raise ArtefactError(f"{folder} has format {found}, and {FORMAT} is read here; publish the features anew")
    try:
        layout = Layout.model_validate(content["layout"])
    except ValidationError as error:
        raise CorruptError(f"{folder}: the manifest does not describe a snapshot: {error}; publish anew") from error
    for key_set in layout.key_sets if verify else ():
        path = folder / key_set.file
        if _checksum(path) != content["sha256"].get(key_set.file):
            raise CorruptError(f"{path} does not match its checksum; publish the features anew")
    return layout


def _checksum(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error}; publish the features anew") from error

"""A snapshot into Redis: all records in batches under a new generation, then the pointer, in one step."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from preprocessing.errors import ServingError
from preprocessing.manifest import digest, read_manifest
from serving.features_embedded import EmbeddedStore
from serving.features_records import RecordCodec, key_bytes
from serving.features_redis import Names, connect, plain_errors
from serving.features_spec import FeaturesSpec

__all__ = ["Pushed", "push_snapshot"]

_BATCH_KEYS = 2000
_BATCHES_AT_ONCE = 4
_TIMEOUT_S = 30.0  # of one batch, not of one look-up
_KEEP = 2
_KEEP_VERSIONS = 3


@dataclasses.dataclass(frozen=True)
class Pushed:
    """What a push did: the generation, the keys written (0 if it was there), the generations removed."""

    generation: str
    keys: int
    removed: tuple[str, ...]


def push_snapshot(spec: FeaturesSpec, snapshot: Path, *, observe: Callable[[int], None] = lambda keys: None) -> Pushed:
    """Makes a snapshot what Redis answers from; a push that is cut off changes nothing for readers.

    Args:
        spec: where Redis is.
        snapshot: folder of the snapshot.
        observe: told the number of keys written so far.

    Raises:
        ArtefactError: if the snapshot is absent or corrupt.
        ServingError: if Redis fails, or has no room.
    """
    store = EmbeddedStore(snapshot)
    layout = store.layout
    generation = f"{layout.version}-{layout.clock.state_ms}-{digest(read_manifest(snapshot)['content'])[:8]}"
    names, client = Names(spec.prefix, layout.model_name), connect(spec, timeout_s=_TIMEOUT_S)
    with plain_errors(spec):
        _refuse_eviction(client)
        present = client.exists(names.layout(generation))
        client.zadd(names.generations(), {generation: time.time()})  # so that what a killed push leaves is found
        keys = 0 if present else _write(client, store, names, generation, observe)
        with client.pipeline(transaction=True) as pipe:
            pipe.set(names.layout(generation), layout.model_dump_json())
            pipe.zadd(names.generations(), {generation: time.time()})
            pipe.set(names.current(layout.version), generation)
            pipe.set(names.current(), generation)
            pipe.execute()
        removed = _remove_old(client, names)
    client.close()
    return Pushed(generation, keys, removed)


def _refuse_eviction(client: Any) -> None:
    """A server that drops keys when it is full would turn users into users without events, and nobody would know."""
    memory = client.info("memory")
    policy = memory.get("maxmemory_policy", "noeviction")
    if int(memory.get("maxmemory", 0)) and policy.startswith("allkeys"):
        raise ServingError(
            f"Redis evicts any key when it is full (maxmemory-policy {policy}), and a state with holes answers "
            "wrongly; set noeviction or volatile-lru"
        )


def _write(client: Any, store: EmbeddedStore, names: Names, generation: str, observe: Callable[[int], None]) -> int:
    done = 0
    for place, key_set in enumerate(store.layout.key_sets):
        codec, start = RecordCodec(key_set), names.records(generation, place)
        for first in range(0, key_set.rows, _BATCH_KEYS * _BATCHES_AT_ONCE):
            with client.pipeline(transaction=False) as pipe:
                for begin in range(first, min(first + _BATCH_KEYS * _BATCHES_AT_ONCE, key_set.rows), _BATCH_KEYS):
                    keys, records = store.rows(place, begin, begin + _BATCH_KEYS)
                    content = map(codec.encode, records)
                    pipe.mset({start + key_bytes(key): one for key, one in zip(keys, content, strict=True)})
                    done += len(keys)
                pipe.execute()
            observe(done)
    return done


def _remove_old(client: Any, names: Names) -> tuple[str, ...]:
    """Removes all generations but those of the versions pushed last, and the last ones, which may still be read."""
    known = [name.decode() for name in client.zrange(names.generations(), 0, -1)]
    versions = list(dict.fromkeys(_version_of(name) for name in reversed(known)))
    pointed = [client.get(names.current(version)) for version in versions[:_KEEP_VERSIONS]]
    kept = {*known[-_KEEP:], *(name.decode() for name in pointed if name is not None)}
    removed = tuple(name for name in known if name not in kept)
    for name in removed:
        client.delete(names.layout(name))
        for batch in _batches(client.scan_iter(match=f"{_literal(names.layout(name))}:*", count=_BATCH_KEYS)):
            client.unlink(*batch)
        client.zrem(names.generations(), name)
    for version in versions[_KEEP_VERSIONS:]:
        client.delete(names.current(version))
    return removed


def _version_of(generation: str) -> int:
    return int(generation.partition("-")[0])


def _batches(names: Any) -> Any:
    batch: list[bytes] = []
    for name in names:
        batch.append(name)
        if len(batch) == _BATCH_KEYS:
            yield batch
            batch = []
    if batch:
        yield batch


def _literal(name: str) -> str:
    return "".join(f"\\{letter}" if letter in "*?[]^\\" else letter for letter in name)

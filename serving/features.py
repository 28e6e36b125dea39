"""Online features: histories, counts and rates of a request, looked up where preprocessing published them.

`open_features(...)` opens the store that the config names; `complete(rows, now_ms)` adds to each row the columns that
the model takes and the client does not have. What is added equals what preprocessing makes of the same row with
`features.freshness: day`.

A store is whatever has the methods of `FeatureStore`: `EmbeddedStore` maps a snapshot, `RedisStore` asks a server.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from preprocessing.errors import ArtefactError, ServingError
from serving.features_answer import Answers, answers_of
from serving.features_embedded import EmbeddedStore, Record
from serving.features_folder import newest_snapshot
from serving.features_hash import Key
from serving.features_keys import distinct_keys
from serving.features_layout import Layout
from serving.features_spec import FeaturesSpec
from serving.labels import live_version

__all__ = ["FeatureCompleter", "FeatureStore", "open_features", "served_snapshot"]

Row = Mapping[str, Any]

_ATTEMPTS = 4
_log = logging.getLogger(__name__)


class FeatureStore(Protocol):
    """Where the state of users and items is looked up."""

    @property
    def layout(self) -> Layout:
        """What the state holds, and as of when."""

    def fetch(self, wanted: Sequence[Sequence[Key]]) -> tuple[Layout, list[list[Record | None]]]:
        """Returns the layout and, for the keys of each of its key sets, what is known of them; None for nothing.

        Another layout than before the call means that the state was replaced meanwhile: ask again by it.

        Raises:
            ServingError: if the store cannot be reached.
        """

    def close(self) -> None:
        """Frees what the store holds."""


class FeatureCompleter:
    """Completes requests; made by `open_features`, safe for use by several threads at once."""

    def __init__(self, store: FeatureStore, *, newer: Callable[[], FeatureStore | None] = lambda: None) -> None:
        """Takes a store.

        Args:
            store: to look up in.
            newer: called before each request; another store if there is one with a newer state.
        """
        self._store, self._newer = store, newer
        self._planned: tuple[Layout, list[Answers]] | None = None

    @property
    def layout(self) -> Layout:
        """What the state holds, and as of when."""
        return self._store.layout

    def complete(self, rows: Sequence[Row], now_ms: int) -> list[dict[str, Any]]:
        """Returns the rows with the point-in-time columns that they lack.

        A column that a row has is kept, whatever its value. A key column that the model does not take is left out.
        Lists may be shared between rows.

        Args:
            rows: raw columns by name, the key columns among them; a missing key is that of a user without events.
            now_ms: the time of the request, in ms since 1970 UTC.

        Raises:
            ServingError: if a key is of another type, or the store cannot be reached.
        """
        layout, completed = self._look_up(rows, now_ms)
        dropped = layout.only_keys()
        for row, merged in zip(rows, completed, strict=True):
            merged.update(row)
            for name in dropped:
                merged.pop(name, None)
        return completed

    def lookup(self, rows: Sequence[Row], now_ms: int) -> dict[str, list[Any]]:
        """Returns the point-in-time columns that the model takes, a value for each row; see `complete`."""
        layout, made = self._look_up(rows, now_ms)
        names = [name for key_set in layout.key_sets for name in layout.made(key_set)]
        return {
            name: [row[name] if name in row else values[name] for row, values in zip(rows, made, strict=True)]
            for name in names
        }

    def _look_up(self, rows: Sequence[Row], now_ms: int) -> tuple[Layout, list[dict[str, Any]]]:
        """Returns for each row the values of the key sets of which it lacks a column."""
        self._store = store = self._newer() or self._store
        for _ in range(_ATTEMPTS):
            layout = store.layout
            lacking = [_lacking(rows, layout.made(key_set)) for key_set in layout.key_sets]
            if not any(lacking):
                return layout, [{} for _ in rows]
            asked = zip(lacking, layout.key_sets, strict=True)
            keys = [distinct_keys(rows, places, key_set) for places, key_set in asked]
            found, records = store.fetch([list(known) for known, _ in keys])
            if found is layout:
                return layout, self._made(layout, keys, records, now_ms=now_ms, num_rows=len(rows))
        raise ServingError(f"the feature state changed {_ATTEMPTS} times during one request; who publishes so often?")

    def _made(
        self,
        layout: Layout,
        keys: Sequence[tuple[Mapping[Key, Sequence[int]], Sequence[int]]],
        records: Sequence[Sequence[Record | None]],
        *,
        now_ms: int,
        num_rows: int,
    ) -> list[dict[str, Any]]:
        cutoff_ms = layout.clock.cutoff_ms(now_ms)
        made: list[dict[str, Any]] = [{} for _ in range(num_rows)]
        for answer, (found, keyless), known in zip(self._answers(layout), keys, records, strict=True):
            nothing = answer(None, cutoff_ms)
            for place in keyless:
                made[place].update(nothing)
            for members, record in zip(found.values(), known, strict=True):
                values = nothing if record is None else answer(record, cutoff_ms)
                for place in members:
                    made[place].update(values)
        return made

    def _answers(self, layout: Layout) -> list[Answers]:
        planned = self._planned
        if planned is None or planned[0] is not layout:
            planned = layout, [answers_of(key_set, layout.inputs) for key_set in layout.key_sets]
            self._planned = planned
        return planned[1]

    def close(self) -> None:
        """Frees what the store holds."""
        self._store.close()


def _lacking(rows: Sequence[Row], names: Sequence[str]) -> list[int]:
    wanted = frozenset(names)
    return [place for place, row in enumerate(rows) if not wanted <= row.keys()]


def served_snapshot(store: Path, version: int | None = None) -> Path | None:
    """Returns the newest snapshot of a version; None if there is none.

    Args:
        store: folder of the model's versions.
        version: of the model; by default the live one, or where it has no features the newest that has some.
    """
    if version is not None:
        return newest_snapshot(store, version)
    live = live_version(store)
    return (None if live is None else newest_snapshot(store, live)) or newest_snapshot(store)


def open_features(spec: FeaturesSpec, *, store: Path, model_name: str, version: int | None = None) -> FeatureCompleter:
    """Returns what completes requests to a model.

    Args:
        spec: `serve.features` of the config.
        store: folder of the model's versions, beside which snapshots are published.
        model_name: of the model.
        version: of the model; by default the live one, and with Redis the one pushed last.

    Raises:
        ArtefactError: if no features were published.
        ServingError: if Redis cannot be reached.
    """
    if spec.store == "redis":
        from serving.features_redis import RedisStore

        return FeatureCompleter(RedisStore(spec, model_name=model_name, version=version))
    newest = _Newest(functools.partial(served_snapshot, store, version), poll_s=spec.poll_s)
    first = newest.open()
    if first is None:
        what = "features" if version is None else f"features of version {version}"
        raise ArtefactError(f"{store} holds no {what}; run `rankmill publish`")
    return FeatureCompleter(first, newer=newest.take)


class _Newest:
    """The newest snapshot: looked for, and opened, in a thread of its own, so that no request waits for it."""

    def __init__(self, find: Callable[[], Path | None], *, poll_s: float) -> None:
        self._find, self._poll_s = find, poll_s
        self._busy = threading.Lock()
        self._opened: Path | None = None
        self._ready: EmbeddedStore | None = None
        self._due = 0.0

    def open(self) -> EmbeddedStore | None:
        """Returns the newest snapshot if it is another one than the last time."""
        self._due = time.monotonic() + self._poll_s
        found = self._find()
        if found is None or found == self._opened:
            return None
        store = EmbeddedStore(found)
        self._opened = found
        return store

    def take(self) -> EmbeddedStore | None:
        """Returns a newer snapshot if one has been opened, and has the next one looked for when it is time."""
        if time.monotonic() >= self._due and self._busy.acquire(blocking=False):
            self._due = time.monotonic() + self._poll_s
            threading.Thread(target=self._open_aside, name="features", daemon=True).start()
        ready, self._ready = self._ready, None
        return ready

    def _open_aside(self) -> None:
        try:
            self._ready = self.open() or self._ready
        except (ArtefactError, OSError) as error:  # the state before serves on
            _log.warning("newer features are not used: %s", error)
        finally:
            self._busy.release()

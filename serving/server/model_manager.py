"""Keeps the wanted versions of the wanted models loaded, and hands them to requests.

Two threads: one polls the file system, one acts on what was found. A version is unloaded only when another serves
and no request holds it any more.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from serving.server.discovery import ModelConfig, aspired_versions
from serving.server.labels import check_configs, check_labels
from serving.server.status import Code, StatusError, not_found_latest, not_found_version
from serving.server.versions import State, VersionRecord, aspire, is_settled, to_load, to_unload

__all__ = ["LoadOptions", "ModelManager", "VersionStatus"]

_log = logging.getLogger(__name__)
_TICK_S = 0.1


class _Closable(Protocol):
    def close(self) -> None: ...


S = TypeVar("S", bound=_Closable)


@dataclasses.dataclass(frozen=True)
class LoadOptions:
    """When versions are looked for and how hard a load is tried; defaults are those of the flags."""

    poll_wait_s: float = 1.0
    max_num_load_retries: int = 5
    load_retry_interval_s: float = 60.0
    num_load_threads: int = 0
    num_initial_load_threads: int = 8
    allow_labels_for_unavailable: bool = False


@dataclasses.dataclass(frozen=True)
class VersionStatus:
    """A version as GetModelStatus shows it."""

    version: int
    state: State
    error: StatusError | None


class ModelManager(Generic[S]):
    """Loads versions by `loader` and lends them out; safe for use by several threads at once."""

    def __init__(
        self,
        loader: Callable[[str, int, Path], S],
        options: LoadOptions,
        *,
        stopping: threading.Event | None = None,
    ) -> None:
        self._loader = loader
        self._options = options
        self._changed = threading.Condition(threading.RLock())
        self._configs: dict[str, ModelConfig] = {}
        self._records: dict[str, dict[int, VersionRecord[S]]] = {}
        self._labels: dict[str, dict[str, int]] | None = None
        self._applying = threading.Lock()
        self._stopping = stopping or threading.Event()
        self._pool = ThreadPoolExecutor(max(1, options.num_initial_load_threads), thread_name_prefix="load")
        self._threads = [
            threading.Thread(target=self._act_forever, name="manage", daemon=True),
            threading.Thread(target=self._poll_forever, name="poll", daemon=True),
        ]

    def start(self, configs: Sequence[ModelConfig]) -> None:
        """Loads the first config; returns when each of its models has a version available.

        Raises:
            StatusError: if a model cannot be loaded after all retries, or `stop` was called meanwhile.
        """
        for thread in self._threads:
            thread.start()
        self.apply(configs)
        with self._changed:
            initial, self._pool = self._pool, ThreadPoolExecutor(max(1, self._options.num_load_threads))
        initial.shutdown(wait=False)

    def apply(self, configs: Sequence[ModelConfig]) -> None:
        """Replaces the config as a whole and waits for the models whose name is new.

        Raises:
            StatusError: if the config is refused (nothing changes then), or a new model did not become available.
        """
        with self._applying:
            self._wait_for(self._replace(configs))

    def _replace(self, configs: Sequence[ModelConfig]) -> list[str]:
        """Puts a config into force; returns the names of models that are new with it."""
        check_configs(configs, self._configs)
        with self._changed:
            self._check_labels(configs)
            new = [config.name for config in configs if config.name not in self._configs]
            removed = self._configs.keys() - {config.name for config in configs}
            self._configs = {config.name: config for config in configs}
            self._labels = {config.name: dict(config.labels) for config in configs}
            for name in new:
                self._records.setdefault(name, {})
            for name in removed:
                aspire(self._records[name], {})
        if self._options.poll_wait_s >= 0:
            self.poll()
        return new

    def _check_labels(self, configs: Sequence[ModelConfig]) -> None:
        available = {name: self._available(name) for name in self._records}
        check_labels(
            configs, self._labels or {}, available, allow_unavailable=self._options.allow_labels_for_unavailable
        )

    def _wait_for(self, names: Sequence[str]) -> None:
        with self._changed:
            while not all(is_settled(self._records[name].values()) for name in names):
                if self._stopping.is_set():
                    raise StatusError(Code.CANCELLED, "the server was stopped before its models were available")
                self._changed.wait(_TICK_S)
            failed = [name for name in names if not self._available(name)]
            errors = [
                f"{{name: {name} version: {record.number} error: {record.error}}}"
                for name in failed
                for record in self._records[name].values()
                if record.aspired and record.error is not None
            ]
        if failed:
            text = f"{len(failed)} model(s) did not become available: {{{', '.join(errors)}}}"
            raise StatusError(Code.UNKNOWN, text)

    @contextlib.contextmanager
    def acquire(self, name: str, *, version: int | None = None, label: str | None = None) -> Iterator[tuple[S, int]]:
        """Lends a servable and its version number; it stays loaded until it is given back.

        Raises:
            StatusError: if the model, version or label is not there.
        """
        with self._changed:
            record = self._find(name, version, label)
            record.references += 1
            servable = record.servable
        if servable is None:
            raise StatusError(Code.INTERNAL, f"model {name} version {record.number} is available without a servable")
        try:
            yield servable, record.number
        finally:
            with self._changed:
                record.references -= 1
                if not record.references and record.state is State.UNLOADING:
                    self._changed.notify_all()

    def _find(self, name: str, version: int | None, label: str | None) -> VersionRecord[S]:
        if label is not None:
            if self._labels is None:
                raise StatusError(Code.UNAVAILABLE, "labels are not known yet: no config was accepted so far")
            version = self._labels.get(name, {}).get(label)
            if version is None:
                raise StatusError(Code.INVALID_ARGUMENT, f"Unrecognized servable version label: {label}")
        records = self._records.get(name, {})
        if version is None:
            available = self._available(name)
            if not available:
                raise not_found_latest(name)
            return records[max(available)]
        record = records.get(version)
        if record is None or record.state is not State.AVAILABLE:
            raise not_found_version(name, version)
        return record

    def _available(self, name: str) -> set[int]:
        records = self._records.get(name, {})
        return {number for number, record in records.items() if record.state is State.AVAILABLE}

    def statuses(self, name: str, *, version: int | None = None) -> list[VersionStatus]:
        """Returns the versions of a model that were ever seen, newest first, or the one asked for.

        Raises:
            StatusError: NOT_FOUND, if there is none.
        """
        with self._changed:
            records = sorted(self._records.get(name, {}).values(), key=lambda record: record.number, reverse=True)
            found = [
                VersionStatus(record.number, record.state, record.error)
                for record in records
                if version is None or record.number == version
            ]
        if not found:
            wanted = "" if version is None else f" with version {version}"
            raise StatusError(Code.NOT_FOUND, f"Could not find any versions of model {name}{wanted}")
        return found

    def poll(self) -> None:
        """Looks for versions once; if any base path cannot be listed, nothing changes for any model."""
        with self._changed:
            configs = dict(self._configs)
        try:
            wanted = {name: aspired_versions(config) for name, config in configs.items()}
        except OSError as error:
            _log.warning("polling for versions failed, no model gets new ones until this is mended: %s", error)
            return
        with self._changed:
            for name, versions in wanted.items():
                if self._configs.get(name) is configs[name]:
                    aspire(self._records[name], versions)
            self._changed.notify_all()

    def _poll_forever(self) -> None:
        if self._options.poll_wait_s <= 0:
            return
        while not self._stopping.wait(self._options.poll_wait_s):
            self.poll()

    def _act_forever(self) -> None:
        while not self._stopping.is_set():
            with self._changed:
                unloaded = self._act()
                if not unloaded:
                    self._changed.wait(_TICK_S)
            for record in unloaded:
                self._unload(record)

    def _act(self) -> list[VersionRecord[S]]:
        now_s = time.monotonic()
        ready: list[VersionRecord[S]] = []
        for name, records in self._records.items():
            for record in to_unload(records.values()):
                _log.info("model %s version %d: unloading", name, record.number)
                record.state = State.UNLOADING
            ready += [
                r for r in records.values() if r.state is State.UNLOADING and not r.references and not r.in_flight
            ]
            for record in to_load(records.values(), now_s=now_s):
                record.state, record.in_flight = State.LOADING, True
                self._pool.submit(self._load, name, record)
        return ready

    def _unload(self, record: VersionRecord[S]) -> None:
        servable, record.servable = record.servable, None
        try:
            if servable is not None:
                servable.close()
        except Exception:
            _log.exception("closing version %d failed", record.number)
        with self._changed:
            record.state = State.END
            self._changed.notify_all()

    def _load(self, name: str, record: VersionRecord[S]) -> None:
        servable, error = self._try_load(name, record)
        with self._changed:
            record.in_flight = False
            if servable is not None:
                _log.info("model %s version %d: available", name, record.number)
                record.servable, record.state = servable, State.AVAILABLE
            elif error is not None:
                self._note_failure(name, record, error)
            self._changed.notify_all()

    def _try_load(self, name: str, record: VersionRecord[S]) -> tuple[S | None, StatusError | None]:
        try:
            return self._loader(name, record.number, record.path), None
        except StatusError as error:
            return None, error
        except Exception as error:
            _log.exception("model %s version %d: unexpected error while loading", name, record.number)
            return None, StatusError(Code.INTERNAL, str(error))

    def _note_failure(self, name: str, record: VersionRecord[S], error: StatusError) -> None:
        record.attempts += 1
        _log.error("model %s version %d: load attempt %d failed: %s", name, record.number, record.attempts, error)
        if record.attempts > self._options.max_num_load_retries or not record.aspired:
            record.state, record.error = State.END, error
            return
        record.not_before_s = time.monotonic() + max(0.0, self._options.load_retry_interval_s)

    def stop(self) -> None:
        """Stops the threads and closes every servable."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        self._pool.shutdown(cancel_futures=True)
        for records in self._records.values():
            for record in records.values():
                if record.servable is not None:
                    self._unload(record)

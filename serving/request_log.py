"""A log of requests: some of what a client sends and gets, in rolling Parquet files.

`with RequestLog(RequestLogSpec(dir="log")) as log, connect(target, recorder=log) as client: client.predict(...)`

It never holds a request up: rows go into a bounded queue, a thread writes them, and what finds the queue full is
dropped and counted. It never fails a request either: when the disk is full, rows are counted as failed.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from preprocessing.errors import RankmillError
from serving.client_record import Exchange
from serving.request_log_files import OpenFile, finish_left_behind
from serving.request_log_rows import to_batch
from serving.request_log_spec import RequestLogSpec

__all__ = ["RequestLog"]

_POLL_S = 0.2
_log = logging.getLogger(__name__)


class RequestLog:
    """Keeps requests; safe for use by several threads at once.

    Attributes:
        dropped: requests that found the queue full.
        failed: requests that could not be written.
        written: requests that were.
    """

    def __init__(self, spec: RequestLogSpec) -> None:
        """Opens a log; files that a killed process left open are finished."""
        self._spec, self._folder = spec, Path(spec.dir)
        self._limit = round(spec.sample * 2**64)
        self._key = spec.seed.to_bytes(16, "little")
        self._numbers = itertools.count()
        self._queue: queue.Queue[Exchange] = queue.Queue(spec.max_queued)
        self._closing = threading.Event()
        self.dropped = self.failed = self.written = 0
        self._file: OpenFile | None = None
        self._thread = threading.Thread(target=self._work, name="request-log", daemon=True)
        self._thread.start()

    def wants(self, request_id: str) -> bool:
        """Returns whether the draw keeps a request: the same for the same id and seed, here and elsewhere.

        Requests without an id are drawn by their number.
        """
        text = request_id or f"#{next(self._numbers)}"
        drawn = hashlib.blake2b(text.encode(), digest_size=8, key=self._key).digest()
        return int.from_bytes(drawn, "little") < self._limit

    def record(self, exchange: Exchange) -> None:
        """Keeps a request, or counts it as dropped."""
        if self._closing.is_set():
            self.dropped += 1
            return
        try:
            self._queue.put_nowait(exchange)
        except queue.Full:
            self.dropped += 1

    def _work(self) -> None:
        with self._counted("left behind by a killed process"):
            finish_left_behind(self._folder)
        while True:
            with contextlib.suppress(queue.Empty):
                self._write(self._queue.get(timeout=_POLL_S))
            if self._closing.is_set() and self._queue.empty():
                break
            if self._file is not None and self._is_due(self._file):
                self._finish()
        self._finish()

    def _write(self, exchange: Exchange) -> None:
        with self._counted("a request"):
            batch = to_batch(exchange)
            if self._file is not None and not self._file.schema.equals(batch.schema):
                self._finish()
            if self._file is None:
                self._file = OpenFile(self._folder, batch.schema)
            self._file.write(batch)
            self.written += 1

    def _is_due(self, file: OpenFile) -> bool:
        is_old = time.monotonic() - file.opened_s > self._spec.max_file_s
        return is_old or file.size_bytes() > self._spec.max_file_mb * 1e6

    def _finish(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with self._counted("a file"):
                file.finish()

    @contextlib.contextmanager
    def _counted(self, what: str) -> Iterator[None]:
        try:
            yield
        except (RankmillError, OSError, pa.ArrowException, ValueError) as error:
            self.failed += 1
            if self.failed == 1:
                _log.warning(
                    "request log %s: %s is not written: %s; later failures are only counted", self._folder, what, error
                )

    def close(self, *, timeout_s: float = 30.0) -> None:
        """Writes what waits and finishes the open file."""
        self._closing.set()
        self._thread.join(timeout_s)

    def __enter__(self) -> RequestLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

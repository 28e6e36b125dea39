"""How a version is loaded as the flags say: session, batching, warm-up, and the metrics of all that."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serving.server.batching import BatchScheduler
from serving.server.config_files import batching_parameters
from serving.server.flags import Flags
from serving.server.load_settings import load_settings
from serving.server.metrics import Metrics
from serving.server.servable import Servable
from serving.server.tflite import TFLITE_FILE
from serving.server.warmup import warm_up

__all__ = ["Loader"]

_PER_MODEL_FILE = "batching_params.pbtxt"


class Loader:
    """Loads versions; the batch threads are shared by all of them.

    Raises:
        RankmillError: if flags contradict each other or a file that they name is wrong.
    """

    def __init__(self, flags: Flags, metrics: Metrics) -> None:
        self._flags, self._metrics = flags, metrics
        self._settings = load_settings(flags)
        self._scheduler = None
        if self._settings.batching is not None:
            self._scheduler = BatchScheduler(
                num_threads=self._settings.batching.num_batch_threads,
                thread_pool_name=self._settings.batching.thread_pool_name,
                metrics=metrics,
            )

    def load(self, _name: str, version: int, path: Path) -> Servable:
        """Returns the version at `path`, warmed up.

        Raises:
            StatusError: if it does not load or a warm-up record fails.
        """
        start_s, loaded = time.perf_counter(), False
        try:
            servable = self._load(path)
            loaded = True
        finally:
            self._metrics.observe_load(str(path), loaded=loaded, seconds=time.perf_counter() - start_s)
        if self._settings.warm_up:
            self._warm_up(servable, version)
        return servable

    def _load(self, path: Path) -> Servable:
        batching, flags = self._batching(path), self._flags
        if flags.prefer_tflite_model and (path / TFLITE_FILE).is_file():
            count = max(1, flags.num_tflite_pools) * max(1, flags.num_tflite_interpreters_per_pool)
            return Servable.load_tflite(path, num_interpreters=count, batching=batching)
        settings = self._settings
        return Servable.load(path, tags=settings.tags, session_config=settings.session_config, batching=batching)

    def _warm_up(self, servable: Servable, version: int) -> None:
        iterations = self._settings.num_warmup_iterations
        try:
            warm_up(servable, version=version, num_iterations=iterations, metrics=self._metrics)
        except BaseException:
            servable.close()
            raise

    def _batching(self, path: Path) -> Callable[[Any], Any] | None:
        """Returns what puts batching in front of a graph; None if the version is not to be batched."""
        parameters = self._settings.batching
        if self._scheduler is None or parameters is None:
            return None
        if self._flags.enable_per_model_batching_parameters:
            if not (path / _PER_MODEL_FILE).exists():
                return None
            parameters = batching_parameters(path / _PER_MODEL_FILE)
        return functools.partial(self._scheduler.wrap, parameters=parameters)

    def close(self) -> None:
        """Ends the batch threads."""
        if self._scheduler is not None:
            self._scheduler.stop()

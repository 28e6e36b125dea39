"""New configs while the server runs: by the HandleReloadConfigRequest call, or from the config file."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tensorflow_serving.apis import model_management_pb2

from preprocessing.errors import RankmillError
from serving.server.config_files import model_configs, parse_model_config_file
from serving.server.discovery import ModelConfig
from serving.server.metrics import Metrics

__all__ = ["ConfigFilePoller", "reload_config"]

_log = logging.getLogger(__name__)

Apply = Callable[[Sequence[ModelConfig]], Any]


def reload_config(
    request: model_management_pb2.ReloadConfigRequest, *, apply: Apply, metrics: Metrics
) -> model_management_pb2.ReloadConfigResponse:
    """Answers HandleReloadConfigRequest: the new list of models replaces the old one whole.

    Raises:
        StatusError: if the config is refused or a new model does not become available.
    """
    before = {name: metrics.total(name) for name in request.metric_names}
    apply(model_configs(request.config))
    response = model_management_pb2.ReloadConfigResponse()
    response.status.SetInParent()
    for name, count in before.items():
        response.metric.add(name=name, int64_value_increase=metrics.total(name) - count)
    return response


class ConfigFilePoller:
    """Reads the config file again and again on a thread; what cannot be applied is logged and changes nothing."""

    def __init__(self, path: Path, *, interval_s: float, apply: Apply) -> None:
        self._path, self._interval_s, self._apply = path, interval_s, apply
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._poll_forever, name="config", daemon=True)

    def start(self) -> None:
        """Begins to poll, the first time after one interval."""
        self._thread.start()

    def stop(self) -> None:
        """Ends polling; the apply that runs is not waited for."""
        self._stopping.set()

    def _poll_forever(self) -> None:
        last_error = ""
        while not self._stopping.wait(self._interval_s):
            error = self._poll()
            if error and error != last_error:
                _log.error("the config in force stays, %s was not applied: %s", self._path, error)
            last_error = error

    def _poll(self) -> str:
        """Applies the file, even if its text is the same: labels may wait for versions that have come since."""
        try:
            self._apply(parse_model_config_file(self._path))
        except RankmillError as error:
            return str(error)
        except Exception as error:
            _log.exception("unexpected error while a config was applied")
            return f"{type(error).__name__}: {error}"
        return ""

"""One run of the server: load, open the ports after the first load, serve until a signal, stop cleanly."""

from __future__ import annotations

import contextlib
import logging
import resource
import signal
import sys
import threading
from pathlib import Path

import grpc

from preprocessing.errors import RankmillError
from serving.server.config_files import parse_model_config_file, prometheus_path
from serving.server.discovery import ModelConfig
from serving.server.flags import Flags, unused_flags
from serving.server.grpc_service import build_grpc_server
from serving.server.handlers import Handlers
from serving.server.load import Loader
from serving.server.metrics import Metrics
from serving.server.model_manager import LoadOptions, ModelManager
from serving.server.reload import ConfigFilePoller
from serving.server.rest_api import RestApi
from serving.server.rest_app import HttpServer, build_app
from serving.server.servable import Servable
from serving.server.status import StatusError

__all__ = ["FAILED", "serve_until_signal"]

_log = logging.getLogger(__name__)
FAILED = 255
_GRACE_S = 5.0


def serve_until_signal(flags: Flags) -> int:
    """Serves until SIGTERM or SIGINT comes; returns the exit code of the process."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    for name in unused_flags(flags):
        _log.warning("--%s has no effect in this server", name)
    _allow_many_connections()
    metrics = Metrics()
    closing = contextlib.ExitStack()
    try:
        loader = Loader(flags, metrics)
        closing.callback(loader.close)
        manager = ModelManager(loader.load, _load_options(flags), stopping=stopping)
        closing.callback(manager.stop)
        manager.start(_first_config(flags))
        _serve(flags, manager, metrics, stopping)
    except (RankmillError, OSError) as error:
        if not stopping.is_set():
            sys.stderr.write(f"Failed to start server. Error: {error}\n")
            return FAILED
    finally:
        stopping.set()
        closing.close()
    return 0


def _allow_many_connections() -> None:
    """Raises the limit of open files to the most that this user may have: idle clients hold one each."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # An endless limit is refused by some systems.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _load_options(flags: Flags) -> LoadOptions:
    return LoadOptions(
        poll_wait_s=flags.file_system_poll_wait_seconds,
        max_num_load_retries=flags.max_num_load_retries,
        load_retry_interval_s=flags.load_retry_interval_micros / 1e6,
        num_load_threads=flags.num_load_threads,
        allow_labels_for_unavailable=flags.allow_version_labels_for_unavailable_models,
    )


def _first_config(flags: Flags) -> list[ModelConfig]:
    if flags.model_config_file:
        return parse_model_config_file(Path(flags.model_config_file))
    return [ModelConfig(flags.model_name, Path(flags.model_base_path))]


def _serve(flags: Flags, manager: ModelManager[Servable], metrics: Metrics, stopping: threading.Event) -> None:
    handlers = Handlers(
        manager,
        metrics,
        as_content=flags.enable_serialization_as_tensor_content,
        check_method_name=flags.enable_signature_method_name_check,
    )
    rpc = build_grpc_server(handlers, flags, metrics)
    rpc.start()
    _log.info("Running gRPC ModelServer at %s:%d", flags.bind_address, flags.port)
    http = _start_http(flags, handlers, metrics)
    poller = _start_config_poller(flags, manager)
    try:
        stopping.wait()
        _log.info("stopping")
    finally:
        if poller is not None:
            poller.stop()
        _stop(rpc, http)


def _start_http(flags: Flags, handlers: Handlers, metrics: Metrics) -> HttpServer | None:
    if not flags.rest_api_port:
        return None
    if flags.rest_api_port == flags.port:
        _log.error("rest_api_port is the same as port: HTTP is not started")
        return None
    page = prometheus_path(Path(flags.monitoring_config_file)) if flags.monitoring_config_file else None
    app = build_app(RestApi(handlers, metrics), flags, metrics_path=page, metrics_text=metrics.prometheus)
    try:
        server = HttpServer(app, host=flags.bind_address, port=flags.rest_api_port, reuse_port=flags.reuse_port)
    except StatusError as error:
        _log.error("Failed to start HTTP Server: %s", error)
        return None
    server.start()
    _log.info("Exporting HTTP/REST API at: %s:%d", flags.bind_address, flags.rest_api_port)
    return server


def _start_config_poller(flags: Flags, manager: ModelManager[Servable]) -> ConfigFilePoller | None:
    if not flags.model_config_file or flags.model_config_file_poll_wait_seconds <= 0:
        return None
    poller = ConfigFilePoller(
        Path(flags.model_config_file), interval_s=flags.model_config_file_poll_wait_seconds, apply=manager.apply
    )
    poller.start()
    return poller


def _stop(rpc: grpc.Server, http: HttpServer | None) -> None:
    finished = rpc.stop(_GRACE_S)
    if http is not None:
        http.stop()
    finished.wait()

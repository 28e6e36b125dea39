"""How a model server runs in production: its flags, its config files, what says that it is ready.

The same for TF Serving's binary, its container and the embedded server.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from google.protobuf import text_format

from serving.config import BatchingSpec
from serving.server import config_protos

__all__ = ["ServerFiles", "batching_text", "monitoring_text", "probe_script", "production_flags"]

METRICS_PATH = "/monitoring/prometheus/metrics"


@dataclasses.dataclass(frozen=True)
class ServerFiles:
    """Where the files of a server are, as the server sees them; `batching` is None for none."""

    models: Path
    monitoring: Path
    batching: Path | None


def batching_text(batching: BatchingSpec) -> str:
    """Returns a BatchingParameters text proto."""
    message = config_protos.BatchingParameters()
    for name, value in batching:
        getattr(message, name).value = value
    return str(text_format.MessageToString(message))


def monitoring_text() -> str:
    """Returns a MonitoringConfig text proto that opens the metrics page."""
    message = config_protos.MonitoringConfig()
    message.prometheus_config.enable = True
    message.prometheus_config.path = METRICS_PATH
    return str(text_format.MessageToString(message))


def production_flags(files: ServerFiles, *, threads: int, poll_s: int) -> dict[str, str | int | bool]:
    """Returns the flags of a server that outlives versions and label moves, by name.

    Args:
        files: its config files.
        threads: of TensorFlow, inside an op and between ops; 0 lets TensorFlow decide.
        poll_s: how often the list of models and labels is read again, in seconds.
    """
    flags: dict[str, str | int | bool] = {
        "model_config_file": str(files.models),
        "model_config_file_poll_wait_seconds": poll_s,
        "allow_version_labels_for_unavailable_models": True,
        "monitoring_config_file": str(files.monitoring),
        "enable_grpc_healthcheck_service": True,
        # Versions load beside the requests, not in the loop that also watches for config files.
        "num_load_threads": 1,
        "num_unload_threads": 1,
    }
    if threads:
        flags |= {"tensorflow_intra_op_parallelism": threads, "tensorflow_inter_op_parallelism": threads}
    if files.batching is not None:
        flags |= {"enable_batching": True, "batching_parameters_file": str(files.batching)}
    return flags


def probe_script(model_name: str, *, rest_port: int) -> str:
    """Returns a bash script that ends with 0 if some version of the model is AVAILABLE.

    TF Serving's image has no HTTP client, and the status page answers 200 also while a model loads or has ended.
    """
    request = f"GET /v1/models/{model_name} HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n"
    return (
        f"exec 3<>/dev/tcp/127.0.0.1/{rest_port} && printf '{request}' >&3 "
        """&& timeout 5 cat <&3 | grep -q '"state": *"AVAILABLE"'"""
    )

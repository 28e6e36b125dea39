"""The config files of TF Serving: text protos to values."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from preprocessing.errors import ConfigError
from serving.server import config_protos
from serving.server.batching_parameters import BatchingParameters
from serving.server.discovery import ModelConfig, Policy
from serving.server.status import Code, StatusError

__all__ = [
    "TlsFiles",
    "batching_parameters",
    "batching_parameters_of",
    "model_configs",
    "parse_model_config_file",
    "parse_text",
    "prometheus_path",
    "tls_files",
]

_DEFAULT_METRICS_PATH = "/monitoring/prometheus/metrics"


def parse_model_config_file(path: Path) -> list[ModelConfig]:
    """Returns the models that a ModelServerConfig file lists.

    Raises:
        ConfigError: if the file cannot be read or parsed.
        StatusError: INVALID_ARGUMENT, if it is not a list of models.
    """
    return model_configs(parse_text(path, model_server_config_pb2.ModelServerConfig(), "ModelServerConfig"))


def model_configs(config: model_server_config_pb2.ModelServerConfig) -> list[ModelConfig]:
    """Returns the models of a ModelServerConfig; INVALID_ARGUMENT if it is not a model_config_list."""
    if config.WhichOneof("config") != "model_config_list":
        raise StatusError(Code.INVALID_ARGUMENT, "the model server config holds no model_config_list")
    return [
        ModelConfig(
            name=model.name,
            base_path=Path(model.base_path),
            platform=_platform(model),
            policy=_policy(model.model_version_policy),
            labels=dict(model.version_labels),
        )
        for model in config.model_config_list.config
    ]


def _platform(model: Any) -> str:
    """Returns the platform of a model; the deprecated `model_type` says it too, but not both may."""
    if not model.model_type:
        return str(model.model_platform)
    if model.model_platform:
        text = f"model {model.name}: give model_platform, or the deprecated model_type, but not both"
        raise StatusError(Code.INVALID_ARGUMENT, text)
    return "tensorflow" if model.model_type == model_server_config_pb2.TENSORFLOW else "other"


def _policy(proto: Any) -> Policy:
    kind = proto.WhichOneof("policy_choice")
    if kind == "all":
        return Policy("all")
    if kind == "specific":
        return Policy("specific", versions=tuple(proto.specific.versions))
    return Policy("latest", num_versions=proto.latest.num_versions or 1)


def prometheus_path(path: Path) -> str | None:
    """Returns the HTTP path of the metrics page that a MonitoringConfig file asks for, or None.

    Raises:
        ConfigError: if the file cannot be read or parsed.
    """
    config = parse_text(path, config_protos.MonitoringConfig(), "MonitoringConfig")
    if not config.prometheus_config.enable:
        return None
    return config.prometheus_config.path or _DEFAULT_METRICS_PATH


def batching_parameters(path: Path) -> BatchingParameters:
    """Returns the parameters of a BatchingParameters file.

    Raises:
        ConfigError: if the file cannot be read or parsed.
        StatusError: INVALID_ARGUMENT, if the parameters contradict each other.
    """
    return batching_parameters_of(parse_text(path, config_protos.BatchingParameters(), "BatchingParameters"))


def batching_parameters_of(config: Any) -> BatchingParameters:
    """Returns the parameters of a BatchingParameters message; INVALID_ARGUMENT if they contradict each other."""
    given: dict[str, Any] = {"pad_variable_length_inputs": config.pad_variable_length_inputs}
    given["allowed_batch_sizes"] = tuple(config.allowed_batch_sizes)
    for field, value in config.ListFields():
        if field.message_type is not None:
            given[field.name] = value.value
    return BatchingParameters(**given)


@dataclasses.dataclass(frozen=True)
class TlsFiles:
    """PEM texts for TLS; clients are asked for a certificate of `custom_ca` if `client_verify` is set."""

    server_key: bytes
    server_cert: bytes
    custom_ca: bytes | None
    client_verify: bool


def tls_files(path: Path) -> TlsFiles:
    """Returns what an SSLConfig file holds.

    Raises:
        ConfigError: if the file cannot be read or parsed, or lacks what it needs.
    """
    config = parse_text(path, config_protos.SSLConfig(), "SSLConfig")
    if not config.server_key or not config.server_cert:
        raise ConfigError(f"{path}: server_key and server_cert must hold the PEM texts of the key and certificate")
    if config.client_verify and not config.custom_ca:
        raise ConfigError(f"{path}: client_verify needs custom_ca, the PEM text of what clients are verified by")
    return TlsFiles(
        server_key=config.server_key.encode(),
        server_cert=config.server_cert.encode(),
        custom_ca=config.custom_ca.encode() or None,
        client_verify=config.client_verify,
    )


def parse_text(path: Path, message: Any, kind: str, *, pool: Any = None) -> Any:
    """Returns `message` filled from a text proto file; an Any in it is of a type in `pool`.

    Raises:
        ConfigError: if the file cannot be read or parsed.
    """
    try:
        return text_format.Parse(path.read_text(encoding="utf-8"), message, descriptor_pool=pool)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    except (UnicodeDecodeError, text_format.ParseError) as error:
        raise ConfigError(f"Error parsing text-format tensorflow.serving.{kind}: {path}:{error}") from error

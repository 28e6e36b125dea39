"""The config files of TF Serving: text protos to values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from preprocessing.errors import ConfigError
from serving.server.config_protos import MonitoringConfig
from serving.server.discovery import ModelConfig, Policy
from serving.server.status import Code, StatusError

__all__ = ["model_configs", "parse_model_config_file", "prometheus_path"]

_DEFAULT_METRICS_PATH = "/monitoring/prometheus/metrics"


def parse_model_config_file(path: Path) -> list[ModelConfig]:
    """Returns the models that a ModelServerConfig file lists.

    Raises:
        ConfigError: if the file cannot be read or parsed.
        StatusError: INVALID_ARGUMENT, if it is not a list of models.
    """
    return model_configs(_parse(path, model_server_config_pb2.ModelServerConfig(), "ModelServerConfig"))


def model_configs(config: model_server_config_pb2.ModelServerConfig) -> list[ModelConfig]:
    """Returns the models of a ModelServerConfig; INVALID_ARGUMENT if it is not a model_config_list."""
    if config.WhichOneof("config") != "model_config_list":
        raise StatusError(Code.INVALID_ARGUMENT, "the model server config holds no model_config_list")
    return [
        ModelConfig(
            name=model.name,
            base_path=Path(model.base_path),
            platform=model.model_platform,
            policy=_policy(model.model_version_policy),
            labels=dict(model.version_labels),
        )
        for model in config.model_config_list.config
    ]


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
    config = _parse(path, MonitoringConfig(), "MonitoringConfig")
    if not config.prometheus_config.enable:
        return None
    return config.prometheus_config.path or _DEFAULT_METRICS_PATH


def _parse(path: Path, message: Any, kind: str) -> Any:
    try:
        return text_format.Parse(path.read_text(encoding="utf-8"), message)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    except (UnicodeDecodeError, text_format.ParseError) as error:
        raise ConfigError(f"Error parsing text-format tensorflow.serving.{kind}: {path}:{error}") from error

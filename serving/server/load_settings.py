"""How versions are loaded: from the flags, or from a platform file that replaces them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from tensorflow.core.protobuf import config_pb2

from preprocessing.errors import ConfigError
from serving.server import config_protos
from serving.server.batching_parameters import BatchingParameters
from serving.server.config_files import batching_parameters, batching_parameters_of, parse_text
from serving.server.flags import Flags
from serving.server.session_options import session_config

__all__ = ["LoadSettings", "load_settings"]


@dataclasses.dataclass(frozen=True)
class LoadSettings:
    """What the sessions, the batches and the warm-up of all versions are made by; no `batching`: no batches."""

    session_config: Any
    batching: BatchingParameters | None
    tags: tuple[str, ...]
    warm_up: bool
    num_warmup_iterations: int


def load_settings(flags: Flags) -> LoadSettings:
    """Returns the settings that the command line asks for.

    Raises:
        RankmillError: if flags contradict each other or a file that they name is wrong.
    """
    if flags.platform_config_file:
        return _from_platform(Path(flags.platform_config_file))
    batching = None
    if flags.enable_batching:
        path = flags.batching_parameters_file
        batching = batching_parameters(Path(path)) if path else BatchingParameters()
    return LoadSettings(
        session_config=session_config(flags),
        batching=batching,
        tags=tuple(flags.saved_model_tags.split(",")),
        warm_up=flags.enable_model_warmup,
        num_warmup_iterations=max(1, flags.num_request_iterations_for_warmup),
    )


def _from_platform(path: Path) -> LoadSettings:
    adapter = config_protos.SavedModelBundleSourceAdapterConfig()
    pool = adapter.DESCRIPTOR.file.pool
    platforms = parse_text(path, config_protos.PlatformConfigMap(), "PlatformConfigMap", pool=pool).platform_configs
    if "tensorflow" not in platforms or not platforms["tensorflow"].source_adapter_config.Unpack(adapter):
        raise ConfigError(f"{path}: key 'tensorflow' must hold a SavedModelBundleSourceAdapterConfig")
    found = adapter.legacy_config
    return LoadSettings(
        session_config=config_pb2.ConfigProto.FromString(found.session_config.SerializeToString()),
        batching=batching_parameters_of(found.batching_parameters) if found.HasField("batching_parameters") else None,
        tags=tuple(found.saved_model_tags) or ("serve",),
        warm_up=found.enable_model_warmup,
        num_warmup_iterations=max(1, found.model_warmup_options.num_request_iterations.value),
    )

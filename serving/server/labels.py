"""When a config of models is refused: names, paths, platforms, and labels on versions that are not there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from serving.server.discovery import ModelConfig
from serving.server.status import Code, StatusError

__all__ = ["check_configs", "check_labels"]


def check_configs(configs: Sequence[ModelConfig], current: Mapping[str, ModelConfig]) -> None:
    """Raises INVALID_ARGUMENT if a config cannot be served beside itself or after the `current` one."""
    seen: set[str] = set()
    for config in configs:
        if config.name in seen:
            raise StatusError(
                Code.INVALID_ARGUMENT, f"Illegal to list model {config.name} multiple times in config list"
            )
        seen.add(config.name)
        if not config.base_path.is_absolute():
            text = f"Expected model {config.name} to have an absolute path; got base_path()={config.base_path}"
            raise StatusError(Code.INVALID_ARGUMENT, text)
        if config.platform != "tensorflow":
            text = f'model {config.name}: unknown model_platform {config.platform!r}; use "tensorflow"'
            raise StatusError(Code.INVALID_ARGUMENT, text)
        known = current.get(config.name)
        if known is not None and known.platform != config.platform:
            raise StatusError(Code.INVALID_ARGUMENT, f"Illegal to change the model platform of {config.name}")


def check_labels(
    configs: Sequence[ModelConfig],
    current: Mapping[str, Mapping[str, int]],
    available: Mapping[str, Collection[int]],
    *,
    allow_unavailable: bool,
) -> None:
    """Raises FAILED_PRECONDITION if a label is put on a version that is not available.

    Args:
        configs: the new config.
        current: label maps by model of the config in force.
        available: available versions by model.
        allow_unavailable: whether a label that does not move may name such a version.
    """
    for config in configs:
        for label, version in config.labels.items():
            in_use = current.get(config.name, {}).get(label)
            if version in available.get(config.name, ()):
                continue
            if allow_unavailable and in_use in {None, version}:
                continue
            raise StatusError(
                Code.FAILED_PRECONDITION,
                f"Request to assign label {label} to version {version} of model {config.name},"
                " which is not currently available for inference",
            )

"""The command line of `tensorflow_model_server`: all its flags, by the rules of TensorFlow's own parser.

`--name=value` only; a boolean is `--name`, `--name=true` or `--name=false`. What is not understood is left over
and does not stop the server. Flags without effect here are accepted, so that one command line serves both.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from typing import Any

from preprocessing.errors import ConfigError

__all__ = ["FlagError", "Flags", "parse", "unused_flags", "usage"]

_INTEGER = re.compile(r"[+-]?[0-9]+")
_INT_RANGES = {"int": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


class FlagError(ConfigError):
    """Raised when the value of a flag does not parse or flags contradict each other."""


def _flag(default: Any, help_text: str, *, used: bool = True, wide: bool = False) -> Any:
    return dataclasses.field(default=default, metadata={"help": help_text, "used": used, "wide": wide})


def _threads() -> int:
    return 4 * (os.cpu_count() or 1)


@dataclasses.dataclass(frozen=True)
class Flags:
    """The flags of the model server, named and defaulted as TF Serving's; the last group is ours."""

    port: int = _flag(8500, "TCP port of gRPC; 0 = none.")
    grpc_socket_path: str = _flag("", "Also listen for gRPC on this unix socket.")
    rest_api_port: int = _flag(0, "TCP port of HTTP; 0 = none. Must differ from port.")
    rest_api_num_threads: int = _flag(_threads(), "HTTP worker threads.")
    rest_api_timeout_in_ms: int = _flag(30000, "Limit of one HTTP call.")
    rest_api_enable_cors_support: bool = _flag(False, "CORS headers in HTTP answers.")
    grpc_max_threads: int = _flag(_threads(), "gRPC worker threads.")
    grpc_channel_arguments: str = _flag("", "Comma list key=value of gRPC channel arguments.")
    enable_grpc_healthcheck_service: bool = _flag(False, "Standard gRPC health service.")
    model_name: str = _flag("default", "Model name; ignored with model_config_file.")
    model_base_path: str = _flag("", "Folder of version folders; ignored with model_config_file.")
    model_config_file: str = _flag("", "ModelServerConfig as text proto.")
    model_config_file_poll_wait_seconds: int = _flag(0, "Reread the config file this often; 0 = once.")
    file_system_poll_wait_seconds: int = _flag(1, "Look for versions this often; 0 = once, negative = never.")
    allow_version_labels_for_unavailable_models: bool = _flag(False, "New labels may name versions not yet loaded.")
    num_load_threads: int = _flag(0, "Threads that load versions; 0 = one at a time.")
    num_unload_threads: int = _flag(0, "Threads that unload versions; 0 = one at a time.", used=False)
    max_num_load_retries: int = _flag(5, "Retries after the first failed load.")
    load_retry_interval_micros: int = _flag(60_000_000, "Wait between load attempts; negative = none.", wide=True)
    flush_filesystem_caches: bool = _flag(True, "Drop the page cache after loads.", used=False)
    enable_batching: bool = _flag(False, "Batch requests together.")
    batching_parameters_file: str = _flag("", "BatchingParameters as text proto; needs enable_batching.")
    enable_per_model_batching_parameters: bool = _flag(False, "batching_params.pbtxt per version.")
    enable_model_warmup: bool = _flag(True, "Run the warm-up records of a version before it is available.")
    num_request_iterations_for_warmup: int = _flag(0, "Runs of each warm-up record, when above 0.")
    monitoring_config_file: str = _flag("", "MonitoringConfig as text proto.")
    ssl_config_file: str = _flag("", "SSLConfig as text proto: TLS for gRPC.")
    use_alts_credentials: bool = _flag(False, "Google ALTS.", used=False)
    tensorflow_session_parallelism: int = _flag(0, "Threads inside and between ops; 0 = auto.", wide=True)
    tensorflow_intra_op_parallelism: int = _flag(0, "Threads inside an op; 0 = auto.", wide=True)
    tensorflow_inter_op_parallelism: int = _flag(0, "Ops run in parallel; 0 = auto.", wide=True)
    tensorflow_session_config_file: str = _flag("", "ConfigProto as text proto.")
    platform_config_file: str = _flag("", "PlatformConfigMap as text proto; replaces session and batching flags.")
    thread_pool_factory_config_file: str = _flag("", "Custom thread pools.", used=False)
    saved_model_tags: str = _flag("serve", "Tags of the MetaGraph, comma list.")
    enable_signature_method_name_check: bool = _flag(False, "Refuse signatures of another method name.")
    enable_serialization_as_tensor_content: bool = _flag(False, "Predict answers in tensor_content.")
    enable_profiler: bool = _flag(True, "ProfilerService.")
    remove_unused_fields_from_bundle_metagraph: bool = _flag(True, "Keep only signatures in memory.", used=False)
    per_process_gpu_memory_fraction: float = _flag(0.0, "Share of GPU memory; 0 = TensorFlow decides.")
    mixed_precision: str = _flag("", "bfloat16 is the only value.", used=False)
    prefer_tflite_model: bool = _flag(False, "Serve model.tflite if there.")
    num_tflite_pools: int = _flag(os.cpu_count() or 1, "TFLite pools.")
    num_tflite_interpreters_per_pool: int = _flag(1, "TFLite interpreters a pool.")
    xla_cpu_compilation_enabled: bool = _flag(False, "XLA on CPU.", used=False)
    xla_gpu_compilation_enabled: bool = _flag(False, "XLA on GPU.", used=False)
    skip_initialize_tpu: bool = _flag(False, "Do not initialise TPUs.", used=False)
    version: bool = _flag(False, "Print versions and exit.")
    bind_address: str = _flag("127.0.0.1", "Address that both ports listen on. Only of this server.")
    reuse_port: bool = _flag(False, "Several servers may listen on the same ports. Only of this server.")


_FIELDS = {field.name: field for field in dataclasses.fields(Flags)}


def parse(arguments: Sequence[str]) -> tuple[Flags, tuple[str, ...]]:
    """Returns the flags of a command line and the arguments that were not understood.

    Raises:
        FlagError: if the value of a known flag does not parse.
    """
    values: dict[str, Any] = {}
    unknown: list[str] = []
    for argument in arguments:
        name, equals, text = argument.removeprefix("--").partition("=")
        field = _FIELDS.get(name) if argument.startswith("--") else None
        if field is None or (not equals and field.type != "bool"):
            unknown.append(argument)
        else:
            values[name] = _convert(field, text if equals else "true")
    return Flags(**values), tuple(unknown)


def _convert(field: dataclasses.Field[Any], text: str) -> bool | int | float | str:
    if field.type == "bool":
        if text in {"true", "false"}:
            return text == "true"
        raise FlagError(f"--{field.name}={text}: a boolean flag takes true or false")
    if field.type == "int":
        return _to_integer(field, text)
    if field.type == "float":
        try:
            return float(text)
        except ValueError as error:
            raise FlagError(f"--{field.name}={text}: not a number") from error
    return text


def _to_integer(field: dataclasses.Field[Any], text: str) -> int:
    lowest, highest = _INT_RANGES["int64" if field.metadata["wide"] else "int"]
    if not _INTEGER.fullmatch(text) or not lowest <= int(text) <= highest:
        raise FlagError(f"--{field.name}={text}: not an integer between {lowest} and {highest}")
    return int(text)


def unused_flags(flags: Flags) -> tuple[str, ...]:
    """Returns the names of flags that were set away from their default and have no effect in this server."""
    return tuple(
        name for name, field in _FIELDS.items() if not field.metadata["used"] and getattr(flags, name) != field.default
    )


def usage() -> str:
    """Returns the text that names every flag with its default."""
    lines = ["usage: model_server --name=value ...", "Flags:"]
    for name, field in _FIELDS.items():
        default = str(field.default).lower() if field.type == "bool" else repr(field.default)
        lines.append(f"\t--{name}={default}\t{field.type}\t{field.metadata['help']}")
    return "\n".join(lines) + "\n"

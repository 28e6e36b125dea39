"""The TensorFlow session settings that the flags ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tensorflow.core.protobuf import config_pb2

from serving.server.flags import FlagError, Flags

__all__ = ["session_config"]


def session_config(flags: Flags) -> Any:
    """Returns the ConfigProto for all sessions of the server.

    "Auto" is one thread inside and between ops: requests run in parallel, and small models were fastest so.

    Raises:
        FlagError: if the thread flags contradict each other or the config file does not parse.
    """
    both, intra, inter = (
        flags.tensorflow_session_parallelism,
        flags.tensorflow_intra_op_parallelism,
        flags.tensorflow_inter_op_parallelism,
    )
    if both and intra and inter:
        raise FlagError("give tensorflow_session_parallelism or the intra and inter op flags, not all three")
    config = config_pb2.ConfigProto()
    if flags.tensorflow_session_config_file:
        _merge_file(config, Path(flags.tensorflow_session_config_file))
    if not intra and not inter:
        intra = inter = both
    config.intra_op_parallelism_threads = intra or 1
    config.inter_op_parallelism_threads = inter or 1
    config.allow_soft_placement = True
    if flags.per_process_gpu_memory_fraction > 0:
        config.gpu_options.per_process_gpu_memory_fraction = flags.per_process_gpu_memory_fraction
    return config


def _merge_file(config: Any, path: Path) -> None:
    try:
        text_format.Parse(path.read_text(encoding="utf-8"), config)
    except (OSError, text_format.ParseError) as error:
        raise FlagError(f"--tensorflow_session_config_file={path}: {error}") from error

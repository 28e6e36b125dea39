"""The command line of the embedded server."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from importlib import metadata

from serving.server.flags import FlagError, Flags, parse, usage

__all__ = ["main"]

_FAILED = 255


def main(arguments: Sequence[str]) -> int:
    """Serves until a signal comes; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    if list(arguments[:1]) == ["--help"]:
        sys.stdout.write(usage())
        return _FAILED
    try:
        flags, unknown = parse(arguments)
        if unknown:
            sys.stdout.write(f"unknown argument: {unknown[0]}\n{usage()}")
        if flags.version:
            sys.stdout.write(f"TensorFlow ModelServer: rankmill {_version('rankmill')}\n")
            sys.stdout.write(f"TensorFlow Library: {_version('tensorflow')}\n")
            return 0
        _check(flags)
    except FlagError as error:
        sys.stdout.write(f"{error}\n{usage()}")
        return _FAILED
    # Imported here: TensorFlow takes seconds, a wrong flag should not.
    from serving.server.run import serve_until_signal

    return serve_until_signal(flags)


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _check(flags: Flags) -> None:
    if not flags.model_base_path and not flags.model_config_file:
        raise FlagError("Both server_options.model_base_path and server_options.model_config_file are empty!")
    if not flags.port and not flags.grpc_socket_path:
        raise FlagError("server_options.port or server_options.grpc_socket_path must be set")
    if flags.batching_parameters_file and not flags.enable_batching:
        raise FlagError("server_options.batching_parameters_file is set without enabling batching")
    if flags.use_alts_credentials:
        # To go on without would be to go on in the clear.
        raise FlagError("--use_alts_credentials is not available in this server; use --ssl_config_file")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

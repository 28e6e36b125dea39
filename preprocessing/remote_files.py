"""Files of the file systems that Beam knows (s3://, gs://, hdfs://, ...): found, opened, told apart.

Where a store needs credentials or an endpoint of its own, its usual environment counts (AWS_ENDPOINT_URL,
AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, ...) until a Beam pipeline brings options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any, cast

from preprocessing.errors import SourceError

__all__ = [
    "create_remote",
    "delete_remote",
    "is_remote",
    "match_remote",
    "open_remote",
    "remote_checksum",
    "remote_size",
]

# Stores whose checksum follows from the content or changes with it; that of others may be no more than the size.
_WITH_CHECKSUM = ("s3://", "gs://", "hdfs://", "azfs://")


def is_remote(path: str) -> bool:
    """Returns whether a path names a file system of its own."""
    return "://" in path


def match_remote(patterns: Sequence[str]) -> list[str]:
    """Returns the files that the patterns name.

    Raises:
        SourceError: if the store cannot be listed.
    """
    try:
        return [file.path for result in _systems().match(list(patterns)) for file in result.metadata_list]
    except Exception as error:  # stores raise errors of many kinds, client libraries of their own among them
        raise _unreachable(patterns[0], "listed", error) from error


def open_remote(path: str) -> IO[bytes]:
    """Returns a remote file opened for reading, its stored bytes as they are.

    Raises:
        SourceError: if it cannot be opened.
    """
    from apache_beam.io.filesystem import CompressionTypes

    try:
        return cast(IO[bytes], _systems().open(path, compression_type=CompressionTypes.UNCOMPRESSED))
    except Exception as error:
        raise _unreachable(path, "opened", error) from error


def create_remote(path: str) -> IO[bytes]:
    """Returns a remote file opened for writing; on an object store it is there, whole, when it is closed.

    Raises:
        SourceError: if it cannot be written.
    """
    from apache_beam.io.filesystem import CompressionTypes

    try:
        return cast(IO[bytes], _systems().create(path, compression_type=CompressionTypes.UNCOMPRESSED))
    except Exception as error:
        raise _unreachable(path, "written", error) from error


def delete_remote(paths: Sequence[str]) -> None:
    """Deletes remote files.

    Raises:
        SourceError: if one of them cannot be deleted.
    """
    try:
        _systems().delete(list(paths))
    except Exception as error:
        raise _unreachable(paths[0], "deleted", error) from error


def remote_size(path: str) -> int:
    """Returns the size in bytes.

    Raises:
        SourceError: if the store does not tell.
    """
    try:
        return int(_systems().get_filesystem(path).size(path))
    except Exception as error:
        raise _unreachable(path, "measured", error) from error


def remote_checksum(path: str) -> str | None:
    """Returns what the store tells the content by (an ETag, a CRC), or None where it tells nothing."""
    if not path.startswith(_WITH_CHECKSUM):
        return None
    try:
        return str(_systems().checksum(path)).strip('"')
    except Exception as error:
        raise _unreachable(path, "measured", error) from error


def _systems() -> Any:
    """Returns Beam's file systems; outside a pipeline they have no options, which some of them cannot bear."""
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.options.value_provider import RuntimeValueProvider

    if FileSystems._pipeline_options is None and RuntimeValueProvider.runtime_options is None:
        FileSystems.set_options(PipelineOptions([]))
    return FileSystems


def _unreachable(path: str, done: str, error: Exception) -> SourceError:
    hint = "; s3:// needs boto3: pip install 'rankmill[s3]'" if "requirement" in str(error) else ""
    reason = str(error) or type(error).__name__
    return SourceError(f"{path} cannot be {done}: {reason}{hint}; correct the path, or the access to its store")

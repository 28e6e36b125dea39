"""Faults of the file system, whichever library reports them, as one error that says what to do."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from preprocessing.errors import ArtefactError

__all__ = ["plain_faults"]


@contextlib.contextmanager
def plain_faults(what: str) -> Iterator[None]:
    """Turns a fault of the file system in the block into an error.

    Args:
        what: begins the text of the error, such as "stage 'train' could not write to work".

    Raises:
        ArtefactError: in the place of an OSError, or of what TensorFlow's native code makes of one.
    """
    try:
        yield
    except Exception as error:
        text = _text(error)
        if text is None:
            raise
        raise ArtefactError(
            f"{what}: {text}; free some space or allow writing, then run the same command again"
        ) from error


def _text(error: Exception) -> str | None:
    """Returns what a fault of the file system says; None for any other error."""
    if isinstance(error, OSError):
        return str(error)
    tensorflow = sys.modules.get("tensorflow")  # whose errors cannot be raised before it is imported
    if tensorflow is None:
        return None
    faults = tensorflow.errors
    kinds = (faults.ResourceExhaustedError, faults.PermissionDeniedError, faults.UnknownError)
    return str(error.message).split("\n", 1)[0] if isinstance(error, kinds) else None

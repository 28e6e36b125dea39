"""Faults of the file system, whichever library reports them, as one error that says what to do."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator

from preprocessing.errors import ArtefactError

__all__ = ["plain_faults"]

# TensorFlow has no class of errors for these, but the system's words are in their texts.
_CODES = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
_REASONS = tuple(os.strerror(code) for code in _CODES)


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
    if not isinstance(error, tensorflow.errors.OpError):
        return None
    text = str(error.message).split("\n", 1)[0]
    return text if any(reason in text for reason in _REASONS) else None

"""What is wrong with record files, in our words instead of TensorFlow's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from preprocessing.dataset import Dataset
from preprocessing.errors import CorruptError

__all__ = ["SHORT_SHARD", "reading"]

SHORT_SHARD = "a shard holds fewer records than its manifest says"

# What TensorFlow's messages say, and what it means.
_DAMAGE = {
    SHORT_SHARD: SHORT_SHARD,
    "No such file": "a file is missing",
    "Could not parse example": "a record is not a tf.Example",
    "Key: ": "a record does not fit the schema",
    "corrupted record": "a record is damaged",
}


@contextlib.contextmanager
def reading(dataset: Dataset, split: str) -> Iterator[None]:
    """Turns TensorFlow's errors about record files into ours; errors of other origin pass.

    Raises:
        CorruptError: if a file is missing, damaged, or holds something else than the manifest and schema say.
    """
    try:
        yield
    except UnicodeDecodeError as error:
        # TensorFlow quotes a record that it cannot parse in its message, and Python cannot decode that.
        raise _corrupt(dataset, split, "a record is not a tf.Example") from error
    except (tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as error:
        reason = next((reason for mark, reason in _DAMAGE.items() if mark in error.message), None)
        if reason is None and not isinstance(error, tf.errors.DataLossError):
            raise
        raise _corrupt(dataset, split, f"{reason or 'a record is damaged'} ({_first_line(error)})") from error


def _corrupt(dataset: Dataset, split: str, reason: str) -> CorruptError:
    return CorruptError(f"{dataset.folder}: records of split {split!r}: {reason}; run preprocess again")


def _first_line(error: tf.errors.OpError) -> str:
    """Returns what TensorFlow says, without the names of its nodes."""
    return str(error.message).splitlines()[0].rpartition("}} ")[2][:300]

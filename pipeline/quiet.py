"""Keeping the libraries' chatter away from what the user asked for."""

from __future__ import annotations

import logging
import os
import sys
import tempfile

__all__ = ["import_tensorflow", "quiet_libraries"]

VERBOSE = "RANKMILL_VERBOSE"


def quiet_libraries() -> None:
    """Raises the log levels of TensorFlow and Beam; RANKMILL_VERBOSE=1 leaves them as they are."""
    if os.environ.get(VERBOSE) == "1":
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in ("tensorflow", "absl", "apache_beam", "root"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    for name in ("preprocessing", "models", "serving", "pipeline"):  # what we say ourselves is heard all the same
        logging.getLogger(name).setLevel(logging.WARNING)


def import_tensorflow() -> None:
    """Imports TensorFlow, without what its native code says about absent GPUs whatever the log level.

    That text goes straight to file descriptor 2, when the library loads and when devices are first listed; it is
    shown after all if either fails.
    """
    if os.environ.get(VERBOSE) == "1" or "tensorflow" in sys.modules:
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            import tensorflow as tf

            tf.config.list_physical_devices()
        except BaseException:
            said.seek(0)
            os.write(kept, said.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)

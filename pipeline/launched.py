"""The command line in a process that `rankmill launch` started: it ends with its launcher, however that goes."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from pipeline.progress_lines import LAUNCHER
from preprocessing.errors import TrainingError

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1  # of Linux: the signal that a process gets when its parent is gone


def main() -> None:
    """Runs the command line.

    Raises:
        TrainingError: if the launcher is gone already.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(os.environ[LAUNCHER]):
        raise TrainingError("the launcher of this process has ended")
    from pipeline.__main__ import main as run

    run()


if __name__ == "__main__":
    main()

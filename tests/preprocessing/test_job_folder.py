"""Folders of jobs that end, fail, live and were killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from preprocessing.job_folder import job_folder

KILLED = """
import os, signal, sys
from pathlib import Path
from preprocessing.job_folder import job_folder
with job_folder(Path(sys.argv[1])) as folder:
    (folder / "spilled").write_text("much")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_folder_goes_with_its_job(tmp_path: Path) -> None:
    with job_folder(tmp_path / "days") as folder:
        (folder / "spilled").write_text("much")
    assert list((tmp_path / "days").iterdir()) == []


def test_a_folder_goes_with_a_job_that_fails(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"), job_folder(tmp_path):
        raise OSError("full")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_job_left_goes_with_the_next_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=60, check=False)
    (left,) = tmp_path.glob(".job-*.partial")
    with job_folder(tmp_path) as living:
        assert not left.exists()
        with job_folder(tmp_path):
            assert living.exists()
    assert list(tmp_path.iterdir()) == []

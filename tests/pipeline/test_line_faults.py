"""A line that is killed, interrupted, run twice at once or out of disk: it completes later, and nobody reads a half."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preprocessing.manifest import MANIFEST
from serving.version_store import METADATA, versions
from tests.pipeline.tiny_line import rankmill, tiny_line

pytestmark = pytest.mark.slow
STAGES = ("examples", "dataset", "train", "export", "evaluate")
TIMEOUT_S = 240.0
# A process started in the background of a shell ignores interrupts; a user's does not.
_MAIN = "import signal, pipeline.__main__ as p; signal.signal(signal.SIGINT, signal.default_int_handler); p.main()"


def start(config: Path, *, file_limit_kib: int | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _MAIN, "run", str(config)]
    if file_limit_kib is not None:
        command = ["bash", "-c", f'ulimit -f {file_limit_kib}; exec "$@"', "bash", *command]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check_readable(work: Path) -> None:
    """A folder that has its final name is complete, at any time."""
    for stage in STAGES:
        for folder in (work / stage).glob("[!.]*"):
            assert (folder / MANIFEST).is_file(), folder
    for version in (work / "store" / "ranker").glob("[0-9]*"):
        assert (version / METADATA).is_file()
        assert (version / "saved_model.pb").is_file()


def has_begun(work: Path, stage: str) -> bool:
    if stage == "examples":  # its rows are artefacts of their own
        return any(path.is_file() for name in ("ingest", "days") for path in (work / name).rglob("*.arrow"))
    partials = list((work / stage).glob(".*.partial"))
    if stage == "evaluate":  # it writes at its end only
        return bool(partials)
    return any(path.is_file() for partial in partials for path in partial.rglob("*"))


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], work: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        check_readable(work)
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def metrics_of(work: Path) -> dict[str, Any]:
    (path,) = (work / "runs").glob("*/metrics.json")
    metrics: dict[str, Any] = json.loads(path.read_text())
    return metrics


def line_of_three_epochs(root: Path) -> Path:
    return tiny_line(root, train={"batch_size": 64, "epochs": 3, "early_stopping": {"metric": "auc", "patience": 5}})


def test_killed_in_every_stage_it_ends_with_the_figures_of_an_uninterrupted_run(tmp_path: Path) -> None:
    config, work = line_of_three_epochs(tmp_path / "killed"), tmp_path / "killed" / "work"
    for stage in STAGES:
        process = start(config)
        wait_for(lambda: has_begun(work, stage), process, work)  # noqa: B023
        process.kill()
        assert process.wait(30) == -signal.SIGKILL
        process.communicate()
        check_readable(work)
        assert not list((work / stage).glob("[!.]*")), "killed too late"
    done = rankmill("run", config)
    assert (done.code, done.err) == (0, "")
    assert done.out.count("done before") == len(STAGES) - 1
    check_readable(work)
    assert versions(work / "store" / "ranker") == [1]
    whole = rankmill("run", line_of_three_epochs(tmp_path / "whole"))
    assert whole.code == 0
    assert metrics_of(work) == metrics_of(tmp_path / "whole" / "work")
    names = [path.name for path in work.rglob("*")]
    assert not [name for name in names if name.endswith((".partial", ".tmp")) or name == "scratch"]


def test_an_interruption_is_one_line_and_the_same_command_goes_on(tmp_path: Path) -> None:
    config, work = tiny_line(tmp_path), tmp_path / "work"
    process = start(config)
    wait_for(lambda: has_begun(work, "dataset"), process, work)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "interrupted; the same command goes on from here\n")
    check_readable(work)
    again = rankmill("run", config)
    assert (again.code, again.out.count("done before")) == (0, 1)


def test_two_at_once_do_not_write_one_artefact_together(tmp_path: Path) -> None:
    config, work = tiny_line(tmp_path), tmp_path / "work"
    both = [start(config), start(config)]
    ends = [process.communicate(timeout=TIMEOUT_S) for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes in ([0, 0], [0, 1])
    for process, (_, err) in zip(both, ends, strict=True):
        if process.returncode:
            (line,) = err.splitlines()
            assert line.startswith("error: another process is writing")
    check_readable(work)
    assert versions(work / "store" / "ranker") == [1]


@pytest.mark.parametrize("file_limit_kib", [2, 8, 25, 60])
def test_files_that_cannot_grow_are_one_clear_line(tmp_path: Path, file_limit_kib: int) -> None:
    config, work = tiny_line(tmp_path), tmp_path / "work"
    process = start(config, file_limit_kib=file_limit_kib)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1, err
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert "File too large" in line
    assert "space" in line
    check_readable(work)
    assert not (work / "store").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of its own, as small as the test says."""
    mounted: list[Path] = []

    def mount(size_kib: int) -> Path:
        folder = tmp_path / f"disk{size_kib}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", str(folder)]
        if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip("mounting a small file system needs root")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("size_kib", [64, 200, 420, 560, 640])
def test_a_full_disk_is_one_clear_line_and_more_space_completes(
    tmp_path: Path, small_disk: Callable[[int], Path], size_kib: int
) -> None:
    config, disk = tiny_line(tmp_path), small_disk(size_kib)
    full = rankmill("run", config, "--set", f"work_dir={disk}")
    assert full.code == 1
    (line,) = full.err.splitlines()
    assert "No space left on device" in line
    check_readable(disk)
    subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
    done = rankmill("run", config, "--set", f"work_dir={disk}")
    assert (done.code, done.err) == (0, "")
    assert versions(disk / "store" / "ranker") == [1]

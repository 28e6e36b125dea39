"""The launcher, with small processes in the place of training ones."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from pipeline.launch import LocalCluster, launch, local_cluster
from preprocessing.errors import TrainingError

_PRELUDE = """
import json, os, signal, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
me = f"{task['type']}-{task['index']}"
print("started", os.getpid(), flush=True)
"""


def run(cluster: LocalCluster, script: str) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    launch(
        cluster,
        [sys.executable, "-c", _PRELUDE + textwrap.dedent(script)],
        say=lambda name, line: lines.append((name, line)),
    )
    return lines


def pids(lines: list[tuple[str, str]]) -> list[int]:
    return [int(line.split()[1]) for _, line in lines if line.startswith("started")]


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_every_process_knows_who_it_is_and_its_lines_carry_its_name() -> None:
    lines = run(local_cluster(workers=2, servers=0), "print('I am', me); print('and', 1, file=sys.stderr)")
    for name in ("worker-0", "worker-1"):
        assert [line for who, line in lines if who == name and not line.startswith("started")] == [
            f"I am {name}",
            "and 1",
        ]
    assert not any(is_there(pid) for pid in pids(lines))


def test_when_one_is_killed_all_end_and_the_error_names_it_with_its_last_lines() -> None:
    lines: list[tuple[str, str]] = []
    script = """
    if me == "worker-1":
        print("about to go", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as one that hangs in native code
    time.sleep(600)
    """
    started = time.monotonic()
    with pytest.raises(TrainingError) as caught:
        launch(
            local_cluster(workers=3, servers=0),
            [sys.executable, "-c", _PRELUDE + textwrap.dedent(script)],
            say=lambda name, line: lines.append((name, line)),
        )
    assert time.monotonic() - started < 30
    assert "worker-1 (process" in str(caught.value)
    assert "ended by SIGKILL" in str(caught.value)
    assert "[worker-1] about to go" in str(caught.value)
    assert not any(is_there(pid) for pid in pids(lines))


def test_a_worker_of_parameter_servers_is_started_again(tmp_path: Path) -> None:
    mark = tmp_path / "died"
    script = f"""
    import pathlib
    mark = pathlib.Path({str(mark)!r})
    if me == "worker-0" and not mark.exists():
        mark.touch()
        os._exit(3)
    deadline = time.monotonic() + 60
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.5)
    """
    lines = run(local_cluster(workers=1, servers=1), script)
    assert ("worker-0", "died (with code 3); started again, the others went on") in lines
    assert len([who for who, line in lines if line.startswith("started") and who == "worker-0"]) == 2


def test_a_worker_that_keeps_dying_ends_the_run() -> None:
    script = """
    if me == "worker-0":
        sys.exit("no such data")
    time.sleep(600)
    """
    with pytest.raises(TrainingError, match=r"worker-0 .* ended with code 1(.|\n)*no such data"):
        run(local_cluster(workers=1, servers=1), script)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_the_launcher_ends_all(tmp_path: Path, number: signal.Signals) -> None:
    child = textwrap.dedent(
        f"""
        import ctypes, os, pathlib, signal, time
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # as pipeline.launched does
        pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch()
        time.sleep(600)
        """
    )
    script = (
        "import signal, sys; from pipeline.launch import launch, local_cluster\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background\n"
        f"launch(local_cluster(workers=2, servers=0), [sys.executable, '-c', {child!r}], say=lambda n, t: None)"
    )
    launcher = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.iterdir())) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        launcher.send_signal(number)
        assert launcher.wait(timeout=30) != 0
        children = [int(path.name) for path in tmp_path.iterdir()]
        while any(is_there(pid) for pid in children):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        if launcher.poll() is None:
            launcher.kill()
            launcher.wait()

"""A training process that is killed, really, and started again."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.train_events import Stepped, TrainEvent
from pipeline.train_spec import StrategySpec
from pipeline.trainer import train
from tests.pipeline.planted_dataset import planted_dataset
from tests.pipeline.test_trainer import MODEL, SPEC, weights

_TIMEOUT_S = 300


def main(data: Path, run: Path, kill_at: int) -> None:
    """Trains, and kills its own process once `kill_at` steps are done."""

    def observe(event: TrainEvent) -> None:
        if isinstance(event, Stepped) and event.step >= kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    dataset = planted_dataset(data, rows={"train": [700, 500], "valid": [100]})
    train(dataset, model=MODEL, train=SPEC, strategy=StrategySpec(), seed=1, folder=run, observe=observe)


def start(data: Path, run: Path, *, kill_at: int) -> int:
    command = [sys.executable, "-m", "tests.pipeline.test_trainer_killed", str(data), str(run), str(kill_at)]
    return subprocess.run(command, check=False, capture_output=True, timeout=_TIMEOUT_S).returncode


@pytest.mark.slow
def test_a_killed_process_ends_with_the_weights_of_an_uninterrupted_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert start(data, tmp_path / "whole", kill_at=10**9) == 0
    assert start(data, tmp_path / "killed", kill_at=10) == -signal.SIGKILL
    assert start(data, tmp_path / "killed", kill_at=30) == -signal.SIGKILL
    assert start(data, tmp_path / "killed", kill_at=10**9) == 0
    assert weights(tmp_path / "killed" / "resume" / "38") == weights(tmp_path / "whole" / "resume" / "38")
    for name in ("scores-valid.npy", "history.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not list((tmp_path / "killed").rglob("*.tmp"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))

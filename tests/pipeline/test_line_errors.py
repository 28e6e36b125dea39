"""What is wrong with the input, told in one line and with an exit code, and nothing half-written left behind."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from preprocessing.manifest import MANIFEST
from tests.pipeline.tiny_line import Outcome, rankmill, tiny_line

Spoil = Callable[[Path], list[str]]


def fails(root: Path, *overrides: str) -> Outcome:
    """Preprocesses, which must fail as promised."""
    arguments = [part for override in overrides for part in ("--set", override)]
    outcome = rankmill("preprocess", root / "config.yaml", *arguments)
    assert outcome.code == 1
    assert len(outcome.err.splitlines()) == 1, outcome.err
    assert outcome.err.startswith("error: ")
    assert not [path for stage in ("examples", "dataset") for path in (root / "work" / stage).rglob(MANIFEST)]
    return outcome


def rewrite(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text()))


def missing_file(logs: Path) -> list[str]:
    (logs / "items.csv").unlink()
    return []


def empty_file(logs: Path) -> list[str]:
    (logs / "log.csv").write_bytes(b"")
    return []


def header_only(logs: Path) -> list[str]:
    rewrite(logs / "log.csv", lambda text: text.splitlines()[0] + "\n")
    return []


def all_rejected(logs: Path) -> list[str]:
    rewrite(logs / "log.csv", lambda text: text.replace("\nu", "\nu0,i0,maybe,1,1\nu"))
    return []


def one_class(logs: Path) -> list[str]:
    return ["data.labels.click={name: click, when: 'clicked >= 0'}"]


def empty_split(logs: Path) -> list[str]:
    return ["data.split.test_until=2027-01-01", "data.split.valid_until=2026-12-31"]


def unknown_column(logs: Path) -> list[str]:
    rewrite(logs / "log.csv", lambda text: text.replace("price", "prize", 1))
    return []


def broken_parquet(logs: Path) -> list[str]:
    table = pa.csv.read_csv(logs / "items.csv")
    pq.write_table(table, logs / "items.parquet")
    path = logs / "items.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    return ["data.sources.items.paths=items.parquet"]


def cut_gzip(logs: Path) -> list[str]:
    (logs / "log.csv.gz").write_bytes(gzip.compress((logs / "log.csv").read_bytes())[:-40])
    return ["data.sources.log.paths=log.csv.gz"]


def folder_below_a_file(logs: Path) -> list[str]:
    return [f"work_dir={logs / 'log.csv' / 'work'}"]


QUICK: list[tuple[Spoil, str]] = [
    (missing_file, "no file matches 'items.csv'"),
    (folder_below_a_file, "Not a directory"),
]
SLOW: list[tuple[Spoil, str]] = [
    (empty_file, "data.sources.log: 1 file(s) hold no row"),
    (header_only, "data.sources.log: 1 file(s) hold no row"),
    (all_rejected, "600 of 1200 rows rejected (50.00%), more than data.max_reject_share = 1.00%: invalid_int64 600"),
    (one_class, "label 'click' is 1 in all 360 rows of split 'train'"),
    (empty_split, "split 'test' has no rows"),
    (unknown_column, "'price'"),
    (broken_parquet, "items.parquet cannot be read as Parquet"),
    (cut_gzip, "log.csv.gz cannot be read to its end"),
]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW[1:]), SLOW[0]],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_bad_input_is_one_clear_line(tmp_path: Path, spoil: Spoil, message: str) -> None:
    tiny_line(tmp_path)
    overrides = spoil(tmp_path / "logs")
    assert message in fails(tmp_path, *overrides).err


@pytest.mark.slow
def test_the_same_command_completes_once_the_input_is_right(tmp_path: Path) -> None:
    tiny_line(tmp_path)
    good = (tmp_path / "logs" / "log.csv").read_bytes()
    all_rejected(tmp_path / "logs")
    fails(tmp_path)
    (tmp_path / "logs" / "log.csv").write_bytes(good)
    assert rankmill("preprocess", tmp_path / "config.yaml").code == 0
    assert not list((tmp_path / "work" / "examples").rglob("scratch"))

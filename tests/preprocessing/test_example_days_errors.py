"""What labelled days refuse: nothing to read, too much rejected, one class, lost rows, damaged files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preprocessing.errors import DataError, LabelError, RejectBudgetError, SourceError
from preprocessing.examples_summary import ExamplesSummary, check_examples, check_sources
from preprocessing.spec import DataSpec
from tests.preprocessing.tiny_logs import CLICKS, Built, build, small_days, tree, write_logs


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    root = tmp_path_factory.mktemp("logs")
    write_logs(root, small_days(), CLICKS)
    return build(root, root / "work")


def check(built: Built, summary: ExamplesSummary) -> None:
    check_examples(summary, built.spec, built.logs, built.periods)


def with_counts(built: Built, **counts: int) -> ExamplesSummary:
    return dataclasses.replace(built.summary, counts={**built.summary.counts, **counts})


def test_too_many_rejects_are_an_error_that_says_why(built: Built) -> None:
    tight = DataSpec.model_validate(tree(max_reject_share=0.2))
    message = r"shown: 4 of 18 rows rejected \(22\.22%.*future_time 1, missing_required 1, out_of_range 2; see THERE"
    with pytest.raises(RejectBudgetError, match=message):
        check_sources(tight, built.logs, rejects="THERE", repaired={})
    check_sources(tight, built.logs, rejects="THERE", repaired={"shown": 1})  # 3 of 18 are left


def test_a_split_without_rows_or_with_one_class_is_an_error(built: Built) -> None:
    check(built, built.summary)
    with pytest.raises(DataError, match="split 'test' has no rows"):
        check(built, with_counts(built, test_rows=0))
    with pytest.raises(LabelError, match="label 'click' is 0 in all 2 rows of split 'valid'"):
        check(built, with_counts(built, valid_positive_click=0))
    with pytest.raises(LabelError, match="label 'click' is 1 in all 9 rows of split 'train'"):
        check(built, with_counts(built, train_positive_click=9))


def test_a_row_lost_on_the_way_to_the_join_is_an_error(built: Built) -> None:
    with pytest.raises(DataError, match="shown: 14 rows were read and kept, 13 reached the join"):
        check(built, with_counts(built, rows=13))


def test_nothing_in_a_source_is_an_error_that_names_it(tmp_path: Path) -> None:
    write_logs(tmp_path, small_days(), CLICKS)
    (tmp_path / "clicks.jsonl").write_bytes(b"")
    with pytest.raises(SourceError, match=r"data\.sources\.clicks: 1 file.* hold no row"):
        build(tmp_path, tmp_path / "work")


@pytest.mark.slow
def test_logs_with_nothing_but_headers_or_rejects_are_errors(tmp_path: Path) -> None:
    write_logs(tmp_path, {"day0": []}, CLICKS)
    with pytest.raises(SourceError, match=r"data\.sources\.shown: 1 file"):
        build(tmp_path, tmp_path / "header")
    write_logs(tmp_path, {"day0": [(i, u, item, -5, price) for i, u, item, _, price in small_days()["day0"]]}, CLICKS)
    with pytest.raises(RejectBudgetError, match="6 of 6 rows rejected"):
        build(tmp_path, tmp_path / "rejects", tree(max_reject_share=1.0))


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("items.parquet", lambda content: content[:-100], r"items\.parquet cannot be read as Parquet"),
        ("users.tsv.gz", lambda content: content[:-12], r"users\.tsv\.gz cannot be read to its end"),
        pytest.param(
            "shown/day1.csv",
            lambda content: content.replace(b"id,user", b"id,used"),
            r"day1\.csv.*'user'.*used",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(
    tmp_path: Path, name: str, spoil: Callable[[bytes], Any], message: str
) -> None:
    write_logs(tmp_path, small_days(), CLICKS)
    path = tmp_path / name
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(SourceError, match=message):
        build(tmp_path, tmp_path / "work")


@pytest.mark.slow
def test_an_error_of_a_worker_process_comes_back_as_itself(tmp_path: Path) -> None:
    write_logs(tmp_path, small_days(), CLICKS)
    (tmp_path / "items.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(SourceError, match=r"items\.parquet cannot be read as Parquet"):
        build(tmp_path, tmp_path / "work", workers=2, mode="multi_processing")

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preprocessing.errors import SourceError
from preprocessing.matching import match_source
from preprocessing.spec import DayRange, SourceSpec

SPEC = SourceSpec(paths=("log/dt=*/*.csv",), columns={"a": "string"}, day_partition="dt")


def day(number: int) -> dt.date:
    return dt.date(2026, 11, number)


def days(first: int | None, last: int | None) -> DayRange:
    return DayRange(first=day(first) if first else None, last=day(last) if last else None)


def put(root: Path, *folders: str) -> None:
    for folder in folders:
        (root / "log" / folder).mkdir(parents=True)
        (root / "log" / folder / "x.csv").write_bytes(b"a\n1\n")


def folders(files: list[str]) -> list[str]:
    return [Path(file).parent.name for file in files]


@pytest.fixture
def root(tmp_path: Path) -> str:
    put(tmp_path, *(f"dt=2026-11-{number:02d}" for number in (1, 2, 3, 9, 10)), "dt=20261104")
    return str(tmp_path)


def test_without_days_every_file_is_named(root: str) -> None:
    assert len(match_source(SPEC, root=root)) == 6
    assert len(match_source(SPEC.model_copy(update={"day_partition": None}), root=root, days=days(2, 2))) == 6


@pytest.mark.parametrize(
    ("first", "last", "around", "expected"),
    [
        (2, 3, (0, 0), ["dt=2026-11-02", "dt=2026-11-03"]),
        (3, 9, (0, 0), ["dt=2026-11-03", "dt=2026-11-09", "dt=20261104"]),
        (3, 3, (1, 1), ["dt=2026-11-02", "dt=2026-11-03", "dt=20261104"]),
        (9, None, (0, 0), ["dt=2026-11-09", "dt=2026-11-10"]),
        (None, 1, (0, 1), ["dt=2026-11-01", "dt=2026-11-02"]),
    ],
)
def test_only_folders_of_the_days_are_named(
    root: str, first: int | None, last: int | None, around: tuple[int, int], expected: list[str]
) -> None:
    assert folders(match_source(SPEC, root=root, days=days(first, last), around_days=around)) == expected


def test_rows_of_no_day_may_be_of_any(root: str) -> None:
    put(Path(root), "dt=__HIVE_DEFAULT_PARTITION__")
    found = folders(match_source(SPEC, root=root, days=days(2, 2)))
    assert found == ["dt=2026-11-02", "dt=__HIVE_DEFAULT_PARTITION__"]


def test_folders_of_other_years_are_not_even_looked_at(root: str) -> None:
    put(Path(root), "dt=yesterday")
    assert folders(match_source(SPEC, root=root, days=days(2, 2))) == ["dt=2026-11-02"]
    with pytest.raises(SourceError, match=r"dt=yesterday.*the folder dt= must hold a day, such as 2026-11-01"):
        match_source(SPEC, root=root, days=days(2, None))


def test_a_day_that_is_in_no_calendar_is_an_error(root: str) -> None:
    put(Path(root), "dt=2026-11-31")
    with pytest.raises(SourceError, match="holds no day"):
        match_source(SPEC, root=root, days=days(30, None))


def test_no_file_within_the_days_is_an_error_that_names_them(root: str) -> None:
    with pytest.raises(
        SourceError, match=r"with a folder dt= of the days 2026-11-20 to 2026-11-21; correct .*data.days"
    ):
        match_source(SPEC, root=root, days=days(20, 21))


def test_a_file_outside_of_such_a_folder_is_an_error(root: str) -> None:
    spec = SPEC.model_copy(update={"paths": ("log/*/*.csv",)})
    put(Path(root), "day=2026-11-02")
    with pytest.raises(SourceError, match=r"has no partition folder 'dt': its partition folders are 'day'"):
        match_source(spec, root=root, days=days(2, 2))


def test_a_column_that_no_parquet_file_has_is_an_error_and_one_that_some_have_is_not(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [1], "new": [2]}), tmp_path / "2.parquet")
    good = SourceSpec(paths=("*.parquet",), columns={"a": "int64", "new": "int64"})
    assert len(match_source(good, root=str(tmp_path))) == 2
    bad = SourceSpec(paths=("*.parquet",), columns={"a": "int64", "newer": "int64"})
    with pytest.raises(SourceError, match=r"1\.parquet \(like the other 1 files\) has no column 'newer': .*'new'"):
        match_source(bad, root=str(tmp_path))

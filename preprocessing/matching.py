"""Which files a source names: globs, and of folders by day only those that are wanted."""

from __future__ import annotations

import datetime as dt
import glob
import itertools
import os
from collections.abc import Iterable, Sequence

from preprocessing.errors import SourceError
from preprocessing.parquet_columns import check_columns
from preprocessing.partitions import HIVE_MISSING, partition_day
from preprocessing.remote_files import is_remote, match_remote
from preprocessing.spec import DayRange, SourceSpec

__all__ = ["match", "match_source"]


def match(patterns: Sequence[str], *, root: str) -> list[str]:
    """Returns the files that any of the patterns names, sorted, each once; patterns are relative to `root`.

    Raises:
        SourceError: if a pattern matches no file.
    """
    found: set[str] = set()
    for pattern in patterns:
        files = _list([_join(root, pattern)])
        if not files:
            raise SourceError(f"no file matches {pattern!r} under {root!r}; correct the path, or data.root")
        found.update(files)
    return sorted(found)


def match_source(
    spec: SourceSpec, *, root: str, days: DayRange | None = None, around_days: tuple[int, int] = (0, 0)
) -> list[str]:
    """Returns the files of a source, sorted; with `day_partition` only those of the folders within the days.

    Args:
        spec: the declaration of the source.
        root: where relative paths start.
        days: range of days, both inclusive; None, or a side left open, for all.
        around_days: how many days before and after the range are read too, for rows that arrive late and windows
            that reach over midnight.

    A folder of Hive's missing value is always among them: its rows may be of any day.

    Raises:
        SourceError: if no file is left, a pattern without days matches none, a folder names no day, or a declared
            column is in no Parquet file.
    """
    first, last = _widened(days or DayRange(), around_days)
    if spec.day_partition is None or (first is None and last is None):
        files = match(spec.paths, root=root)
    else:
        files = _match_days(spec.paths, root=root, name=spec.day_partition, first=first, last=last)
    check_columns(files, spec)
    return files


def _widened(days: DayRange, around: tuple[int, int]) -> tuple[dt.date | None, dt.date | None]:
    first = days.first - dt.timedelta(days=around[0]) if days.first is not None else None
    last = days.last + dt.timedelta(days=around[1]) if days.last is not None else None
    return first, last


def _match_days(
    patterns: Sequence[str], *, root: str, name: str, first: dt.date | None, last: dt.date | None
) -> list[str]:
    full = [one for pattern in patterns for one in _by_day(_join(root, pattern), name, first=first, last=last)]
    files = sorted(path for path in set(_list(full)) if _within(partition_day(path, name), first, last))
    if not files:
        shown = f"{first or 'the beginning'} to {last or 'the end'}"
        raise SourceError(
            f"no file matches {', '.join(map(repr, patterns))} under {root!r} with a folder {name}= of the days "
            f"{shown}; correct the path, data.root or data.days"
        )
    return files


def _within(day: dt.date | None, first: dt.date | None, last: dt.date | None) -> bool:
    return day is None or ((first is None or first <= day) and (last is None or day <= last))


def _by_day(pattern: str, name: str, *, first: dt.date | None, last: dt.date | None) -> list[str]:
    """Returns patterns by the beginning that the days have in common, so that of other years not even names are read.

    A pattern for each day would cost a request each at a remote store.
    """
    any_day = f"/{name}=*/"
    if any_day not in pattern or first is None or last is None:
        return [pattern]
    forms = [(first.isoformat(), last.isoformat()), (f"{first:%Y%m%d}", f"{last:%Y%m%d}")]
    values = [*(_common_beginning(*form) + "*" for form in forms), HIVE_MISSING]
    return [pattern.replace(any_day, f"/{name}={value}/", 1) for value in values]


def _common_beginning(left: str, right: str) -> str:
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=True))
    return "".join(letter for letter, _ in same)


def _join(root: str, pattern: str) -> str:
    if is_remote(pattern):
        return pattern
    return f"{root.rstrip('/')}/{pattern}" if is_remote(root) else os.path.join(root, pattern)


def _list(patterns: Iterable[str]) -> list[str]:
    remote = [pattern for pattern in patterns if is_remote(pattern)]
    local = [path for pattern in patterns if not is_remote(pattern) for path in _match_local(pattern)]
    return local + (match_remote(remote) if remote else [])


def _match_local(pattern: str) -> list[str]:
    if os.path.isfile(pattern):  # a name may hold characters that a glob would interpret
        return [pattern]
    return [path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)]

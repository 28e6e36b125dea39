"""Which files below a folder are one source: by folder, by name without its digits, by header."""

from __future__ import annotations

import dataclasses
import glob
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from preprocessing.errors import SourceError
from preprocessing.guess import ColumnGuess, guess_column
from preprocessing.sample_files import FileSample, join_samples, sample_file

__all__ = ["Found", "Table", "find_tables"]

_MAX_ROWS = 50_000
_MAX_FILES = 12  # of one source are looked at
_TABLES = re.compile(r"\.(csv|tsv|jsonl|ndjson|json|parquet|pq)(\.(gz|bz2|zst))?$", re.IGNORECASE)
_PARTITION = re.compile(r"^([A-Za-z_][\w-]*)=(.+)$")
_DAY = re.compile(r"^\d{4}-\d{2}-\d{2}$")


@dataclasses.dataclass(frozen=True)
class Table:
    """The files of one source and what its columns seem to be.

    Attributes:
        name: fit for a config.
        patterns: files or globs, relative to the root.
        num_files: how many files there are.
        rows: of all files, about.
        columns: by name in the file.
        sample: rows of some of the files.
        day_partition: partition folder that holds a day, if there is one.
    """

    name: str
    patterns: tuple[str, ...]
    num_files: int
    rows: int
    columns: Mapping[str, ColumnGuess]
    sample: FileSample
    day_partition: str | None = None


@dataclasses.dataclass(frozen=True)
class Found:
    """What there is below a path: sources, and files that are none with the reason."""

    root: Path
    tables: tuple[Table, ...]
    skipped: tuple[tuple[str, str], ...]


def find_tables(data: Path) -> Found:
    """Returns the sources below a folder, or of one file.

    Raises:
        SourceError: if there is nothing that Rankmill reads.
    """
    if data.is_file():
        return Found(data.parent, (_table(data.stem, (glob.escape(data.name),), [data], data.parent),), ())
    if not data.is_dir():
        raise SourceError(f"{data}: no such file or folder; give a log file, or a folder with logs and side tables")
    files = [path for path in sorted(data.rglob("*")) if path.is_file() and not _hidden(path.relative_to(data))]
    if not files:
        raise SourceError(f"{data} holds no files; give a log file, or a folder with logs and side tables")
    candidates = [path for path in files if _TABLES.search(path.name)] or files
    skipped = [(str(path.relative_to(data)), "no table by its name") for path in files if path not in set(candidates)]
    tables: list[Table] = []
    for pattern, members in _groups(candidates, data).items():
        try:
            tables.append(_table(_name_of(pattern), (pattern,), members, data))
        except SourceError as error:
            skipped.append((pattern, str(error)))
    if not tables:
        reasons = "; ".join(reason for _, reason in skipped[:3])
        raise SourceError(f"{data} holds no table that Rankmill reads (CSV, TSV, JSON lines, Parquet): {reasons}")
    return Found(data, tuple(_named(_merged(tables, data))), tuple(skipped))


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _groups(files: list[Path], root: Path) -> dict[str, list[Path]]:
    """Returns files by glob: folders of a partition and digits in names are wild where several files share them."""
    masks: dict[str, list[Path]] = {}
    for path in files:
        masks.setdefault(_mask(path.relative_to(root)), []).append(path)
    groups = {}
    for mask, members in masks.items():
        alone = len(members) == 1
        groups[glob.escape(str(members[0].relative_to(root))) if alone else mask] = members
    return groups


def _mask(path: Path) -> str:
    folders = [_folder_mask(part) for part in path.parts[:-1]]
    suffix = "".join(path.suffixes[-2:]) if re.search(r"\.(gz|bz2|zst)$", path.name) else path.suffix
    stem = path.name.removesuffix(suffix)
    partition = _PARTITION.match(stem)
    name = f"{partition[1]}=*" if partition else re.sub(r"\d+(?:[-_.T]?\d+)*", "*", glob.escape(stem))
    return "/".join([*folders, name + suffix])


def _folder_mask(part: str) -> str:
    partition = _PARTITION.match(part)
    if partition:
        return f"{partition[1]}=*"
    return "*" if re.fullmatch(r"[\d_.-]*\d[\d_.-]*", part) else glob.escape(part)


def _name_of(pattern: str) -> str:
    """Returns the last part of a pattern that says something."""
    *folders, name = pattern.split("/")
    stem = re.sub(_TABLES, "", name)
    if ("*" in stem or "=" in stem) and (plain := [part for part in folders if "*" not in part]):
        return _clean(plain[-1])
    return _clean(re.sub(r"[\w-]+=\*|[\[\]*]", "", stem)) or "log"


def _clean(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_.-")


def _table(name: str, patterns: tuple[str, ...], files: list[Path], root: Path) -> Table:
    places = np.linspace(0, len(files) - 1, min(len(files), _MAX_FILES)).round().astype(int)
    samples = list(_samples([files[place] for place in sorted(set(places.tolist()))]))
    formats = {sample.format for sample in samples}
    if len(formats) > 1:
        raise SourceError(f"{patterns[0]}: its files are of several formats ({', '.join(sorted(formats))})")
    sample = join_samples(samples)
    if len(places) < len(files):
        sample = dataclasses.replace(sample, whole=False)
    size = sum(path.stat().st_size for path in files)
    return Table(
        name=_clean(name) or "log",
        patterns=patterns,
        num_files=len(files),
        rows=sample.num_rows if sample.whole else max(sample.num_rows, round(size / sample.bytes_a_row)),
        columns={column: guess_column(values) for column, values in sample.columns.items()},
        sample=sample,
        day_partition=_day_partition(files[0].relative_to(root)),
    )


def _samples(files: list[Path]) -> Iterator[FileSample]:
    """Yields samples; a file without rows among others is no reason to stop."""
    found, last = 0, None
    for path in files:
        try:
            yield sample_file(path, max_rows=max(1000, _MAX_ROWS // len(files)))
            found += 1
        except SourceError as error:
            last = error
    if not found and last is not None:
        raise last


def _day_partition(path: Path) -> str | None:
    for part in path.parts[:-1]:
        partition = _PARTITION.match(part)
        if partition and _DAY.match(partition[2]):
            return partition[1]
    return None


def _merged(tables: list[Table], root: Path) -> list[Table]:
    """Returns tables with those of one folder and of equal columns as one."""
    merged: dict[tuple[object, ...], list[Table]] = {}
    for table in tables:
        folder = table.patterns[0].rpartition("/")[0]
        alike = (folder, table.sample.format, tuple(table.columns)) if folder else (table.patterns[0],)
        merged.setdefault(alike, []).append(table)
    result = []
    for key, members in merged.items():
        if len(members) == 1:
            result.append(members[0])
            continue
        patterns = tuple(pattern for member in members for pattern in member.patterns)
        files = sorted(path for pattern in patterns for path in root.glob(pattern))
        plain = [part for part in str(key[0]).split("/") if "*" not in part]
        result.append(_table(plain[-1] if plain else "log", patterns, files, root))
    return result


def _named(tables: list[Table]) -> Iterator[Table]:
    """Yields the tables under names of their own."""
    taken: set[str] = set()
    for table in tables:
        name, number = table.name, 2
        while name in taken:
            name, number = f"{table.name}_{number}", number + 1
        taken.add(name)
        yield dataclasses.replace(table, name=name)

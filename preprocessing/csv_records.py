"""Which lines of a chunk of CSV make its records, and which make none.

A quote that never closes would swallow the rest of a file, so lines with an odd number of quotes (the only ones that
can open or close a value across lines) are paired here first: a pair that does not make a whole row rejects its first
line alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from preprocessing.csv_header import split_cells
from preprocessing.lines import Lines, find_lines

__all__ = ["Records", "find_records"]

# A value that runs over lines may be this long; past it the quote is taken for one that never closes.
_MAX_RECORD_BYTES = 4 << 20


@dataclass(frozen=True)
class Records:
    """The records of a chunk back to back, where each began, the lines that are none, and what is left to read."""

    data: bytes
    lengths: npt.NDArray[np.int64]
    lines: npt.NDArray[np.int64]
    bad: list[tuple[int, bytes]]
    multiline: bool
    rest: bytes
    num_lines: int


def find_records(data: bytes, num_columns: int, *, delimiter: str, last: bool, over_lines: bool) -> Records:
    """Returns the records of a chunk.

    Args:
        data: whole lines.
        num_columns: of the header.
        delimiter: a character.
        last: whether no chunk follows; else a record that may go on is left for the next.
        over_lines: whether a quoted value may hold a newline.
    """
    lines = find_lines(data)
    is_row = functools.partial(_is_row, lines, num_columns=num_columns, delimiter=delimiter)
    if over_lines:
        joined, bad, cut = _pair_quotes(lines, is_row, last=last)
    else:
        joined, bad, cut = [], [line for line in _odd_lines(lines) if not is_row(line, line)], len(lines.ends)
    keep = ~lines.blank()
    first = np.ones(len(lines.ends), np.bool_)
    for start, stop in joined:
        keep[start : stop + 1] = True
        first[start + 1 : stop + 1] = False
    keep[bad] = False
    keep[cut:] = False
    where = np.flatnonzero(keep & first)
    sizes = np.where(keep, lines.ends - lines.starts, 0)
    lengths = np.add.reduceat(sizes, where) if len(where) else np.zeros(0, np.int64)
    rest = data[lines.starts[cut] :] if cut < len(lines.starts) else b""
    return Records(
        _keep_lines(lines, keep),
        lengths,
        where,
        [(int(index), data[lines.starts[index] : lines.ends[index]]) for index in bad],
        bool(joined),
        rest,
        cut,
    )


def _keep_lines(lines: Lines, keep: npt.NDArray[np.bool_]) -> bytes:
    """Returns the kept lines back to back; copies only if some are left out."""
    if keep.all():
        return lines.data
    edges = np.flatnonzero(np.diff(keep, prepend=False, append=False))
    runs = zip(lines.starts[edges[::2]], lines.ends[edges[1::2] - 1], strict=True)
    return b"".join(lines.data[start:end] for start, end in runs)


def _pair_quotes(
    lines: Lines, is_row: Callable[[int, int], bool], *, last: bool
) -> tuple[list[tuple[int, int]], list[int], int]:
    """Returns the records over several lines, the lines that open a quote for nothing, and the first line left over.

    Inside a quoted value quotes come in pairs, so a record over lines begins and ends at lines with an odd number of
    quotes, and has none between.
    """
    joined: list[tuple[int, int]] = []
    bad: list[int] = []
    odd = _odd_lines(lines)
    index = 0
    while index < len(odd):
        line = odd[index]
        follower = odd[index + 1] if index + 1 < len(odd) else None
        if follower is None and not last and len(lines.data) - lines.starts[line] <= _MAX_RECORD_BYTES:
            return joined, bad, line
        index += 1
        if is_row(line, line):
            continue
        if follower is not None and is_row(line, follower):
            joined.append((line, follower))
            index += 1
        else:
            bad.append(line)
    return joined, bad, len(lines.ends)


def _odd_lines(lines: Lines) -> list[int]:
    if b'"' not in lines.data:
        return []
    quotes = np.flatnonzero(np.frombuffer(lines.data, np.uint8) == 34)
    counts = np.bincount(np.searchsorted(lines.ends, quotes, side="right"), minlength=len(lines.ends))
    return np.flatnonzero(counts % 2).tolist()


def _is_row(lines: Lines, start: int, stop: int, *, num_columns: int, delimiter: str) -> bool:
    if lines.ends[stop] - lines.starts[start] > _MAX_RECORD_BYTES:
        return False
    cells = split_cells(lines.data[lines.starts[start] : lines.ends[stop]], delimiter)
    return cells is not None and len(cells) == num_columns

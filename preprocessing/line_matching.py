"""Which line of an edited text is which line of the original: in order, the likest together."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import numpy as np

__all__ = ["line_owners"]

_MOST_PAIRS = 250_000  # of lines that are compared; beyond, they are taken in order


def line_owners(exported: Sequence[bytes], owners: Sequence[int], edited: Sequence[bytes]) -> list[int]:
    """Returns of each edited line the exported row that it belongs to; -1 for a line put between rows.

    Args:
        exported: lines as they were exported.
        owners: of each exported line, its row.
        edited: lines as they are now.
    """
    if list(exported) == list(edited):
        return list(owners)
    found = [-1] * len(edited)
    matcher = difflib.SequenceMatcher(None, exported, edited, autojunk=False)
    for kind, start, stop, first, last in matcher.get_opcodes():
        if kind in ("equal", "replace"):
            for place, partner in zip(
                range(first, last), _partners(exported[start:stop], edited[first:last]), strict=True
            ):
                found[place] = -1 if partner is None else owners[start + partner]
    return found


def _partners(before: Sequence[bytes], after: Sequence[bytes]) -> list[int | None]:
    """Returns of each line after an edit the line before it: in order, the likest together, a new line to the last."""
    if len(before) == len(after):
        return list(range(len(after)))
    if len(before) * len(after) > _MOST_PAIRS:
        return [min(place, len(before) - 1) for place in range(len(after))]
    likeness = np.array([[_likeness(one, other) for other in after] for one in before])
    best = np.zeros((len(before) + 1, len(after) + 1))
    for i, j in np.ndindex(likeness.shape):
        best[i + 1, j + 1] = max(best[i, j + 1], best[i + 1, j], best[i, j] + likeness[i, j])
    partners: list[int | None] = [None] * len(after)
    i, j = len(before), len(after)
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            partners[j] = i
    return _carried(partners)


def _carried(partners: Sequence[int | None]) -> list[int | None]:
    result: list[int | None] = []
    for partner in partners:
        result.append(partner if partner is not None or not result else result[-1])
    return result


def _likeness(one: bytes, other: bytes) -> float:
    """Returns the share of the longer line that both begin or end with."""
    shorter = min(len(one), len(other))
    first, last = _common(one, other), _common(one[::-1], other[::-1])
    return min(first + last, shorter) / max(1, len(one), len(other))


def _common(one: bytes, other: bytes) -> int:
    """Returns how many bytes both begin with."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))

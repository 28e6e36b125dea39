"""Lengths of embedding rows, to see which grow without end or never leave their first values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from models.inference_tables import InferenceTables
from models.partitioned_tables import PartitionedTables
from models.tables import WEIGHTS, EmbeddingTables

__all__ = ["row_norms"]

_MOST_ROWS = 1 << 16


def row_norms(
    tables: EmbeddingTables | PartitionedTables | InferenceTables, *, most_rows: int = _MOST_ROWS
) -> dict[str, npt.NDArray[np.floating]]:
    """Returns the lengths of about `most_rows` rows at most, evenly spread, of what this process holds.

    By TABLE/GROUP.
    """
    found = {}
    for table in tables.plan.tables:
        held = tables.held_rows(table.name)
        every = max(1, -(-sum(len(ids) for ids in held) // most_rows))
        for group in tables.groups if held else ():
            rows = [tables.read(table.name, group, array=WEIGHTS, ids=ids[::every]) for ids in held]
            found[f"{table.name}/{group}"] = np.linalg.norm(np.concatenate(rows), axis=1)
    return found

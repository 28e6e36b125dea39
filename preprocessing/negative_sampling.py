"""Which rows of the training split stay when negatives are sampled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.columnar import hash_rows
from preprocessing.hashing import mix
from preprocessing.schema import LABEL_PREFIX

__all__ = ["kept_rows"]

_SALT = np.uint64(0x6E65_6761_7469_7665)  # independent of the split and the partition that the same hash names


def kept_rows(table: pa.Table, *, keep: float, labels: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Returns bool [rows]: all rows with a positive label, and a share `keep` of the others.

    Which of the others follows from the values of a row's own columns (those that preprocessing adds, `__...`, do not
    take part) and nothing else: not from its place, its file or the other rows. Equal rows stay or go together.

    Args:
        table: the labelled rows: any columns, and a number `LABEL_PREFIX` + name for each label.
        keep: above 0, at most 1. A model of the rows kept must correct its log-odds: `models.loss.sampling_offset`.
        labels: names of the labels.
    """
    names = sorted(name for name in table.column_names if not name.startswith("__"))
    hashes = mix(hash_rows(table, names) ^ _SALT)
    kept: npt.NDArray[np.bool_] = (hashes >> np.uint64(11)).astype(np.float64) / 2.0**53 < keep
    for label in labels:
        kept |= pc.fill_null(pc.equal(table.column(LABEL_PREFIX + label), 1), False).to_numpy()
    return kept

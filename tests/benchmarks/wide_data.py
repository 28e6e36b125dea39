"""The wide schema of the benchmarks: 26 string columns (Zipf, 10 to 200,000 distinct), 13 numbers with 20 % missing.

The label follows from a hidden weight of each token and each number, so that a model has something to learn.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

NUM_STRINGS = 26
NUM_NUMBERS = 13
MISSING_SHARE = 0.2
ZIPF = 1.1
ROW_GROUP = 1 << 17


def write_wide_rows(path: Path, *, num_rows: int, seed: int) -> None:
    """Writes a Parquet file of `num_rows` rows."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {"row": np.arange(num_rows)}
    score = np.full(num_rows, -1.2)
    for i, size in enumerate(_sizes()):
        tokens = _zipf(rng, size, num_rows)
        score += rng.normal(0, 0.35, size)[tokens]
        words = pa.array([f"c{i}_{token:x}" for token in range(size)])
        columns[f"s{i}"] = pa.DictionaryArray.from_arrays(pa.array(tokens), words).cast(pa.string())
    for i in range(NUM_NUMBERS):
        values = rng.lognormal(1.0, 1.0, num_rows)
        missing = rng.random(num_rows) < MISSING_SHARE
        score += np.where(missing, 0.0, rng.normal(0, 0.2) * (np.log1p(values) - 1.3))
        columns[f"n{i}"] = pa.array(values, mask=missing)
    columns["label"] = (rng.random(num_rows) < 1 / (1 + np.exp(-score))).astype(np.int64)
    pq.write_table(pa.table(columns), path, row_group_size=ROW_GROUP)


def _sizes() -> list[int]:
    return [int(size) for size in np.round(np.geomspace(10, 200_000, NUM_STRINGS))]


def _zipf(rng: np.random.Generator, size: int, num_rows: int) -> np.ndarray:
    weights = 1.0 / np.arange(1, size + 1) ** ZIPF
    return np.searchsorted(np.cumsum(weights / weights.sum()), rng.random(num_rows)).clip(max=size - 1)


def wide_config(path: Path, work_dir: Path) -> dict[str, Any]:
    """Returns a config tree over that file: vocabularies with min count 5, log1p, standardise, 80/10/10 by hash."""
    strings = {f"s{i}": "string" for i in range(NUM_STRINGS)}
    numbers = {f"n{i}": "float64" for i in range(NUM_NUMBERS)}
    return {
        "name": "wide",
        "work_dir": str(work_dir),
        "data": {
            "root": str(path.parent),
            "sources": {
                "log": {
                    "paths": path.name,
                    "duplicates": "keep",
                    "columns": {"row": "int64", **strings, **numbers, "label": {"type": "int64", "required": True}},
                }
            },
            "impressions": "log",
            "roles": {"row_id": "row"},
            "labels": [{"name": "label", "column": "label"}],
            "split": {"kind": "hash", "key": ["row"]},
        },
        "features": [
            *({"name": name, "kind": "categorical", "min_count": 5} for name in strings),
            *({"name": name, "kind": "numeric", "log1p": True} for name in numbers),
        ],
    }

"""Planted leaks are found and named; an honest log has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.leaks import repeated_rows, telling_column
from preprocessing.dataset import Dataset, Shard
from preprocessing.schema import LABEL_PREFIX, DatasetSchema, RawColumn

NUM_ROWS = 2000


def columns(*, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    item = random.integers(0, 20, NUM_ROWS)
    label = (random.random(NUM_ROWS) < np.where(item % 2 == 0, 0.7, 0.2)).astype(np.float32)
    return {
        "user": [f"u{number}" for number in random.integers(0, 50, NUM_ROWS)],
        "item": [f"i{number}" for number in item],
        "price": random.normal(size=NUM_ROWS),
        "past": [[f"i{number}" for number in random.integers(0, 20, random.integers(0, 4))] for _ in range(NUM_ROWS)],
        "seen_at": np.arange(NUM_ROWS) + seed * NUM_ROWS,
        LABEL_PREFIX + "click": label,
    }


def dataset(folder: Path, splits: dict[str, dict[str, Any]]) -> Dataset:
    shards: dict[str, tuple[Shard, ...]] = {}
    for name, values in splits.items():
        pq.write_table(pa.table(values), folder / f"{name}.parquet")
        shards[name] = (Shard(period="all", records="", rows=f"{name}.parquet", num_rows=NUM_ROWS),)
    kinds = {"user": "string", "item": "string", "price": "float32", "past": "string"}
    raw = tuple(RawColumn(name=name, dtype=kind, length=4 if name == "past" else None) for name, kind in kinds.items())
    return Dataset(folder=folder, schema=DatasetSchema(raw_columns=raw, labels=("click",)), splits=shards)


def made(folder: Path, leak: str) -> Dataset:
    splits = {"train": columns(seed=1), "test": columns(seed=2)}
    for values in splits.values():
        label = values[LABEL_PREFIX + "click"]
        if leak == "price":  # it is missing where there was no click
            values["price"] = [1.0 if clicked else None for clicked in label]
        if leak == "past contains item":
            others = np.roll(values["item"], 7)  # of some other row
            values["past"] = [
                ["i99", item if clicked else other if other != item else "i98"]
                for item, other, clicked in zip(values["item"], others, label, strict=True)
            ]
    return dataset(folder, splits)


def test_an_honest_log_has_no_column_that_says_it_all(tmp_path: Path) -> None:
    found = telling_column(made(tmp_path, ""), "test", item="item")
    assert found.note.startswith("column 'item' alone")
    # Half of the items at 0.7, half at 0.2: P(even | click) = 7/9, P(even | none) = 3/11; ties count half.
    assert found.value == pytest.approx(7 / 9 * 8 / 11 + (7 / 9 * 3 / 11 + 2 / 9 * 8 / 11) / 2, abs=0.03)


@pytest.mark.parametrize("leak", ["price", "past contains item"])
def test_a_planted_leak_is_named(tmp_path: Path, leak: str) -> None:
    found = telling_column(made(tmp_path, leak), "test", item="item")
    assert found.value > 0.99
    assert found.note.startswith(f"column {leak!r} alone")


def test_rows_of_both_splits_are_counted(tmp_path: Path) -> None:
    train, test = columns(seed=1), columns(seed=2)
    also = ["user", "item", "seen_at"]
    assert repeated_rows(dataset(tmp_path, {"train": train, "test": test}), "test", also=also).value == 0.0
    for name, values in test.items():  # 100 rows of the training split in the middle of the test split
        values[500:600] = train[name][:100]
    found = repeated_rows(dataset(tmp_path, {"train": train, "test": test}), "test", also=also)
    assert found.value == pytest.approx(100 / NUM_ROWS)
    assert found.note.startswith(f"100 rows, the first of them user = {train['user'][0]!r}")

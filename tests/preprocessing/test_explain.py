"""Ids and dense inputs back to what they stand for, by the id layout as it is written down."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from preprocessing.errors import ArtefactError
from preprocessing.explain import Meanings, load_meanings
from preprocessing.vocabulary import Vocabulary


def plan(kind: str, **declared: Any) -> dict[str, Any]:
    learned = {name: declared.pop(name, value) for name, value in {"mean": 0.0, "deviation": 1.0}.items()}
    boundaries = [1.0, 2.5]
    feature = {"kind": kind, "name": "f", "column": "", "table": "", "log1p": False, **declared}
    return {"feature": feature, "fill": 0.0, "boundaries": boundaries, **learned}


def meanings(folder: Path, **plans: dict[str, Any]) -> Meanings:
    return Meanings(plans, folder)


def test_ids_of_a_vocabulary_are_missing_then_buckets_then_tokens(tmp_path: Path) -> None:
    tokens = pa.array([b"red", b"\xff"], pa.large_binary())
    Vocabulary(tokens, np.array([7, 1000]), 2).save(tmp_path / "colour.parquet")
    known = meanings(tmp_path, f=plan("categorical", table="colour"))
    assert [known.of_id("f", number) for number in range(5)] == [
        "missing",
        "not in the vocabulary (bucket 0 of 2)",
        "not in the vocabulary (bucket 1 of 2)",
        "red (seen 7 times in train)",
        "\\xff (seen 1,000 times in train)",
    ]
    with pytest.raises(ArtefactError, match="of another dataset"):
        known.of_id("f", 5)


@pytest.mark.parametrize(
    ("declared", "number", "meaning"),
    [
        (plan("hashed", buckets=10), 0, "missing"),
        (plan("hashed", buckets=10), 10, "hash bucket 9 of 10"),
        (plan("crossed", buckets=10, columns=["a", "b"]), 1, "hash bucket 0 of 10"),
        (plan("integer", size=11), 1, "not a number from 0 to 10"),
        (plan("integer", size=11), 2, "0"),
        (plan("integer", size=11), 12, "10"),
        (plan("numeric"), 0, "missing"),
        (plan("numeric"), 1, "bucket 0: below 1"),
        (plan("numeric"), 2, "bucket 1: from 1 to below 2.5"),
        (plan("numeric"), 3, "bucket 2: 2.5 and above"),
        (plan("bucketed_list", boundaries=[60.0]), 2, "bucket 1: 60 and above"),
        (plan("hour_of_day"), 1, "00:00 to 00:59"),
        (plan("hour_of_day"), 24, "23:00 to 23:59"),
        (plan("day_of_week"), 7, "Sunday"),
    ],
)
def test_ids_of_other_tables_follow_their_layout(
    tmp_path: Path, declared: dict[str, Any], number: int, meaning: str
) -> None:
    assert meanings(tmp_path, f=declared).of_id("f", number) == meaning


@pytest.mark.parametrize(
    ("declared", "number"),
    [
        (plan("hashed", buckets=10), 11),
        (plan("integer", size=11), 13),
        (plan("numeric"), 4),
        (plan("day_of_week"), 8),
        (plan("hour_of_day"), 25),
    ],
)
def test_an_id_that_no_value_has_is_an_error(tmp_path: Path, declared: dict[str, Any], number: int) -> None:
    with pytest.raises(ArtefactError):
        meanings(tmp_path, f=declared).of_id("f", number)


def test_dense_inputs_are_taken_back_through_their_steps(tmp_path: Path) -> None:
    assert meanings(tmp_path, f=plan("numeric", mean=10.0, deviation=4.0)).of_dense("f", -0.5) == "8"
    logged = meanings(tmp_path, f=plan("numeric", log1p=True, mean=1.0, deviation=2.0))
    assert logged.of_dense("f", (math.log1p(99.0) - 1.0) / 2.0) == "99"
    assert logged.of_dense("f", (-math.log1p(3.0) - 1.0) / 2.0) == "-3"


def test_columns_are_the_declared_ones_or_the_name(tmp_path: Path) -> None:
    known = meanings(tmp_path, a=plan("crossed", columns=["x", "y"]), b=plan("numeric", column="z"), c=plan("numeric"))
    assert [known.columns(name) for name in "abc"] == [("x", "y"), ("z",), ("c",)]


def test_a_dataset_without_its_transform_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="run preprocess again"):
        load_meanings(tmp_path)
    (tmp_path / "transform").mkdir()
    (tmp_path / "transform" / "transform.json").write_text(json.dumps({"features": [plan("numeric")]}))
    assert load_meanings(tmp_path).kind("f") == "numeric"

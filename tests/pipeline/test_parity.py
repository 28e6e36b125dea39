"""A running server against the offline scores: equal on hostile rows of every kind of feature, or one is named."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pyarrow as pa
import pytest

from models.config import ModelSpec
from pipeline.parity import Parity, measured_parity
from pipeline.parity_rows import hostile_rows, real_rows
from preprocessing.dataset import Dataset
from preprocessing.feature_spec import CategoricalFeature, FeatureSpec, NumericFeature
from preprocessing.schema import RawColumn
from serving.export import export_model
from serving.export_spec import ExportOptions
from tests.serving.exported import FEATURES, some_rows, write_checkpoint, write_dataset

_PLAIN = ExportOptions()
MODEL = ModelSpec(kind="deepfm", embedding_dim=4, hidden_units=(8,))


def test_each_column_is_made_hostile_by_itself() -> None:
    columns = (RawColumn(name="name", dtype="string"), RawColumn(name="prices", dtype="float32", length=2))
    rows = pa.table({"name": pa.array(["a", "b", None]).dictionary_encode(), "prices": [[1.0], None, [2.0, 3.0]]})
    real = real_rows(rows, columns, num_rows=2)
    assert real.to_pylist() == [{"name": b"a", "prices": [1.0]}, {"name": None, "prices": [2.0, 3.0]}]
    hostile = hostile_rows(real, columns).to_pylist()
    names = {row["name"] for row in hostile if row["prices"] == [1.0]}
    assert {None, b"", b"\xff\xfe", b"a\x00b"} <= names
    prices = [row["prices"] for row in hostile if row["name"] == b"a"]
    assert None in prices
    assert [] in prices
    assert [float("inf")] in prices
    assert max(len(value or ()) for value in prices) > 2  # longer than the column's own length


def parity(folder: Path, *, served: Dataset, offline: Dataset, options: ExportOptions = _PLAIN) -> Parity:
    """Exports `served` with the weights of `offline`, and measures."""
    checkpoint = write_checkpoint(folder / "checkpoint", offline, MODEL)
    export_model(served, checkpoint, model=MODEL, folder=folder / "model", options=options)
    return measured_parity(
        dataclasses.replace(offline, splits={"test": offline.splits["valid"]}),
        FEATURES,
        model=MODEL,
        checkpoint=checkpoint,
        options=options,
        saved_model=folder / "model",
        num_rows=40,
        tolerance=1e-6,
    )


@pytest.mark.serving
@pytest.mark.parametrize("tables", ["float32", "float16"])
def test_an_honest_export_is_equal_offline_and_served(tmp_path: Path, tables: str) -> None:
    dataset = write_dataset(tmp_path / "data", some_rows(60))
    found = parity(tmp_path, served=dataset, offline=dataset, options=ExportOptions(tables=tables))  # type: ignore[arg-type]
    assert found.note == ""
    assert found.difference < 1e-6


def changed(kind: str) -> tuple[FeatureSpec, ...]:
    if kind == "price":  # another normalisation
        return tuple(
            NumericFeature(kind="numeric", name="price") if feature.name == "price" else feature for feature in FEATURES
        )
    # another vocabulary: tokens are numbered in another order
    return tuple(
        CategoricalFeature(kind="categorical", name="user", min_count=3) if feature.name == "user" else feature
        for feature in FEATURES
    )


@pytest.mark.serving
@pytest.mark.parametrize("name", ["price", "user"])
def test_a_feature_that_is_made_otherwise_is_named(tmp_path: Path, name: str) -> None:
    rows = some_rows(60)
    offline = write_dataset(tmp_path / "data", rows)
    served = write_dataset(tmp_path / "other", rows, features=changed(name))
    # The graph of the other dataset with the tables of this one.
    served = dataclasses.replace(served, schema=offline.schema)
    found = parity(tmp_path, served=served, offline=offline)
    assert found.difference > 1e-3
    assert found.note.startswith(f"feature {name!r} ({name} = ")
    assert "served" in found.note
    assert os.listdir(tmp_path / "model")  # what was served is left as it is

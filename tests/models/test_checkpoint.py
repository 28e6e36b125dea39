"""What a checkpoint refuses, survives and forgets."""

import json
from pathlib import Path

import numpy as np
import pytest

from models.build import build_model
from models.checkpoint import latest_checkpoint, load_checkpoint, prune_checkpoints, save_checkpoint
from models.ranking_model import RankingModel
from preprocessing.errors import ArtefactError, ConfigError, CorruptError
from preprocessing.schema import DatasetSchema, IdField, TableSchema
from tests.models.samples import SCHEMA, largest_difference, make_optimizers, make_spec, state


def build(
    *, kind: str = "deepfm", optimizer: str = "adam", seed: int = 1, schema: DatasetSchema = SCHEMA, **settings: object
) -> RankingModel:
    return build_model(schema, make_spec(kind, **settings), optimizers=make_optimizers(optimizer), seed=seed)


def test_progress_comes_back(tmp_path: Path) -> None:
    progress = {"step": 7, "best": {"auc": 0.75}, "order": [1, 2]}
    save_checkpoint(tmp_path / "a", build(), progress=progress)
    assert load_checkpoint(tmp_path / "a", build()) == progress


def test_files_are_logical_rows_that_numpy_alone_reads(tmp_path: Path) -> None:
    model = build()
    save_checkpoint(tmp_path / "a", model, progress={})
    rows = np.load(tmp_path / "a/tables/item/embedding.weights.000000000000.npy", allow_pickle=False)
    np.testing.assert_array_equal(rows, state(model)["item/embedding/weights"])


def test_large_tables_are_split_into_row_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.checkpoint_files._FILE_BYTES", 4 * 8 * 5)  # five rows of width 4
    model, other = build(), build(seed=2)
    save_checkpoint(tmp_path / "a", model, progress={})
    names = sorted(path.name for path in (tmp_path / "a/tables/item").glob("embedding.weights.*"))
    assert names == [f"embedding.weights.{start:012d}.npy" for start in (0, 5, 10, 15)]
    load_checkpoint(tmp_path / "a", other)
    assert largest_difference(state(model), state(other)) == 0.0


def test_weights_alone_leave_the_slots_and_another_optimizer_may_go_on(tmp_path: Path) -> None:
    model, other = build(optimizer="adagrad"), build(optimizer="adam", seed=2)
    save_checkpoint(tmp_path / "a", model, progress={})
    with pytest.raises(ArtefactError, match=r"optimizer of embedding is 'adagrad' there and 'adam' here"):
        load_checkpoint(tmp_path / "a", other)
    load_checkpoint(tmp_path / "a", other, slots=False)
    np.testing.assert_array_equal(state(other)["user/embedding/weights"], state(model)["user/embedding/weights"])
    assert not state(other)["user/embedding/variance"].any()


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damage_is_found_before_the_model_is_touched(tmp_path: Path, damage: str) -> None:
    save_checkpoint(tmp_path / "a", build(), progress={})
    path = max((tmp_path / "a").rglob("*.npy"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes(bytes(content) if damage == "flip" else bytes(content[:-3]))
    other = build(seed=2)
    before = state(other)
    with pytest.raises(CorruptError, match=path.name):
        load_checkpoint(tmp_path / "a", other)
    assert largest_difference(state(other), before) == 0.0


def test_another_model_or_schema_is_refused_with_the_difference(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a", build(), progress={})
    with pytest.raises(ArtefactError, match=r"model.kind is 'deepfm' there and 'dcn' here"):
        load_checkpoint(tmp_path / "a", build(kind="dcn"))
    with pytest.raises(ArtefactError, match=r"hidden_units is \[8, 6\] there and \[8\] here"):
        load_checkpoint(tmp_path / "a", build(hidden_units=(8,)))
    with pytest.raises(ArtefactError, match="float64"):
        load_checkpoint(tmp_path / "a", build(precision="float32"))
    schema = SCHEMA.model_copy(update={"dense": ("price", "age")})
    with pytest.raises(ArtefactError, match="schema is"):
        load_checkpoint(tmp_path / "a", build(schema=schema))
    load_checkpoint(tmp_path / "a", build(dropout=0.5))  # shapes no weight


def test_a_folder_without_a_manifest_does_not_exist(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a", build(), progress={"step": 1})
    (tmp_path / "a/manifest.json").unlink()
    assert latest_checkpoint(tmp_path) is None
    with pytest.raises(ArtefactError, match="not a finished artefact"):
        load_checkpoint(tmp_path / "a", build())
    assert latest_checkpoint(tmp_path / "nowhere") is None


def test_saving_again_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a", build(), progress={"step": 1})
    save_checkpoint(tmp_path / "a", build(seed=2), progress={"step": 2})
    other = build()
    assert load_checkpoint(tmp_path / "a", other) == {"step": 2}
    assert largest_difference(state(other), state(build(seed=2))) == 0.0
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_failed_write_is_one_clear_error_and_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(tmp_path / "a", build(), progress={"step": 1})

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("models.checkpoint_files.np.save", full)
    with pytest.raises(ArtefactError, match="No space left"):
        save_checkpoint(tmp_path / "a", build(), progress={"step": 2})
    assert json.loads((tmp_path / "a/manifest.json").read_text())["progress"] == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_the_latest_is_by_step_and_pruning_keeps_the_last(tmp_path: Path) -> None:
    model = build()
    for step in (9, 10, 100):
        save_checkpoint(tmp_path / f"step-{step}", model, progress={"step": step})
    (tmp_path / ".step-11.1.tmp").mkdir()
    (tmp_path / "notes").mkdir()
    assert latest_checkpoint(tmp_path) == tmp_path / "step-100"
    prune_checkpoints(tmp_path, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "step-10", "step-100"]
    with pytest.raises(ConfigError, match="at least one"):
        prune_checkpoints(tmp_path, keep=0)


def test_names_of_tables_may_hold_anything(tmp_path: Path) -> None:
    name = "a/../b \n%ü"
    schema = DatasetSchema(
        raw_columns=(),
        id_fields=(IdField(name="x", table=name),),
        tables=(TableSchema(name=name, num_rows=3),),
        labels=("y",),
    )
    save_checkpoint(tmp_path / "a", build(schema=schema), progress={})
    other = build(schema=schema, seed=2)
    load_checkpoint(tmp_path / "a", other)
    assert largest_difference(state(other), state(build(schema=schema))) == 0.0

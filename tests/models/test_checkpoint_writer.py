"""Checkpoints across placements and replica counts, by several writers, in the background, and interrupted."""

import functools
import itertools
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models.build import build_model
from models.checkpoint import (
    CheckpointWriter,
    latest_checkpoint,
    load_checkpoint,
    prune_checkpoints,
    save_checkpoint,
    unfinished_checkpoints,
)
from models.checkpoint_files import meets
from models.ranking_model import RankingModel
from preprocessing.errors import ArtefactError, CorruptError
from tests.models.samples import SCHEMA, largest_difference, make_optimizers, make_spec, set_state, state

Strategies = dict[str, tf.distribute.Strategy | None]
MIXED = {"tables": {"user": "mirrored", "item": "sharded", "tag": "table_wise"}}
SHARDED = {"placement": "sharded"}


def build(strategy: tf.distribute.Strategy | None = None, *, seed: int = 1, embeddings: Any = None) -> RankingModel:
    spec = make_spec("deepfm", embeddings=embeddings or {})
    return build_model(SCHEMA, spec, optimizers=make_optimizers("adam"), seed=seed, strategy=strategy)


def scrambled(model: RankingModel, *, seed: int = 0) -> dict[str, np.ndarray]:
    """Gives every weight and slot of a model numbers of its own, and returns them."""
    random = np.random.default_rng(seed)
    values = {name: random.normal(size=array.shape).astype(array.dtype) for name, array in state(model).items()}
    set_state(model, values)
    return values


def bits(arrays: dict[str, np.ndarray]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in arrays.items()}


def test_any_placement_and_replica_count_restores_any_other_bit_for_bit(strategies: Strategies, tmp_path: Path) -> None:
    # 1 -> 2 -> 4 -> 3 -> 1 replicas, and every placement from and to another.
    stops = [
        ("one_device", {}),
        ("mirrored", SHARDED),
        ("mirrored4", {"placement": "table_wise"}),
        ("mirrored3", MIXED),
        ("mirrored3", SHARDED),
        ("mirrored", {"placement": "mirrored"}),
        ("none", {}),
    ]
    models = [build(strategies[name], seed=i, embeddings=settings) for i, (name, settings) in enumerate(stops)]
    expected = bits(scrambled(models[0]))
    for number, (model, following) in enumerate(itertools.pairwise(models)):
        save_checkpoint(tmp_path / str(number), model, progress={"step": number})
        assert load_checkpoint(tmp_path / str(number), following) == {"step": number}
        assert bits(state(following)) == expected, stops[number + 1]


def test_all_copies_of_a_mirrored_table_are_restored(strategies: Strategies, tmp_path: Path) -> None:
    model = build(strategies["mirrored"], embeddings={"placement": "mirrored"})
    single = build(seed=2)
    scrambled(single)
    save_checkpoint(tmp_path / "a", single, progress={})
    load_checkpoint(tmp_path / "a", model)
    tables: Any = model.tables
    for (storage,) in tables._storages.values():
        first, second = storage.shards
        assert all((first[name].numpy() == second[name].numpy()).all() for name in first)


def test_shards_are_files_of_every_nth_row(strategies: Strategies, tmp_path: Path) -> None:
    model = build(strategies["mirrored"], embeddings=SHARDED)
    expected = scrambled(model)["item/embedding/weights"]
    save_checkpoint(tmp_path / "a", model, progress={})
    for first in (0, 1):
        rows = np.load(tmp_path / f"a/tables/item/embedding.weights.{first:012d}.2.npy", allow_pickle=False)
        np.testing.assert_array_equal(rows, expected[first::2])


def test_a_checkpoint_that_lacks_rows_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a", build(), progress={})
    path = tmp_path / "a/manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["files"]["tables/tag/embedding.weights.000000000000.npy"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(ArtefactError, match=r"0 of 7 rows of table 'tag' \(embedding, weights\)"):
        load_checkpoint(tmp_path / "a", build())


@pytest.mark.parametrize("step", [1, 2, 3, 5])
def test_files_without_a_wanted_row_are_told_apart(step: int) -> None:
    for a, b, n in itertools.product(range(4), range(4), range(12)):
        one, other = range(a, n, step), range(b, 12, 2)
        assert meets(one, [other]) or not set(one) & set(other)
    assert not meets(range(0, 10, 2), [range(1, 10, 4)])
    assert not meets(range(4), [range(4, 8)])


class Held:
    """Holds the writing of files until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from models import checkpoint_files, checkpoint_writer

        self.reached, self.go = threading.Event(), threading.Event()
        write = checkpoint_files.write_array

        def waiting(*arguments: Any, **keywords: Any) -> Any:
            self.reached.set()
            if not self.go.wait(30):
                raise TimeoutError("never let go")
            return write(*arguments, **keywords)

        monkeypatch.setattr(checkpoint_writer, "write_array", waiting)


def test_what_happens_after_a_save_is_not_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, model = Held(monkeypatch), build()
    expected = bits(scrambled(model, seed=1))
    writer = CheckpointWriter(model)
    writer.save(tmp_path / "a", progress={"step": 1})
    assert held.reached.wait(30)
    scrambled(model, seed=2)  # a step goes on while the checkpoint is being written
    assert latest_checkpoint(tmp_path) is None
    held.go.set()
    writer.wait()
    other = build(seed=3)
    load_checkpoint(tmp_path / "a", other)
    assert bits(state(other)) == expected


def test_a_failure_in_the_background_is_raised_by_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    writer = CheckpointWriter(build())
    with monkeypatch.context() as patched:
        patched.setattr("models.checkpoint_writer.write_array", full)
        writer.save(tmp_path / "1", progress={"step": 1})
        with pytest.raises(ArtefactError, match=r"checkpoint .*/1 cannot be written.*No space left"):
            writer.save(tmp_path / "2", progress={"step": 2})
    assert list(tmp_path.iterdir()) == []
    writer.save(tmp_path / "3", progress={"step": 3})
    writer.wait()
    assert latest_checkpoint(tmp_path) == tmp_path / "3"


def test_several_folders_get_the_same_and_then_is_called_last(tmp_path: Path) -> None:
    writer = CheckpointWriter(build())
    seen: list[Path | None] = []
    folders = [tmp_path / "best/7", tmp_path / "resume/7"]
    writer.save(folders, progress={"step": 7}, then=lambda: seen.extend(latest_checkpoint(f.parent) for f in folders))
    writer.wait()
    assert seen == folders
    one, two = (json.loads((folder / "manifest.json").read_text()) for folder in folders)
    assert one == two


def workers(count: int, *, timeout_s: float = 30.0) -> tuple[list[CheckpointWriter], list[RankingModel]]:
    """Returns writers that take themselves for the processes of one run, each with a model of the same weights."""
    models = [build() for _ in range(count)]
    writers = [CheckpointWriter(model, timeout_s=timeout_s) for model in models]
    for index, writer in enumerate(writers):
        scrambled(models[index])
        writer._process, writer._num_processes, writer.session = index, count, writers[0].session
    return writers, models


def outcomes(calls: list[Callable[[], None]]) -> list[Exception | None]:
    """Returns what each call raised, all run side by side."""
    found: list[Exception | None] = [None] * len(calls)

    def one(index: int) -> None:
        try:
            calls[index]()
        except Exception as error:
            found[index] = error

    threads = [threading.Thread(target=one, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def saves(writers: list[CheckpointWriter], folder: Path) -> list[Callable[[], None]]:
    return [functools.partial(writer.save, folder, progress={"step": 1}, background=False) for writer in writers]


def test_workers_share_the_writing_and_all_return_when_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.checkpoint_files._FILE_BYTES", 4 * 8 * 5)  # five rows of width 4
    writers, models = workers(3)
    shares: list[set[str]] = [{path for path, _, _ in writer._snapshot()} for writer in writers]
    assert all(shares)
    assert sum(map(len, shares)) == len(set().union(*shares))  # no file is written twice
    assert outcomes(saves(writers, tmp_path / "a")) == [None] * 3
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    other = build(seed=9)
    load_checkpoint(tmp_path / "a", other)
    assert largest_difference(state(other), state(models[0])) == 0.0


def test_a_worker_that_died_is_named_and_the_previous_checkpoint_stays(tmp_path: Path) -> None:
    writers, _ = workers(2, timeout_s=0.5)
    save_checkpoint(tmp_path / "1", build(), progress={"step": 1})
    (failure,) = outcomes(saves(writers[:1], tmp_path / "2"))  # worker 1 never comes
    assert isinstance(failure, ArtefactError)
    assert "worker 1 has not written its part in 0.5 s" in str(failure)
    assert latest_checkpoint(tmp_path) == tmp_path / "1"
    assert unfinished_checkpoints(tmp_path) == []


def test_what_fails_in_one_worker_fails_in_all_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from models import checkpoint_files, checkpoint_writer

    writers, _ = workers(2)
    write = checkpoint_files.write_array

    def full(folder: Path, path: str, *, values: np.ndarray) -> Any:
        if threading.current_thread().name == "1":
            raise OSError(28, "No space left on device")
        return write(folder, path, values=values)

    monkeypatch.setattr(checkpoint_writer, "write_array", full)
    calls = saves(writers, tmp_path / "a")

    def second() -> None:
        threading.current_thread().name = "1"
        calls[1]()

    first, other = outcomes([calls[0], second])
    assert "worker 1: [Errno 28] No space left" in str(first)
    assert "No space left" in str(other)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_left_is_seen_and_goes_with_the_next_pruning(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "1", build(), progress={"step": 1})
    for name in (".2.0badcafe.1.0.tmp", ".2.600dcafe.1.0.tmp"):
        (tmp_path / name).mkdir()
    assert latest_checkpoint(tmp_path) == tmp_path / "1"
    assert [path.name for path in unfinished_checkpoints(tmp_path)] == [".2.0badcafe.1.0.tmp", ".2.600dcafe.1.0.tmp"]
    prune_checkpoints(tmp_path, keep=1, spare="600dcafe")
    assert [path.name for path in unfinished_checkpoints(tmp_path)] == [".2.600dcafe.1.0.tmp"]


def test_damage_that_another_worker_found_is_refused_here_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path / "a", build(), progress={})
    model = build(seed=2)
    before = bits(state(model))
    monkeypatch.setattr("models.replicas.Replicas.told", lambda _self, own: [own, 0])
    with pytest.raises(CorruptError, match="worker 1 found a damaged file"):
        load_checkpoint(tmp_path / "a", model)
    assert bits(state(model)) == before

"""Embedding tables over real processes: equal to one device on the same global batches, whatever the layout."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models.checkpoint import latest_checkpoint, load_checkpoint, unfinished_checkpoints
from tests.models.cluster import Results, run_workers
from tests.models.samples import SCHEMA, Stepper, make_batch, state
from tests.models.worker import BATCH, batch_of, build

pytestmark = [pytest.mark.distributed]

Strategies = dict[str, tf.distribute.Strategy | None]
STEPS = 50
MIXED = {"tables": {"user": "mirrored", "item": "sharded", "tag": "table_wise"}}


def job(name: str, network: str, optimizer: str, **settings: Any) -> dict[str, Any]:
    embeddings = {"placement": "sharded", **settings.pop("embeddings", {})}
    return {
        "name": name,
        "network": network,
        "optimizer": optimizer,
        "steps": STEPS,
        "embeddings": embeddings,
        "score": False,
    } | settings


NARROW = {"exchange_dtype": "bfloat16"}
# Every placement, exchange, way to treat repeated rows and optimizer; batch norm and dropout see the whole batch.
JOBS = {
    one["name"]: one
    for one in (
        job("all_to_all", "deepfm", "adam", settings={"batch_norm": True, "dropout": 0.25}),
        job("repeated", "wide_deep", "ftrl", embeddings={"dedupe": "off"}),
        job("all_gather", "deepfm", "adagrad", embeddings={"exchange": "all_gather"}, score=True),
        job("table_wise", "dcn", "adagrad", embeddings={"placement": "table_wise"}),
        job("table_wise_all_gather", "dcn", "sgd", embeddings={"placement": "table_wise", "exchange": "all_gather"}),
        job("mixed", "deepfm", "adam", embeddings=MIXED, score=True),
        job("mixed_repeated", "dcn", "ftrl", embeddings={**MIXED, "dedupe": "off"}),
    )
}
NARROW_JOBS = [
    job("narrow_all_to_all", "deepfm", "adagrad", embeddings=NARROW, steps=20),
    job("narrow_all_gather", "deepfm", "adagrad", embeddings={**NARROW, "exchange": "all_gather"}, steps=20),
]


class Cluster:
    """What the processes of one run gave."""

    def __init__(self, results: list[dict[str, Results]], saved: Path) -> None:
        self.results, self.saved = results, saved

    def held(self, name: str) -> list[Results]:
        """Returns what each process holds after a job."""
        return [worker[name] for worker in self.results]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """All jobs on two processes; the first one leaves a checkpoint, which a last one goes on from."""
    folder = tmp_path_factory.mktemp("pair")
    saved = folder / "saved" / str(STEPS)
    jobs = [{**JOBS["all_to_all"], "save": str(saved)}, *list(JOBS.values())[1:], *NARROW_JOBS]
    again = {**JOBS["all_to_all"], "name": "restored", "load": str(saved), "steps": 0}
    return Cluster(run_workers(folder, [*jobs, again], workers=2, replicas_each=1), saved)


def trained(one: dict[str, Any], strategy: tf.distribute.Strategy | None) -> dict[str, np.ndarray]:
    """Returns the losses, scores and state of a job in this process."""
    stepper = Stepper(build(one, strategy))
    losses = np.array([stepper(batch_of(i)) for i in range(one["steps"])])
    scores = stepper.score(make_batch(BATCH, seed=99)) if one["score"] else np.zeros(0)
    return {"losses": losses, "scores": scores, **state(stepper.model)}


def whole(held: list[Results]) -> dict[str, np.ndarray]:
    """Returns the state of a model from what its processes hold; what several hold must be the same to the bit."""
    found: dict[str, np.ndarray] = {}
    for results in held:
        for name, values in results.items():
            if name == "bytes":
                continue
            known, ids = _rows_of(name, len(values))
            if ids is None:
                assert np.array_equal(found.setdefault(known, values), values), known
                continue
            into = found.setdefault(known, np.full((_num_rows(known), values.shape[1]), np.nan))
            seen = into[ids]
            assert (np.isnan(seen) | (seen == values)).all(), known
            into[ids] = values
    return found


def _rows_of(name: str, count: int) -> tuple[str, np.ndarray | None]:
    match = re.fullmatch(r"(.+)@(\d+):(\d+)", name)
    if match is None:
        return name, None
    return match[1], int(match[2]) + np.arange(count) * int(match[3])


def _num_rows(name: str) -> int:
    return next(table.num_rows for table in SCHEMA.tables if table.name == name.partition("/")[0])


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], *, within: float = 1e-9) -> None:
    """Losses, weights, statistics and slots agree; scores are float32."""
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        atol = max(within, 1e-6) if name == "scores" else within
        np.testing.assert_allclose(found[name], values, rtol=0, atol=atol, err_msg=name)


def assert_learned(losses: np.ndarray) -> None:
    assert len(losses) == STEPS
    assert losses[-5:].mean() < losses[:5].mean()


@pytest.mark.parametrize("name", JOBS)
def test_two_processes_give_losses_weights_and_slots_of_one_device(
    pair: Cluster, strategies: Strategies, name: str
) -> None:
    found = whole(pair.held(name))
    assert_learned(found["losses"])
    assert_same(found, trained(JOBS[name], strategies["one_device"]))


@pytest.mark.parametrize("narrow", NARROW_JOBS, ids=lambda one: str(one["name"]))
def test_a_narrow_exchange_between_processes_is_that_between_devices(
    pair: Cluster, strategies: Strategies, narrow: dict[str, Any]
) -> None:
    found = whole(pair.held(narrow["name"]))
    assert_same(found, trained(narrow, strategies["mirrored"]))
    exact = trained(narrow, strategies["one_device"])["losses"]
    assert 0 < np.abs(found["losses"] - exact).max() < 0.02


FEW = [
    job("all_to_all", "deepfm", "adam"),
    job("mixed_gathered", "dcn", "adagrad", embeddings={**MIXED, "exchange": "all_gather"}),
]


def test_three_processes_give_the_same(strategies: Strategies, tmp_path: Path) -> None:
    results = run_workers(tmp_path, FEW, workers=3, replicas_each=1)
    for one in FEW:
        held = [worker[one["name"]] for worker in results]
        assert_same(whole(held), trained(one, strategies["one_device"]))


def test_a_process_holds_its_share_of_the_bytes(pair: Cluster, strategies: Strategies) -> None:
    tables: Any = build(JOBS["all_to_all"], strategies["one_device"]).tables
    (one_device,) = tables.bytes_held()
    row = (4 + 1) * 3 * 8  # width 4 and 1, Adam's two slots, float64
    for held in pair.held("all_to_all"):
        (bytes_here,) = held["bytes"]
        assert abs(bytes_here - (one_device - row) / 2 - row) < row  # besides the row that padding goes to


def bits(arrays: dict[str, np.ndarray]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in arrays.items() if name not in ("losses", "scores")}


@pytest.mark.parametrize("strategy", ["one_device", "mirrored4", "mirrored3"])
def test_a_checkpoint_of_two_processes_is_restored_to_the_bit(
    pair: Cluster, strategies: Strategies, strategy: str
) -> None:
    model = build(JOBS["all_to_all"], strategies[strategy])
    assert load_checkpoint(pair.saved, model) == {"step": STEPS}
    assert bits(state(model)) == bits(whole(pair.held("all_to_all")))


def test_two_processes_restore_what_two_wrote_to_the_bit(pair: Cluster) -> None:
    assert bits(whole(pair.held("restored"))) == bits(whole(pair.held("all_to_all")))


def test_of_a_writer_killed_in_the_middle_no_more_is_seen_than_a_leftover(
    strategies: Strategies, tmp_path: Path
) -> None:
    first = {**job("first", "dcn", "adam"), "steps": 1, "save": str(tmp_path / "saved" / "1")}
    second = {**first, "name": "second", "save": str(tmp_path / "saved" / "2"), "die_after": 3}
    with pytest.raises(RuntimeError, match="worker 1 failed"):
        run_workers(tmp_path, [first, second], workers=2, replicas_each=1)
    (leftover,) = unfinished_checkpoints(tmp_path / "saved")
    assert leftover.name.startswith(".2.")
    assert len(list(leftover.rglob("*.npy"))) > 3
    assert latest_checkpoint(tmp_path / "saved") == tmp_path / "saved" / "1"
    model = build(first, strategies["mirrored3"])
    assert load_checkpoint(tmp_path / "saved" / "1", model) == {"step": 1}
    held = [dict(np.load(tmp_path / f"first-{i}.npz", allow_pickle=False)) for i in range(2)]
    assert bits(state(model)) == bits(whole(held))

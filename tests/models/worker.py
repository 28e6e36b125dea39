"""One worker of `cluster.run_workers`: trains small models under `multi_worker_mirrored` as its jobs say.

A job: name, network, optimizer, embeddings, steps, and perhaps `load` and `save`, folders of checkpoints, `die_after`,
the files of its checkpoint that worker 1 writes before it ends itself by SIGKILL, and settings of the network.
"""

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import preprocessing  # noqa: F401  isort: skip  selects Keras 2, before TensorFlow is imported
import numpy as np
import tensorflow as tf

from models import checkpoint_files, checkpoint_writer
from models.build import build_model
from models.checkpoint import load_checkpoint, save_checkpoint
from models.ranking_model import RankingModel
from pipeline.cluster import find_cluster
from pipeline.strategy import build_strategy
from pipeline.train_spec import StrategySpec
from tests.models.samples import SCHEMA, Batch, Stepper, make_batch, make_optimizers, make_spec

BATCH = 24  # of the 2, 3 and 4 replicas that the tests have
RATES = {"sgd": 0.5, "adagrad": 0.1, "adam": 0.01, "ftrl": 0.1}


def main() -> None:
    """Runs the jobs of worker `argv[2]` in the folder `argv[1]`."""
    folder, index = Path(sys.argv[1]), sys.argv[2]
    work = json.loads((folder / f"jobs-{index}.json").read_text())
    tf.config.experimental.enable_op_determinism()
    spec = StrategySpec(kind="multi_worker_mirrored", virtual_cpus=work["replicas"])
    strategy = build_strategy(spec, cluster=find_cluster(spec, os.environ))
    for job in work["jobs"]:
        started = time.monotonic()
        np.savez(folder / f"{job['name']}-{index}.npz", **run(job, strategy, index=int(index)))
        print(f"{job['name']}: {time.monotonic() - started:.1f} s", flush=True)


def build(job: Mapping[str, Any], strategy: tf.distribute.Strategy | None) -> RankingModel:
    """Returns the model of a job, which is the same under every strategy."""
    settings = {"hidden_units": (6,), "cross_layers": 1, **job.get("settings", {})}
    return build_model(
        SCHEMA,
        make_spec(job["network"], embeddings=job["embeddings"], **settings),
        optimizers=make_optimizers(job["optimizer"], learning_rate=RATES[job["optimizer"]]),
        seed=3,
        strategy=strategy,
    )


def batch_of(step: int) -> Batch:
    """Returns the global batch of a step, as every process makes it for itself."""
    return make_batch(BATCH - 4, seed=step, padded=4)


def run(job: dict[str, Any], strategy: tf.distribute.Strategy, *, index: int) -> dict[str, Any]:
    """Returns losses, ids out of range, scores, bytes held, and the held rows of each table."""
    model = build(job, strategy)
    tables: Any = model.tables
    stepper = Stepper(model)
    if "load" in job:
        stepper.step = load_checkpoint(Path(job["load"]), model)["step"]
    first = stepper.step
    losses = [stepper(batch_of(i)) for i in range(first, first + job["steps"])]
    if "die_after" in job and index == 1:
        _die_in_writing(job["die_after"])
    if "save" in job:
        save_checkpoint(Path(job["save"]), model, progress={"step": stepper.step})
    scores = stepper.score(make_batch(BATCH, seed=99)) if job["score"] else np.zeros(0)
    return {"losses": losses, "scores": scores, "bytes": tables.bytes_held(), **rows_held(model)}


def _die_in_writing(after_files: int) -> None:
    """Makes this process end itself by SIGKILL in the middle of the file that follows so many others."""
    write, written = checkpoint_files.write_array, itertools.count()

    def dying(folder: Path, path: str, *, values: Any) -> Any:
        if next(written) == after_files:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(values.tobytes()[: values.nbytes // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return write(folder, path, values=values)

    vars(checkpoint_writer)["write_array"] = dying


def rows_held(model: RankingModel) -> dict[str, Any]:
    """Returns `table/group/array/start:step` of every range of rows in this process, and the dense weights."""
    found: dict[str, Any] = {}
    for table in model.tables.plan.tables:
        for ids in model.tables.held_rows(table.name):
            for group in model.tables.groups:
                for array in model.tables.arrays(group):
                    rows = model.tables.read(table.name, group, array=array, ids=ids)
                    found[f"{table.name}/{group}/{array}@{ids.start}:{ids.step}"] = rows
    found |= {name: variable.numpy() for name, variable in model.dense_variables.items()}
    for slot, variables in model.dense_slots.items():
        found |= {f"{slot}/{name}": variable.numpy() for name, variable in variables.items()}
    return found


if __name__ == "__main__":
    main()

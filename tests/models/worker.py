"""One worker of `cluster.run_workers`: trains small models under MultiWorkerMirroredStrategy as its jobs say.

A job: name, network, optimizer, embeddings, steps, and perhaps `load` and `save`, folders of checkpoints.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from models.build import build_model
from models.checkpoint import load_checkpoint, save_checkpoint
from models.ranking_model import RankingModel
from tests.models.samples import SCHEMA, Stepper, make_batch, make_optimizers, make_spec

BATCH = 64


def main() -> None:
    """Runs the jobs of worker `argv[2]` in the folder `argv[1]`."""
    folder, index = Path(sys.argv[1]), sys.argv[2]
    work = json.loads((folder / f"jobs-{index}.json").read_text())
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * work["replicas"])
    tf.config.experimental.enable_op_determinism()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    for job in work["jobs"]:
        np.savez(folder / f"{job['name']}-{index}.npz", **run(job, strategy))


def run(job: dict[str, Any], strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """Returns losses, ids out of range, scores, bytes held, and the held rows of each table."""
    model = build_model(
        SCHEMA,
        make_spec(job["network"], batch_norm=True, dropout=0.25, embeddings=job["embeddings"]),
        optimizers=make_optimizers(job["optimizer"]),
        seed=3,
        strategy=strategy,
    )
    stepper = Stepper(model)
    if "load" in job:
        stepper.step = load_checkpoint(Path(job["load"]), model)["step"]
    first = stepper.step
    losses = [stepper(make_batch(BATCH - 4, seed=i, padded=4)) for i in range(first, first + job["steps"])]
    if "save" in job:
        save_checkpoint(Path(job["save"]), model, progress={"step": stepper.step})
    scores = stepper.score(make_batch(BATCH, seed=99))
    return {"losses": losses, "scores": scores, "bytes": model.tables.bytes_held(), **rows_held(model)}


def rows_held(model: RankingModel) -> dict[str, Any]:
    """Returns `table/group/array/start:step` of every range of rows in this process, and the dense weights."""
    found: dict[str, Any] = {}
    for table in model.tables.plan.tables:
        for ids in model.tables.held_rows(table.name):
            for group in model.tables.groups:
                for array in model.tables.arrays(group):
                    rows = model.tables.read(table.name, group, array=array, ids=ids)
                    found[f"{table.name}/{group}/{array}@{ids.start}:{ids.step}"] = rows
    return found | {name: variable.numpy() for name, variable in model.dense_variables.items()}


if __name__ == "__main__":
    main()

"""FuxiCTR as a side of the training benchmark: its layers and its training step, on batches that lie in memory.

python -m tests.benchmarks.train_torch_side deepfm|wide_deep BATCHES.npz

In its favour, no records are read and nothing is shuffled in the measured time. The released package has no DeepFM
class: it is put together here from the package's own embedding, FM, linear and MLP layers.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from typing import Any

import numpy as np

from tests.benchmarks.measure import print_result

BATCH = 4096
WIDTH = 16
HIDDEN = [400, 400, 400]
WARM_STEPS = 16


def build(kind: str, feature_map: Any, num_inputs: int) -> Any:
    """Returns the model, compiled with Adam."""
    from fuxictr.pytorch.layers import FactorizationMachine, FeatureEmbedding, LogisticRegression, MLP_Block
    from fuxictr.pytorch.models import BaseModel

    class Model(BaseModel):
        def __init__(self) -> None:
            super().__init__(feature_map, verbose=0, model_root=tempfile.gettempdir(), metrics=["AUC"])
            self.vectors = FeatureEmbedding(feature_map, WIDTH)
            self.shallow = FactorizationMachine(feature_map) if kind == "deepfm" else LogisticRegression(feature_map)
            self.mlp = MLP_Block(num_inputs * WIDTH, hidden_units=HIDDEN, output_dim=1)
            self.compile("adam", "binary_crossentropy", 0.001)
            self.reset_parameters()

        def forward(self, inputs: Any) -> dict[str, Any]:
            features = self.get_inputs(inputs)
            vectors = self.vectors(features)
            shallow = self.shallow(features, vectors) if kind == "deepfm" else self.shallow(features)
            return {"y_pred": self.output_activation(shallow + self.mlp(vectors.flatten(start_dim=1)))}

    return Model()


def feature_map_of(num_rows: list[int], num_numbers: int) -> Any:
    """Returns FuxiCTR's description of the fields c0, c1 ... and the numbers n0, n1 ..."""
    from fuxictr.features import FeatureMap

    found = FeatureMap("wide", tempfile.gettempdir())
    for i, rows in enumerate(num_rows):
        found.features[f"c{i}"] = {"source": "", "type": "categorical", "vocab_size": rows}
    for i in range(num_numbers):
        found.features[f"n{i}"] = {"source": "", "type": "numeric"}
    found.labels, found.num_fields = ["label"], len(found.features)
    return found


def batches_of(data: Any, split: str) -> list[dict[str, Any]]:
    """Returns the batches of a split as FuxiCTR's loaders give them: a tensor for each field."""
    import torch

    ids, dense, labels = (torch.from_numpy(data[f"{split}_{name}"]) for name in ("ids", "dense", "labels"))
    found = []
    for start in range(0, len(ids), BATCH):
        rows = slice(start, start + BATCH)
        batch = {f"c{i}": ids[rows, i].contiguous() for i in range(ids.shape[1])}
        batch |= {f"n{i}": dense[rows, i].contiguous() for i in range(dense.shape[1])}
        found.append({**batch, "label": labels[rows, 0]})
    return found


def measure(kind: str, path: str) -> dict[str, Any]:
    """Trains one epoch and scores the test split."""
    import torch
    from sklearn.metrics import roc_auc_score

    torch.manual_seed(1)
    data = np.load(path)
    num_rows, num_numbers = data["num_rows"].tolist(), data["train_dense"].shape[1]
    model = build(kind, feature_map_of(num_rows, num_numbers), len(num_rows) + num_numbers)
    batches = batches_of(data, "train")
    model.train()
    model._max_gradient_norm = 10.0  # what its `fit` sets
    for batch in batches[:WARM_STEPS]:
        model.train_step(batch)
    cpu, wall = time.process_time(), time.perf_counter()
    for batch in batches[WARM_STEPS:]:
        model.train_step(batch).item()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    rows = sum(len(batch["label"]) for batch in batches[WARM_STEPS:])
    scores = model.predict(batches_of(data, "test"))
    auc = float(roc_auc_score(data["test_labels"][:, 0], scores))
    return {"rows": rows, "rows_per_cpu_s": rows / cpu, "rows_per_s": rows / wall, "test_auc": auc}


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait must not count as work
    print_result(measure(sys.argv[1], sys.argv[2]))

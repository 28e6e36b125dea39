"""Embedding tables, layers, networks, optimizers and checkpoints. Needs `preprocessing`, is needed by `serving`.

Its modules: `config` (how a model is built and optimised), `placement` (which table rows live where, pure
arithmetic), `initial_rows`, `replicas`, `lookup`, `tables`, `update_rules`, `sparse_optimizers`,
`dense_optimizer` (state and its updates), `mode`, `weights`, `layers`, `batch_norm`, `dropout`, `interactions`,
`deepfm`, `wide_deep`, `dcn` (the networks and their parts), `loss`, `ranking_model`, `build` (the whole), and
`checkpoint`.
"""

import preprocessing as _preprocessing  # noqa: F401  selects Keras 2 before TensorFlow is imported

__all__ = [
    "batch_norm",
    "build",
    "checkpoint",
    "config",
    "dcn",
    "deepfm",
    "dense_optimizer",
    "dropout",
    "initial_rows",
    "interactions",
    "layers",
    "lookup",
    "loss",
    "mode",
    "placement",
    "ranking_model",
    "replicas",
    "sparse_optimizers",
    "tables",
    "update_rules",
    "weights",
    "wide_deep",
]

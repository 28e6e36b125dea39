"""Embedding tables, layers, networks, optimizers and checkpoints. Needs `preprocessing`, is needed by `serving`.

Its modules: `config` (how a model is built and optimised); `embedding_plan`, `placement` and `plan_figures` (which
table rows live where and what that costs, pure arithmetic); `initial_rows`, `replicas`, `exchange`, `routes` (how
rows come to who looks them up), `lookup`, `tables`; `update_rules`, `sparse_optimizers`, `dense_optimizer` (state
and its updates), `mode`, `weights`, `layers`, `attention`, `position`, `batch_norm`, `dropout`, `interactions`,
`deepfm`, `wide_deep`, `dcn`, `dlrm`, `own_network` (the networks and their parts), `loss`, `ranking_model`, `build`
(the whole), and `checkpoint` with `checkpoint_files`, `checkpoint_identity` and `checkpoint_writer`.
"""

import preprocessing as _preprocessing  # noqa: F401  selects Keras 2 before TensorFlow is imported

__all__ = [
    "attention",
    "batch_norm",
    "build",
    "checkpoint",
    "checkpoint_files",
    "checkpoint_identity",
    "checkpoint_writer",
    "config",
    "dcn",
    "deepfm",
    "dense_optimizer",
    "dlrm",
    "dropout",
    "embedding_plan",
    "exchange",
    "initial_rows",
    "interactions",
    "layers",
    "lookup",
    "loss",
    "mode",
    "own_network",
    "placement",
    "plan_figures",
    "position",
    "ranking_model",
    "replicas",
    "routes",
    "sparse_optimizers",
    "tables",
    "update_rules",
    "weights",
    "wide_deep",
]

"""From a trained model to answers: SavedModel export, version store, TF Serving, clients.

Its modules: `export` (the SavedModel with the transform inside), `version_store` (numbered versions that appear by
rename only, with `version_files`, `history`, `pins`, `retention` and `preflight`), `labels` and `lifecycle` over
`rollout` (which versions servers serve: `models_config`), `sync` (a copy of a store on object storage), `launch` (the
real server if there is one, else ours), `client` and `client_async` with `client_grpc`, `client_rest` and `rows` (rows
in, scores out), `request_log`, `shadow` and `monitor` (what was asked, replayed and watched), `loadtest` and
`server` (the embedded TF-Serving-compatible server).
"""

# Selects Keras 2 before any module of this package imports TensorFlow.
import preprocessing as _preprocessing  # noqa: F401

__all__ = [
    "client",
    "client_async",
    "client_grpc",
    "client_rest",
    "export",
    "labels",
    "launch",
    "lifecycle",
    "loadtest",
    "monitor",
    "request_log",
    "rows",
    "server",
    "shadow",
    "sync",
    "version_store",
]

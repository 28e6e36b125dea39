"""From a trained model to answers: SavedModel export, version store, TF Serving, clients.

Its modules: `export` (the SavedModel with the transform inside), `version_store` (numbered versions that appear by
rename only), `launch` (the real server if there is one, else ours), `client` with `client_grpc`, `client_rest` and
`rows` (rows in, scores out) and `server` (the embedded TF-Serving-compatible server).
"""

# Selects Keras 2 before any module of this package imports TensorFlow.
import preprocessing as _preprocessing  # noqa: F401

__all__ = ["client", "client_grpc", "client_rest", "export", "launch", "rows", "server", "version_store"]

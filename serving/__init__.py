"""From a trained model to answers: SavedModel export, version store, TF Serving, clients.

Its modules: `export` (the SavedModel with the transform inside), `warmup` (records that a server runs before it
answers), `version_store` (numbered versions that appear by rename only), `launch` (the real server if there is one,
else ours), `client` (rows in, scores out, over gRPC or REST) and `server` (the embedded TF-Serving-compatible server).
"""

# Selects Keras 2 before any module of this package imports TensorFlow.
import preprocessing as _preprocessing  # noqa: F401

__all__ = ["client", "export", "launch", "server", "version_store", "warmup"]

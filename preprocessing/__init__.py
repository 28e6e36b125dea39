"""Raw behaviour logs to labelled examples to TFRecords. This package owns the data contract.

Its modules: `errors` (the exception tree), `spec` (what a user declares about logs and features),
`schema` (what a dataset says of itself), `manifest` (artefacts that finish last), `sources`, `cleaning`,
`columnar`, `labels`, `splits` (plain functions on Arrow data), `analysis`, `vocabulary`, `transform`, `examples`
(from columns to records), `job` (the Beam pipelines) and `simulate` (shop logs with a known truth).

Importing it selects Keras 2, which multi-worker and parameter-server training need, for the whole process.
"""

import os as _os
import sys as _sys

__all__ = [
    "analysis",
    "cleaning",
    "columnar",
    "errors",
    "examples",
    "job",
    "labels",
    "manifest",
    "schema",
    "simulate",
    "sources",
    "spec",
    "splits",
    "transform",
    "vocabulary",
]

if "keras" in _sys.modules and _os.environ.get("TF_USE_LEGACY_KERAS") not in {"1", "true", "True"}:
    raise ImportError(
        "Keras 3 is already imported in this process, and Rankmill needs Keras 2 (tf_keras). "
        "Import rankmill's packages before keras, or set TF_USE_LEGACY_KERAS=1 in the environment."
    )
_os.environ["TF_USE_LEGACY_KERAS"] = "1"

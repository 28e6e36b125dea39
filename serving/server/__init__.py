"""An embedded server that speaks TF Serving's protocols: `python -m serving.server --model_base_path=DIR ...`.

`__main__` reads the command line, `run` starts and stops everything.
How a request becomes an answer: `grpc_service` or `rest_app` + `rest_api` receive it, `handlers` finds the version
in `model_manager`; `predict`, `inference`, `json_predict` or `json_examples` turn it into arrays, `batching` may join
it with others (`batching_parameters` say when, `batch_merge` joins arrays), `servable` runs them in a session
(`timed_run` under a deadline) or in `tflite` interpreters.
How a version comes: `discovery`, `versions` and `labels` say which one is served, as plain functions; `load` loads
it as `load_settings` say, `warmup` runs its first requests, `reload` brings new configs while the server runs.
Around that: `flags`, `config_files` and `config_protos` (what the operator says), `signature`, `tensors`,
`json_tensors` and `json_body` (conversions), `metrics`, `health` and `profiler` (what watches the server),
`session_options`, and `status` (codes shared by both surfaces).
"""

__all__ = [
    "batch_merge",
    "batching",
    "batching_parameters",
    "config_files",
    "config_protos",
    "discovery",
    "flags",
    "grpc_service",
    "handlers",
    "health",
    "inference",
    "json_body",
    "json_examples",
    "json_predict",
    "json_tensors",
    "labels",
    "load",
    "load_settings",
    "metrics",
    "model_manager",
    "predict",
    "profiler",
    "reload",
    "rest_api",
    "rest_app",
    "run",
    "servable",
    "session_options",
    "signature",
    "status",
    "tensors",
    "tflite",
    "timed_run",
    "versions",
    "warmup",
]

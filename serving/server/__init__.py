"""An embedded server that speaks TF Serving's protocols: `python -m serving.server --model_base_path=DIR ...`.

`__main__` reads the command line, `run` starts and stops everything.
How a request becomes an answer: `grpc_service` or `rest_app` + `rest_api` receive it, `handlers` finds the version
in `model_manager`, `predict` or `json_predict` turns it into arrays, `servable` runs them in a session.
Around that: `flags` and `config_files` (what the operator says), `discovery`, `versions` and `labels` (which version
is served, as plain functions), `signature`, `tensors`, `json_tensors` and `json_body` (conversions), `metrics`,
`session_options` and `status` (codes shared by both surfaces).
"""

__all__ = [
    "config_files",
    "discovery",
    "flags",
    "grpc_service",
    "handlers",
    "metrics",
    "model_manager",
    "rest_api",
    "rest_app",
    "servable",
    "signature",
    "status",
    "tensors",
]

"""Raw behaviour logs to labelled examples to TFRecords. This package owns the data contract.

The contract: `errors`, `spec` (what a user declares), `schema` and `dataset` (what a dataset says of itself),
`manifest` (artefacts that finish last), `vocabulary` (the id layout).

Files to rows: `sources` over `matching`, `partitions`, `formats`, `compression`, `encodings`, `file_access`,
`remote_files`, `fingerprints`, `text_splits`, `blocks`, `lines`; `read_csv` over `csv_header`, `csv_records`;
`read_jsonl` over `json_schema`, `json_values`; `read_parquet` over `parquet_columns`; `nested`, `estimates`;
`cleaning` over `coercion`, `explode`, `plain_arrays`, `number_text`, `timestamps`, `value_range`, `list_cells`;
`reasons` (the rules for dirt). Rows to labelled rows: `columnar` over
`dictionaries`, `hashing`; `labels`, `attribution`, `visibility`, `splits`, `periods`, `negative_sampling`,
`asof`, `joining`; `point_in_time` over `entity_log`, `entity_state`, `entity_keys`, `counters`, `history`,
`keyed_times`.
Labelled rows to records: `analysis` over `analysis_state`, `token_counts`, `moments`, `histogram`;
`transform_plan`, `transform`, `feature_graphs`, `time_zones`, `vocabulary_table`, `string_tensor`;
`raw_values`, `encode`, `examples` over `record_bytes`, `record_layout` and `crc32c`; `row_files`.

What the rows look like: `profile` over `token_sketch`, `profile_state`; `drift` over `number_counts`; `data_checks`,
`shown_text`.

The Beam graphs: `runner`, `shuffle`, `job_folder`; `ingest` (files), `days_job` (labelled periods) with `day_plan` and
`day_rows` over `inventory`, `derive_job` (point-in-time columns) with `derive_plan`, brought together by
`example_days` and `examples_summary`; `dataset_job` with `vocabulary_chain`; `profile_job`.
Logs with a known truth: `simulate` over `simulate_shop`, `simulate_truth`, `simulate_day`, `simulate_logs`.

Importing it selects Keras 2, which multi-worker and parameter-server training need, for the whole process.
"""

import os as _os
import sys as _sys

__all__ = [
    "cleaning",
    "columnar",
    "dataset",
    "dataset_job",
    "encode",
    "errors",
    "example_days",
    "examples",
    "joining",
    "labels",
    "manifest",
    "schema",
    "simulate",
    "sources",
    "spec",
    "splits",
    "transform",
    "transform_plan",
    "vocabulary",
]

if "keras" in _sys.modules and _os.environ.get("TF_USE_LEGACY_KERAS") not in {"1", "true", "True"}:
    raise ImportError(
        "Keras 3 is already imported in this process, and Rankmill needs Keras 2 (tf_keras). "
        "Import rankmill's packages before keras, or set TF_USE_LEGACY_KERAS=1 in the environment."
    )
_os.environ["TF_USE_LEGACY_KERAS"] = "1"

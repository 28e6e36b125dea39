"""From a config file to a served model: config, stages, trainer, evaluation, gate, command line.

Its modules: `config` and `config_checks` (the YAML file; rules of each part in `config_columns`, `source_checks`,
`label_checks`, `derived_checks`, `feature_checks`), `line` (all stages in order), `stages` (what each makes),
`artefacts` (made once, finished last), `runs` (the run folder), `trainer` and what it rests on (`epochs`, `records`,
`strategy`, `step_plan`, `train_step`, `learning_rate`, `train_state`, `run_folder`), `scoring` and `metrics` (the
exported model judged on raw rows), `gate`, `serve`, `display` and `__main__` (the command line). The data report:
`data_report` over `column_figures`, shown by `report_page` with `report_plots`, and by `data_summary`.
"""

import preprocessing as _preprocessing  # noqa: F401  selects Keras 2 before TensorFlow is imported

__all__ = [
    "artefacts",
    "config",
    "config_checks",
    "data_report",
    "display",
    "epochs",
    "gate",
    "line",
    "metrics",
    "records",
    "runs",
    "scoring",
    "serve",
    "stages",
    "strategy",
    "train_spec",
    "trainer",
]

"""Text protos of the operator."""

from pathlib import Path
from typing import Any

import pytest

from preprocessing.errors import ConfigError
from serving.server.config_files import parse_model_config_file, prometheus_path
from serving.server.discovery import ModelConfig, Policy
from serving.server.flags import FlagError, parse
from serving.server.session_options import session_config
from serving.server.status import Code, StatusError


def _write(tmp_path: Any, text: Any) -> Any:
    path = tmp_path / "file.config"
    path.write_text(text)
    return path


def test_reads_models_policies_and_labels(tmp_path: Any) -> None:
    path = _write(
        tmp_path,
        """
        model_config_list {
          config { name: "a" base_path: "/m/a" model_platform: "tensorflow"
                   model_version_policy { latest { num_versions: 2 } } }
          config { name: "b" base_path: "/m/b" model_platform: "tensorflow"
                   model_version_policy { specific { versions: 41 versions: 42 } }
                   version_labels { key: "stable" value: 41 } }
          config { name: "c" base_path: "/m/c" model_platform: "tensorflow" model_version_policy { all {} } }
          config { name: "d" base_path: "/m/d" model_platform: "tensorflow" }
        }""",
    )
    assert parse_model_config_file(path) == [
        ModelConfig("a", Path("/m/a"), policy=Policy("latest", num_versions=2)),
        ModelConfig("b", Path("/m/b"), policy=Policy("specific", versions=(41, 42)), labels={"stable": 41}),
        ModelConfig("c", Path("/m/c"), policy=Policy("all")),
        ModelConfig("d", Path("/m/d")),
    ]
    assert parse_model_config_file(_write(tmp_path, "model_config_list {}")) == []


def test_an_empty_config_is_refused_and_a_wrong_one_names_line_and_column(tmp_path: Any) -> None:
    with pytest.raises(StatusError) as caught:
        parse_model_config_file(_write(tmp_path, ""))
    assert caught.value.code is Code.INVALID_ARGUMENT
    with pytest.raises(ConfigError, match=r"Error parsing text-format tensorflow.serving.ModelServerConfig.*2:1"):
        parse_model_config_file(_write(tmp_path, "model_config_list {}\nnonsense: 1"))
    with pytest.raises(ConfigError, match="absent"):
        parse_model_config_file(tmp_path / "absent")


def test_prometheus_is_off_unless_enabled(tmp_path: Any) -> None:
    assert prometheus_path(_write(tmp_path, "")) is None
    assert prometheus_path(_write(tmp_path, 'prometheus_config { path: "/x" }')) is None
    assert prometheus_path(_write(tmp_path, "prometheus_config { enable: true }")) == "/monitoring/prometheus/metrics"
    assert prometheus_path(_write(tmp_path, 'prometheus_config { enable: true path: "/x" }')) == "/x"


def _threads(*arguments: Any) -> Any:
    config = session_config(parse(arguments)[0])
    return config.intra_op_parallelism_threads, config.inter_op_parallelism_threads


def test_thread_flags_set_the_session(tmp_path: Any) -> None:
    assert _threads() == (1, 1)
    assert _threads("--tensorflow_session_parallelism=3") == (3, 3)
    assert _threads("--tensorflow_session_parallelism=3", "--tensorflow_intra_op_parallelism=2") == (2, 1)
    with pytest.raises(FlagError):
        _threads(
            "--tensorflow_session_parallelism=3",
            "--tensorflow_intra_op_parallelism=2",
            "--tensorflow_inter_op_parallelism=2",
        )
    wrong = _write(tmp_path, "nonsense: 1")
    with pytest.raises(FlagError, match="session_config_file"):
        _threads(f"--tensorflow_session_config_file={wrong}")

"""What a platform file says takes the place of the flags."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from preprocessing.errors import ConfigError
from serving.server.flags import parse
from serving.server.load import Loader
from serving.server.load_settings import load_settings
from serving.server.metrics import Metrics

_TYPE = "type.googleapis.com/tensorflow.serving.SavedModelBundleSourceAdapterConfig"
_INNER = """
  session_config { intra_op_parallelism_threads: 3 allow_soft_placement: true }
  batching_parameters { max_batch_size { value: 64 } num_batch_threads { value: 1 } }
  saved_model_tags: "serve"
  enable_model_warmup: true
  model_warmup_options { num_request_iterations { value: 4 } num_model_warmup_threads { value: 2 } }
"""


def _platform(inner: str, key: str = "tensorflow") -> str:
    any_text = f"[{_TYPE}] {{ legacy_config {{ {inner} }} }}"
    return f'platform_configs {{ key: "{key}" value {{ source_adapter_config {{ {any_text} }} }} }}'


def _write(tmp_path: Path, text: str) -> Any:
    (tmp_path / "platform").write_text(text)
    flags = [f"--platform_config_file={tmp_path / 'platform'}", "--enable_batching", "--saved_model_tags=other"]
    return parse([*flags, "--tensorflow_intra_op_parallelism=7"])[0]


def test_a_platform_file_replaces_session_and_batching_flags(tmp_path: Path) -> None:
    settings = load_settings(_write(tmp_path, _platform(_INNER)))
    assert settings.session_config.intra_op_parallelism_threads == 3
    assert settings.batching is not None
    assert (settings.batching.max_batch_size, settings.batching.num_batch_threads) == (64, 1)
    assert (settings.tags, settings.warm_up, settings.num_warmup_iterations) == (("serve",), True, 4)
    bare = load_settings(_write(tmp_path, _platform("")))
    assert (bare.batching, bare.tags, bare.warm_up, bare.num_warmup_iterations) == (None, ("serve",), False, 1)


def test_models_are_loaded_by_it(tmp_path: Path, half_plus: Any) -> None:
    metrics = Metrics()
    loader = Loader(_write(tmp_path, _platform(_INNER)), metrics)
    servable = loader.load("half", 1, half_plus(2))
    assert servable.run("serving_default", {"x": np.array([2.0], np.float32)})["y"].tolist() == [3.0]
    # It went through a batch.
    assert metrics.total("/tensorflow/serving/batching_session/wrapped_run_count") == 1
    servable.close()
    loader.close()


@pytest.mark.parametrize("text", ["platform_configs {", "", _platform("", "other"), _platform("no_such_field: 1")])
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        load_settings(_write(tmp_path, text))

"""Versions that are damaged in every way are never served; the one before stays, and the log says why."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow.core.protobuf import saved_model_pb2

from serving.server.discovery import ModelConfig
from serving.server.flags import parse
from serving.server.load import Loader
from serving.server.metrics import Metrics
from serving.server.model_manager import LoadOptions, ModelManager
from serving.server.status import StatusError
from serving.server.versions import State

_GRAPH = "saved_model.pb"


def _rewrite_signature(version: Path, **changes: Any) -> None:
    model = saved_model_pb2.SavedModel.FromString((version / _GRAPH).read_bytes())
    info = model.meta_graphs[0].signature_def["serving_default"].inputs["x"]
    for field, value in changes.items():
        setattr(info, field, value)
    (version / _GRAPH).write_bytes(model.SerializeToString())


def _cut(path: Path, share: float) -> None:
    body = path.read_bytes()
    path.write_bytes(body[: int(len(body) * share)])


def _flip(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[len(body) // 2 :] = bytes(byte ^ 0xFF for byte in body[len(body) // 2 :])
    path.write_bytes(bytes(body))


def _replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _replace_by_file(version: Path) -> None:
    shutil.rmtree(version)
    version.write_bytes(b"no folder")


def _empty(version: Path) -> None:
    shutil.rmtree(version)
    version.mkdir()


def _replace_by_link(version: Path) -> None:
    shutil.rmtree(version)
    version.symlink_to(version / "nowhere")


def _add_bad_warmup(version: Path) -> None:
    (version / "assets.extra").mkdir()
    (version / "assets.extra" / "tf_serving_warmup_requests").write_bytes(b"some text that is not a TFRecord at all")


_DATA = "variables/variables.data-00000-of-00001"
_DAMAGES: dict[str, Callable[[Path], Any]] = {
    "an empty folder": _empty,
    "a file in place of the folder": _replace_by_file,
    "a link to nowhere": _replace_by_link,
    "no graph": lambda v: (v / _GRAPH).unlink(),
    "an empty graph": lambda v: (v / _GRAPH).write_bytes(b""),
    "half a graph": lambda v: _cut(v / _GRAPH, 0.5),
    "most of a graph": lambda v: _cut(v / _GRAPH, 0.98),
    "a damaged graph": lambda v: _flip(v / _GRAPH),
    "a graph that cannot be read": lambda v: _replace_by_folder(v / _GRAPH),
    "no variables": lambda v: shutil.rmtree(v / "variables"),
    "no index of variables": lambda v: (v / "variables/variables.index").unlink(),
    "half an index of variables": lambda v: _cut(v / "variables/variables.index", 0.5),
    "no data of variables": lambda v: (v / _DATA).unlink(),
    "half the data of variables": lambda v: _cut(v / _DATA, 0.02),
    "damaged data of variables": lambda v: _flip(v / _DATA),
    "data that cannot be read": lambda v: _replace_by_folder(v / _DATA),
    "a signature of a tensor that is not there": lambda v: _rewrite_signature(v, name="nowhere:0"),
    "a signature of another type": lambda v: _rewrite_signature(v, dtype=9),
    "a warm-up file that is none": _add_bad_warmup,
}


def _wait_until_ended(manager: Any, version: int) -> StatusError | None:
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        for status in manager.statuses("half"):
            if status.version == version and status.state is State.END:
                error: StatusError | None = status.error
                return error
        time.sleep(0.02)
    raise TimeoutError(f"version {version} did not end")


def test_no_damaged_version_is_served_and_the_log_says_why(half_plus: Any, tmp_path: Path, caplog: Any) -> None:
    base = tmp_path / "half"
    shutil.copytree(half_plus(2), base / "1")
    loader = Loader(parse([])[0], Metrics())
    options = LoadOptions(poll_wait_s=0.05, max_num_load_retries=0, load_retry_interval_s=0.0)
    manager = ModelManager(loader.load, options)
    manager.start([ModelConfig("half", base)])
    try:
        for version, (name, damage) in enumerate(_DAMAGES.items(), start=2):
            shutil.copytree(half_plus(3), tmp_path / "copy")
            damage(tmp_path / "copy")
            (tmp_path / "copy").rename(base / str(version))
            assert _wait_until_ended(manager, version) is not None, name
            assert f"model half version {version}: load attempt 1 failed" in caplog.text, name
            with manager.acquire("half") as (servable, serving):
                outputs = servable.run("serving_default", {"x": np.array([2.0], np.float32)})
            assert (serving, outputs["y"].tolist()) == (1, [3.0]), name
        shutil.copytree(half_plus(3), tmp_path / "good")
        (tmp_path / "good").rename(base / "100")
        deadline_s = time.monotonic() + 60
        while manager.statuses("half", version=1)[0].state is not State.END:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        with manager.acquire("half") as (_, serving):
            assert serving == 100
    finally:
        manager.stop()
        loader.close()


def test_a_version_whose_files_come_late_is_served_once_they_are_there(half_plus: Any, tmp_path: Path) -> None:
    base = tmp_path / "half"
    shutil.copytree(half_plus(2), base / "1")
    loader = Loader(parse([])[0], Metrics())
    options = LoadOptions(poll_wait_s=0.05, max_num_load_retries=1000, load_retry_interval_s=0.05)
    manager = ModelManager(loader.load, options)
    manager.start([ModelConfig("half", base)])
    try:
        (base / "2").mkdir()
        # In the order of the worst copy: the graph is there while its variables are not.
        shutil.copy(half_plus(3) / _GRAPH, base / "2" / _GRAPH)
        time.sleep(0.5)
        with manager.acquire("half") as (_, serving):
            assert serving == 1
        shutil.copytree(half_plus(3) / "variables", tmp_path / "variables")
        (tmp_path / "variables").rename(base / "2" / "variables")
        deadline_s = time.monotonic() + 60
        while manager.statuses("half")[0].state is not State.AVAILABLE:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
    finally:
        manager.stop()
        loader.close()


@pytest.mark.parametrize("field", [{"name": "nowhere:0"}, {"dtype": 9}])
def test_the_error_names_the_signature(half_plus: Any, tmp_path: Path, field: Any) -> None:
    shutil.copytree(half_plus(2), tmp_path / "1")
    _rewrite_signature(tmp_path / "1", **field)
    loader = Loader(parse([])[0], Metrics())
    with pytest.raises(StatusError, match='signature "serving_default"'):
        loader.load("half", 1, tmp_path / "1")

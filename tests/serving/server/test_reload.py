"""New configs while the server runs, with a loader that needs no TensorFlow model."""

import time
from typing import Any

import pytest
from tensorflow_serving.apis import model_management_pb2

from serving.server.discovery import ModelConfig, Policy
from serving.server.handlers import Handlers
from serving.server.metrics import Metrics
from serving.server.model_manager import LoadOptions, ModelManager
from serving.server.reload import ConfigFilePoller
from serving.server.status import Code, StatusError
from serving.server.versions import State

_OPTIONS = LoadOptions(poll_wait_s=0.02, max_num_load_retries=0, load_retry_interval_s=0)


class _Model:
    def close(self) -> None:
        pass


class _Models:
    """A manager over base paths a, b, ... of one folder; a version with a file "broken" does not load."""

    def __init__(self, root: Any, **options: Any) -> None:
        self.root, self.metrics = root, Metrics()
        self.manager = ModelManager(self._load, LoadOptions(**{**vars(_OPTIONS), **options}))
        self.handlers = Handlers(self.manager, self.metrics)

    def _load(self, _name: Any, _number: Any, path: Any) -> Any:
        self.metrics.count_request("loads", Code.OK)
        if (path / "broken").exists():
            raise StatusError(Code.DATA_LOSS, "it is broken")
        return _Model()

    def add(self, name: Any, *versions: Any, broken: bool = False) -> Any:
        for version in versions:
            (self.root / name / str(version)).mkdir(parents=True)
            if broken:
                (self.root / name / str(version) / "broken").touch()

    def config(self, name: Any, **changes: Any) -> Any:
        return ModelConfig(name, self.root / name, **changes)

    def reload(self, *models: Any, metric_names: Any = ()) -> Any:
        """Sends HandleReloadConfigRequest for models given as text protos without name and path."""
        request = model_management_pb2.ReloadConfigRequest(metric_names=metric_names)
        request.config.model_config_list.SetInParent()
        for name, labels, versions in models:
            model = request.config.model_config_list.config.add(
                name=name, base_path=str(self.root / name), model_platform="tensorflow", version_labels=labels
            )
            model.model_version_policy.specific.versions.extend(versions)
        return self.handlers.reload_config(request)

    def version(self, name: Any, label: Any = None) -> Any:
        with self.manager.acquire(name, label=label) as (_, number):
            return number

    def states(self, name: Any) -> Any:
        return {status.version: status.state for status in self.manager.statuses(name)}


@pytest.fixture
def models(tmp_path: Any) -> Any:
    made = _Models(tmp_path)
    made.add("a", 1, 2)
    made.manager.start([made.config("a", policy=Policy("all"))])
    _wait(lambda: set(made.states("a").values()) == {State.AVAILABLE})
    yield made
    made.manager.stop()


def _wait(condition: Any, timeout_s: Any = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the state did not come")
        time.sleep(0.005)


def _is_available(models: Any, name: Any) -> bool:
    try:
        return bool(models.version(name))
    except StatusError:
        return False


def _code(call: Any, *arguments: Any) -> Any:
    with pytest.raises(StatusError) as caught:
        call(*arguments)
    return caught.value.code


def test_a_reload_waits_for_new_models_and_unloads_those_left_out(models: Any) -> None:
    models.add("b", 5)
    response = models.reload(("b", {}, [5]))
    assert (response.HasField("status"), response.status.error_code) == (True, 0)
    assert models.version("b") == 5
    _wait(lambda: set(models.states("a").values()) == {State.END})


def test_a_reload_does_not_wait_for_new_versions_of_known_models(models: Any) -> None:
    start_s = time.monotonic()
    models.reload(("a", {}, [9]))
    assert time.monotonic() - start_s < 5
    # Neither 1 nor 2 is wanted, 9 is not there: nothing is aspired, so all are unloaded.
    _wait(lambda: set(models.states("a").values()) == {State.END})


def test_a_new_model_that_does_not_load_is_unknown_and_the_others_serve_on(models: Any) -> None:
    models.add("b", 5, broken=True)
    with pytest.raises(StatusError, match=r"1 model\(s\) did not become available.*it is broken") as caught:
        models.reload(("a", {}, [1, 2]), ("b", {}, [5]))
    assert caught.value.code is Code.UNKNOWN
    assert models.version("a") == 2


def test_refused_reloads_leave_everything_as_it_was(models: Any) -> None:
    empty = model_management_pb2.ReloadConfigRequest()
    assert _code(models.handlers.reload_config, empty) is Code.INVALID_ARGUMENT
    custom = model_management_pb2.ReloadConfigRequest()
    custom.config.custom_model_config.SetInParent()
    assert _code(models.handlers.reload_config, custom) is Code.INVALID_ARGUMENT
    assert _code(models.reload, ("a", {}, [1]), ("a", {}, [1])) is Code.INVALID_ARGUMENT
    for changes in ({"base_path": "relative"}, {"model_platform": ""}, {"model_platform": "caffe"}):
        request = model_management_pb2.ReloadConfigRequest()
        request.config.model_config_list.config.add(
            **{"name": "b", "base_path": "/b", "model_platform": "tensorflow", **changes}
        )
        assert _code(models.handlers.reload_config, request) is Code.INVALID_ARGUMENT
    time.sleep(0.3)
    assert set(models.states("a").values()) == {State.AVAILABLE}
    assert _code(models.manager.statuses, "b") is Code.NOT_FOUND


def test_an_empty_list_unloads_everything(models: Any) -> None:
    models.reload()
    _wait(lambda: set(models.states("a").values()) == {State.END})
    assert _code(models.version, "a") is Code.NOT_FOUND


def test_labels_are_put_on_available_versions_and_moved_there(models: Any) -> None:
    models.reload(("a", {"stable": 1, "canary": 2}, [1, 2]))
    assert (models.version("a", "stable"), models.version("a", "canary")) == (1, 2)
    models.reload(("a", {"stable": 2, "canary": 2}, [1, 2]))
    assert (models.version("a", "stable"), models.version("a", "canary")) == (2, 2)
    assert _code(models.reload, ("a", {"stable": 3}, [1, 2])) is Code.FAILED_PRECONDITION
    assert models.version("a", "stable") == 2
    models.reload(("a", {}, [1, 2]))
    assert _code(models.version, "a", "stable") is Code.INVALID_ARGUMENT
    assert _code(models.version, "none", "stable") is Code.INVALID_ARGUMENT


def test_a_label_keeps_no_right_to_a_version_that_is_gone(models: Any) -> None:
    models.reload(("a", {"stable": 1}, [1, 2]))
    models.reload(("a", {"stable": 1}, [2]))
    _wait(lambda: models.states("a")[1] is State.END)
    assert _code(models.version, "a", "stable") is Code.NOT_FOUND
    assert _code(models.reload, ("a", {"stable": 1}, [2])) is Code.FAILED_PRECONDITION


def test_the_first_config_may_not_hold_labels_unless_the_flag_allows_it(tmp_path: Any) -> None:
    for allowed in (False, True):
        models = _Models(tmp_path / str(allowed), allow_labels_for_unavailable=allowed)
        models.add("a", 1)
        assert _code(models.version, "a", "stable") is Code.UNAVAILABLE
        config = [models.config("a", labels={"stable": 1})]
        if not allowed:
            assert _code(models.manager.start, config) is Code.FAILED_PRECONDITION
        else:
            models.manager.start(config)
            assert models.version("a", "stable") == 1
            models.reload(("a", {"stable": 1, "next": 2}, [1, 2]))
            assert _code(models.version, "a", "next") is Code.NOT_FOUND
            assert _code(models.reload, ("a", {"stable": 2}, [1, 2])) is Code.FAILED_PRECONDITION
        models.manager.stop()


def test_a_reload_tells_how_much_counters_grew(models: Any) -> None:
    models.add("b", 5)
    names = ["/tensorflow/serving/request_count", ":tensorflow:serving:none"]
    response = models.reload(("a", {}, [1, 2]), ("b", {}, [5]), metric_names=names)
    assert [(found.name, found.int64_value_increase) for found in response.metric] == [(names[0], 1), (names[1], 0)]


def _write(path: Any, text: Any) -> None:
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def test_a_config_file_is_read_again_and_one_that_is_wrong_changes_nothing(models: Any, tmp_path: Any) -> None:
    models.add("b", 5)
    path = tmp_path / "models.config"
    poller = ConfigFilePoller(path, interval_s=0.02, apply=models.manager.apply)
    poller.start()
    model = 'config {{ name: "{0}" base_path: "{1}/{0}" model_platform: "tensorflow" {2} }}'
    try:
        for text in ("nonsense", "", 'model_config_list { config { name: "x" } }'):
            _write(path, text)
            time.sleep(0.1)
            assert models.version("a") == 2
        labelled = model.format("b", tmp_path, 'version_labels { key: "stable" value: 5 }')
        # A label may come once its version is available.
        _write(path, f"model_config_list {{ {model.format('b', tmp_path, '')} }}")
        _wait(lambda: _is_available(models, "b"))
        _write(path, f"model_config_list {{ {labelled} }}")
        _wait(lambda: models.manager._configs["b"].labels == {"stable": 5})
        assert models.version("b", "stable") == 5
        _wait(lambda: set(models.states("a").values()) == {State.END})
        _write(path, "model_config_list {}")
        _wait(lambda: set(models.states("b").values()) == {State.END})
    finally:
        poller.stop()

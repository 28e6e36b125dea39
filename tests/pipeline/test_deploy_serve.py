import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.config import Config, load_config
from pipeline.deploy_kubernetes_serve import KubernetesServing, serving_manifests
from pipeline.deploy_local_serve import write_compose, write_unit
from preprocessing.errors import ArtefactError, ConfigError
from serving.deployment import probe_script
from serving.server import config_files, flags

BATCHING = ["serve.batching={max_batch_size: 64, num_batch_threads: 2}", "serve.threads=2"]
ON_CLAIM = KubernetesServing(namespace="ml", image="tensorflow/serving:2", claim="shop")
SYNCED = KubernetesServing(namespace="ml", image="tensorflow/serving:2", source="s3://bucket/store")


def config_in(folder: Path, *overrides: str) -> Config:
    demo = Path(__file__).parent.parent.parent / "pipeline" / "configs" / "demo.yaml"
    return load_config(demo, [f"work_dir={folder / 'work'}", "name=Shop_1", *BATCHING, *overrides])


def with_version(config: Config, *, size: int) -> Config:
    folder = config.store() / "7"
    folder.mkdir(parents=True)
    with (folder / "saved_model.pb").open("wb") as file:
        file.truncate(size)
    return config


def server_of(config: Config, serving: KubernetesServing) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the server's container and its pod."""
    pod = serving_manifests(config, serving)[-1]["spec"]["template"]["spec"]
    return pod["containers"][0], pod


def check_files(arguments: list[str], folder: Path, *, at: str) -> flags.Flags:
    """Reads arguments and files as a server would; the files are in `folder` and the server sees them in `at`."""
    parsed, unknown = flags.parse(arguments)
    assert unknown == ()
    assert parsed.batching_parameters_file == f"{at}/batching.config"
    batching = config_files.batching_parameters(folder / "batching.config")
    assert (batching.max_batch_size, batching.num_batch_threads, batching.batch_timeout_micros) == (64, 2, 1000)
    assert parsed.monitoring_config_file == f"{at}/monitoring.config"
    assert config_files.prometheus_path(folder / "monitoring.config") == "/monitoring/prometheus/metrics"
    assert parsed.allow_version_labels_for_unavailable_models
    assert parsed.tensorflow_intra_op_parallelism == 2
    return parsed


@pytest.mark.parametrize("serving", [ON_CLAIM, SYNCED])
def test_every_document_is_valid_by_the_public_schema(serving: KubernetesServing, tmp_path: Path) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    documents = serving_manifests(config_in(tmp_path), serving)
    for document in documents:
        validate.validate(document, "1.30", strict=True)
    assert [document["kind"] for document in documents] == [
        "Namespace",
        "ConfigMap",
        "Service",
        "PodDisruptionBudget",
        "Deployment",
    ]
    broken = json.loads(json.dumps(documents[-1]))
    broken["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(validate.ValidationError):
        validate.validate(broken, "1.30", strict=True)


def test_pods_see_the_store_where_training_pods_wrote_it(tmp_path: Path) -> None:
    for store, root, mount in (
        ("/data/store", "/data/store", "/data/store"),
        ("out/store", "/work/out/store", "/work"),
    ):
        container, pod = server_of(config_in(tmp_path, f"export.store={store}"), ON_CLAIM)
        assert f"--model_config_file={root}/models.config" in container["args"]
        assert {"name": "models", "mountPath": mount, "readOnly": True} in container["volumeMounts"]
        claim = {"name": "models", "persistentVolumeClaim": {"claimName": "shop", "readOnly": True}}
        assert claim in pod["volumes"]
        assert pod["initContainers"] == []


def test_a_remote_store_is_copied_before_the_server_starts_and_kept_up_to_date_beside_it(tmp_path: Path) -> None:
    container, pod = server_of(config_in(tmp_path), SYNCED)
    first, beside = pod["initContainers"]
    assert first["command"] == ["rankmill", "sync", "s3://bucket/store", "/models", "--once"]
    assert beside["command"][:4] == first["command"][:4]
    assert (beside["restartPolicy"], "restartPolicy" in first) == ("Always", False)
    assert "--model_config_file=/models/models.config" in container["args"]


def test_the_server_understands_the_flags_and_files_of_kubernetes(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    container, _ = server_of(config, ON_CLAIM)
    (files,) = [document["data"] for document in serving_manifests(config, ON_CLAIM) if document["kind"] == "ConfigMap"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    check_files(container["args"], tmp_path, at="/config")


def test_without_batching_no_file_and_no_flag_speak_of_it(tmp_path: Path) -> None:
    config = config_in(tmp_path, "serve.batching=null")
    container, _ = server_of(config, ON_CLAIM)
    assert not [argument for argument in container["args"] if argument.startswith(("--enable_batching", "--batching"))]
    assert "batching.config" not in serving_manifests(config, ON_CLAIM)[1]["data"]


def test_memory_must_hold_two_versions(tmp_path: Path) -> None:
    config = with_version(config_in(tmp_path), size=1 << 30)
    with pytest.raises(ConfigError, match=r"--memory 2Gi: .* takes 2560 MiB while the next one loads"):
        serving_manifests(config, KubernetesServing(namespace="ml", image="x", memory="2Gi"))
    assert serving_manifests(config, KubernetesServing(namespace="ml", image="x", memory="3Gi"))


def test_a_compose_file_mounts_the_store_where_it_is(tmp_path: Path) -> None:
    config = with_version(config_in(tmp_path), size=10)
    out = tmp_path / "out"
    paths = write_compose(config, image="tensorflow/serving:2", cpus="500m", memory="1Gi", out=out)
    assert [path.name for path in paths] == ["compose.yaml", "monitoring.config", "batching.config"]
    service = yaml.safe_load(paths[0].read_text())["services"]["serve"]
    parsed = check_files(service["command"], out, at="/config")
    assert parsed.model_config_file == str(tmp_path / "work" / "store" / "models.config")
    store, *files = service["volumes"]
    assert (store["source"], store["target"]) == (str(tmp_path / "work" / "store"),) * 2
    assert sorted(file["target"] for file in files) == ["/config/batching.config", "/config/monitoring.config"]
    assert all(volume["read_only"] for volume in service["volumes"])
    assert service["ports"] == ["127.0.0.1:8500:8500", "127.0.0.1:8501:8501"]
    assert (service["cpus"], service["mem_limit"]) == (0.5, f"{1 << 30}b")


def test_without_a_store_there_is_nothing_to_deploy_on_a_machine(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="publish a version first"):
        write_compose(config_in(tmp_path), image="x", cpus="1", memory="1Gi", out=tmp_path)


def test_a_unit_passes_the_check_of_systemd(tmp_path: Path) -> None:
    config = with_version(config_in(tmp_path, "serve.port=9000"), size=10)
    out = tmp_path / "100% out"
    server = tmp_path / "my server"
    server.write_text("#!/bin/sh\n")
    server.chmod(0o755)
    unit, *_ = write_unit(config, command=[str(server)], cpus="2", memory="1Gi", out=out)
    text = unit.read_text()
    assert "--port=9000" in text
    assert "CPUQuota=200%" in text
    assert f"MemoryMax={1 << 30}" in text
    assert "100%% out/monitoring.config" in text  # a plain % would be a specifier
    checker = shutil.which("systemd-analyze")
    if checker is None:
        pytest.skip("systemd-analyze is not installed")
    command = [checker, "verify", "--man=no", str(unit)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert [line for line in done.stderr.splitlines() if unit.name in line] == []
    unit.write_text(text.replace("Restart=always", "Restart=sometimes"))
    broken = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert "sometimes" in broken.stderr


@pytest.fixture
def status_page() -> Iterator[tuple[int, list[str]]]:
    """An HTTP server whose status page shows the one state in the list."""
    state = ["AVAILABLE"]

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            ok = self.path == "/v1/models/shop"
            self.send_response(200 if ok else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"model_version_status": [{"version": "1", "state": state[0]}]}).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port, state
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_a_server_is_ready_when_a_version_is_available_and_not_before(status_page: tuple[int, list[str]]) -> None:
    port, state = status_page

    def ready(port: int) -> bool:
        command = ["bash", "-c", probe_script("shop", rest_port=port)]
        return subprocess.run(command, check=False, capture_output=True, timeout=30).returncode == 0

    assert ready(port)
    state[0] = "LOADING"
    assert not ready(port)
    assert not ready(1)

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cluster import find_cluster
from pipeline.deploy_train import TrainDeployment, manifests, write_manifests
from pipeline.train_spec import StrategySpec
from preprocessing.errors import ConfigError

IN_STEP = TrainDeployment(name="Shop_Demo", namespace="ml", image="registry/rankmill:1", workers=3)
WITH_SERVERS = dataclasses.replace(IN_STEP, servers=2, gpus=1, storage_class="nfs")


def of_kind(deployment: TrainDeployment, kind: str) -> list[dict[str, Any]]:
    return [document for document in manifests(deployment, "name: x\n") if document["kind"] == kind]


@pytest.mark.parametrize("deployment", [IN_STEP, WITH_SERVERS])
def test_every_document_is_valid_by_the_public_schema(deployment: TrainDeployment) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    documents = manifests(deployment, "name: x\n", overrides=["train.epochs=2"])
    for document in documents:
        validate.validate(document, "1.30", strict=True)
    broken = json.loads(json.dumps(documents[-1]))
    broken["spec"]["template"]["spec"]["containers"][0]["imagge"] = "x"
    with pytest.raises(validate.ValidationError):
        validate.validate(broken, "1.30", strict=True)


@pytest.mark.parametrize(
    ("deployment", "kind", "names"),
    [
        (IN_STEP, "multi_worker_mirrored", ["worker-0", "worker-1", "worker-2"]),
        (WITH_SERVERS, "parameter_server", ["chief-0", "worker-0", "worker-1", "worker-2", "ps-0", "ps-1"]),
    ],
)
def test_each_pod_is_told_the_cluster_and_its_place(deployment: TrainDeployment, kind: str, names: list[str]) -> None:
    found = []
    for job in of_kind(deployment, "Job"):
        container = job["spec"]["template"]["spec"]["containers"][0]
        value = next(entry["value"] for entry in container["env"] if entry["name"] == "TF_CONFIG")
        for index in range(job["spec"]["completions"]):
            cluster = find_cluster(
                StrategySpec(kind=kind), {"TF_CONFIG": value.replace("$(JOB_COMPLETION_INDEX)", str(index))}
            )
            assert cluster is not None
            found.append(cluster.name)
            host = cluster.names[cluster.name]
            # Pods of an Indexed Job are called JOB-INDEX, below their headless Service.
            assert host == f"{job['metadata']['name']}-{index}.shop-demo-train.ml.svc:2222"
            assert cluster.names.keys() == set(names)
    assert found == names


def test_a_quota_holds_just_these_pods() -> None:
    (quota,) = of_kind(dataclasses.replace(WITH_SERVERS, cpus="500m", memory="1.5Gi"), "ResourceQuota")
    assert quota["spec"]["hard"] == {
        "pods": "6",
        "requests.cpu": "3000m",
        "limits.cpu": "3000m",
        "requests.memory": "9Gi",
        "limits.memory": "9Gi",
        "requests.nvidia.com/gpu": "3",
    }


def test_all_pods_share_one_volume_that_many_can_write_to() -> None:
    (claim,) = of_kind(WITH_SERVERS, "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["storageClassName"] == "nfs"
    for job in of_kind(WITH_SERVERS, "Job"):
        pod = job["spec"]["template"]["spec"]
        assert {"name": "work", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}} in pod["volumes"]
        assert pod["containers"][0]["workingDir"] == "/work"
        assert ("nvidia.com/gpu" in pod["containers"][0]["resources"]["limits"]) == job["metadata"]["name"].endswith(
            "worker"
        )


def test_names_and_quantities_that_kubernetes_refuses_are_refused_first() -> None:
    with pytest.raises(ConfigError, match="--namespace 'My_Space'"):
        manifests(dataclasses.replace(IN_STEP, namespace="My_Space"), "")
    with pytest.raises(ConfigError, match="--memory lots"):
        manifests(dataclasses.replace(IN_STEP, memory="lots"), "")


def test_the_file_holds_all_documents_and_the_config_as_it_was(tmp_path: Path) -> None:
    config = "name: x\ntext: 'a: b'\n"
    path = write_manifests(IN_STEP, config, overrides=["strategy.kind=multi_worker_mirrored"], out=tmp_path / "out")
    documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    assert [document["kind"] for document in documents] == [
        "Namespace",
        "ResourceQuota",
        "ConfigMap",
        "PersistentVolumeClaim",
        "Service",
        "Job",
    ]
    assert documents[2]["data"]["config.yaml"] == config
    command = documents[-1]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command == ["rankmill", "train", "/config/config.yaml", "--set", "strategy.kind=multi_worker_mirrored"]

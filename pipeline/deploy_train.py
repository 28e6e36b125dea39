"""Kubernetes manifests of a training cluster: the processes that `rankmill launch` starts, as pods.

Each process is an Indexed Job's pod with a name of its own behind a headless Service, so that TF_CONFIG can be
written down before anything runs; the pod's index comes from Kubernetes. Their work folder is one volume that all
can write to. When a pod dies the others end within `strategy.watchdog.dead_after_s`, every one is started again, and
training goes on from the last checkpoint.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from pipeline.kubernetes import Manifest, check_names, check_quantities, kubernetes_name, times, write_documents

__all__ = ["TrainDeployment", "manifests", "write_manifests"]

PORT = 2222
_RESTARTS = 20
_WORK = "/work"
_CONFIG = "/config/config.yaml"


@dataclasses.dataclass(frozen=True)
class TrainDeployment:
    """What to deploy. Quantities are Kubernetes's, such as '500m' and '16Gi'."""

    name: str
    namespace: str
    image: str
    workers: int
    servers: int = 0
    cpus: str = "4"
    memory: str = "16Gi"
    gpus: int = 0
    storage: str = "100Gi"
    storage_class: str = ""

    @property
    def job(self) -> str:
        """The name as Kubernetes allows it."""
        return kubernetes_name(self.name, "train")

    @property
    def roles(self) -> dict[str, int]:
        """Pods by TensorFlow's job name; the first leads."""
        if not self.servers:
            return {"worker": self.workers}
        return {"chief": 1, "worker": self.workers, "ps": self.servers}


def write_manifests(deployment: TrainDeployment, config: str, *, overrides: Sequence[str], out: Path) -> Path:
    """Writes `train.yaml` into `out` and returns its path.

    Raises:
        ConfigError: if a name or quantity is none that Kubernetes takes.
    """
    return write_documents(manifests(deployment, config, overrides=overrides), out / "train.yaml")


def manifests(deployment: TrainDeployment, config: str, *, overrides: Sequence[str] = ()) -> list[Manifest]:
    """Returns the documents, in the order in which they must be made."""
    check_names({"--namespace": deployment.namespace, "name": deployment.job})
    check_quantities({f"--{flag}": getattr(deployment, flag) for flag in ("cpus", "memory", "storage")})
    meta = {"namespace": deployment.namespace, "labels": {"app.kubernetes.io/part-of": deployment.job}}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": deployment.namespace}},
        _quota(deployment, meta),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": deployment.job, **meta},
            "data": {"config.yaml": config},
        },
        _volume(deployment, meta),
        _service(deployment, meta),
        *(_job(deployment, role, count, meta, overrides) for role, count in deployment.roles.items()),
    ]


def _quota(deployment: TrainDeployment, meta: Manifest) -> Manifest:
    pods = sum(deployment.roles.values())
    hard = {"pods": str(pods)}
    for resource in ("cpu", "memory"):
        quantity = deployment.cpus if resource == "cpu" else deployment.memory
        hard |= {f"{kind}.{resource}": times(quantity, pods) for kind in ("requests", "limits")}
    if deployment.gpus:
        hard["requests.nvidia.com/gpu"] = str(deployment.gpus * deployment.workers)
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": deployment.job, **meta},
        "spec": {"hard": hard},
    }


def _volume(deployment: TrainDeployment, meta: Manifest) -> Manifest:
    spec: Manifest = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": deployment.storage}},
    }
    if deployment.storage_class:
        spec["storageClassName"] = deployment.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": deployment.job, **meta},
        "spec": spec,
    }


def _service(deployment: TrainDeployment, meta: Manifest) -> Manifest:
    """A headless Service: a name for each pod, also before it is ready, for all start at once."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": deployment.job, **meta},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"app.kubernetes.io/part-of": deployment.job},
            "ports": [{"name": "grpc", "port": PORT, "protocol": "TCP"}],
        },
    }


def _job(deployment: TrainDeployment, role: str, count: int, meta: Manifest, overrides: Sequence[str]) -> Manifest:
    # A worker of parameter servers is started again alone; all others start again together, when each has ended.
    name = f"{deployment.job}-{role}"
    labels = {**meta["labels"], "app.kubernetes.io/component": role}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": deployment.namespace, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            "backoffLimit": _RESTARTS * count,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "subdomain": deployment.job,
                    "restartPolicy": "OnFailure",
                    "containers": [_container(deployment, role, overrides)],
                    "volumes": [
                        {"name": "config", "configMap": {"name": deployment.job}},
                        {"name": "work", "persistentVolumeClaim": {"claimName": deployment.job}},
                    ],
                },
            },
        },
    }


def _container(deployment: TrainDeployment, role: str, overrides: Sequence[str]) -> Manifest:
    resources: Manifest = {"cpu": deployment.cpus, "memory": deployment.memory}
    if deployment.gpus and role == "worker":
        resources["nvidia.com/gpu"] = str(deployment.gpus)
    flags = [part for override in overrides for part in ("--set", override)]
    return {
        "name": "train",
        "image": deployment.image,
        "command": ["rankmill", "train", _CONFIG, *flags],
        "workingDir": _WORK,
        # $(JOB_COMPLETION_INDEX) is put in by Kubernetes, which gives each pod of an Indexed Job its own.
        "env": [
            {
                "name": "JOB_COMPLETION_INDEX",
                "valueFrom": {
                    "fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}
                },
            },
            {"name": "TF_CONFIG", "value": _tf_config(deployment, role)},
        ],
        "ports": [{"name": "grpc", "containerPort": PORT}],
        "resources": {"requests": resources, "limits": dict(resources)},
        "volumeMounts": [
            {"name": "config", "mountPath": "/config", "readOnly": True},
            {"name": "work", "mountPath": _WORK},
        ],
    }


def _tf_config(deployment: TrainDeployment, role: str) -> str:
    cluster = {
        job: [f"{deployment.job}-{job}-{i}.{deployment.job}.{deployment.namespace}.svc:{PORT}" for i in range(count)]
        for job, count in deployment.roles.items()
    }
    # The index is put in by Kubernetes, so it stands outside of the JSON that is made here.
    task = f'{{"type": {json.dumps(role)}, "index": $(JOB_COMPLETION_INDEX)}}'
    return f'{{"cluster": {json.dumps(cluster)}, "task": {task}}}'

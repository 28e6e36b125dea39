"""Kubernetes manifests that serve a model: rolling updates that lose no request, probes, limits, a synced store."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.config import Config
from pipeline.deploy_serve import ServeDeployment, check_memory, config_texts, server_flags
from pipeline.kubernetes import Manifest, check_names, check_quantities, kubernetes_name, quantity_value
from serving.deployment import METRICS_PATH, probe_script

__all__ = ["KubernetesServing", "serving_manifests"]

_FILES = "/config"
_SYNCED = "/models"
_WORK = "/work"
_DRAIN_S = 15
_USER = 10001


@dataclasses.dataclass(frozen=True)
class KubernetesServing:
    """How it is deployed. Quantities are Kubernetes's, such as '500m' and '16Gi'.

    Attributes:
        claim: the PersistentVolumeClaim that holds the store; "" with `source`.
        source: a store on object storage, such as `s3://bucket/store`, copied to each pod; "" with `claim`.
        sync_image: container image with rankmill installed, that copies.
        secret: of the credentials of `source`, as environment variables; it need not be there.
    """

    namespace: str
    image: str
    replicas: int = 2
    cpus: str = "2"
    memory: str = "4Gi"
    claim: str = ""
    source: str = ""
    sync_image: str = "rankmill:latest"
    secret: str = "rankmill-store"


def serving_manifests(config: Config, serving: KubernetesServing) -> list[Manifest]:
    """Returns the documents, in the order in which they must be made.

    Raises:
        ConfigError: if a name or quantity is none that Kubernetes takes, or the memory holds no two versions.
    """
    name = kubernetes_name(config.name, "serve")
    check_names({"--namespace": serving.namespace, "name": name})
    check_quantities({"--cpus": serving.cpus, "--memory": serving.memory})
    check_memory(config.store(), given=quantity_value(serving.memory), flag=f"--memory {serving.memory}")
    labels = {"app.kubernetes.io/name": name}
    meta: Manifest = {"name": name, "namespace": serving.namespace, "labels": labels}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": serving.namespace}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": config_texts(config)},
        _service(meta, labels),
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": meta,
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}},
        },
        _deployment(config, serving, meta=meta, labels=labels),
    ]


def _service(meta: Manifest, labels: Manifest) -> Manifest:
    """A headless Service: a gRPC client that sees all pods spreads its calls, behind one address it cannot."""
    ports = [{"name": name, "port": port, "targetPort": name} for name, port in (("grpc", 8500), ("http", 8501))]
    spec: Manifest = {"clusterIP": "None", "selector": labels, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}


def _deployment(config: Config, serving: KubernetesServing, *, meta: Manifest, labels: Manifest) -> Manifest:
    scrape = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "8501",
        "prometheus.io/path": METRICS_PATH,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta,
        "spec": {
            "replicas": serving.replicas,
            "selector": {"matchLabels": labels},
            # A new pod answers before an old one goes.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {"metadata": {"labels": labels, "annotations": scrape}, "spec": _pod(config, serving, meta)},
        },
    }


def _pod(config: Config, serving: KubernetesServing, meta: Manifest) -> Manifest:
    store = Path(_SYNCED) if serving.source else _mounted_store(config)
    mount = _SYNCED if serving.source else _mount_of(store)
    volume: Manifest = {"name": "models"}
    if serving.source:
        volume["emptyDir"] = {}
    else:
        volume["persistentVolumeClaim"] = {"claimName": serving.claim, "readOnly": True}
    deployment = ServeDeployment(config=config, store=store, files=Path(_FILES))
    return {
        "terminationGracePeriodSeconds": 2 * _DRAIN_S,
        "securityContext": {"runAsNonRoot": True, "runAsUser": _USER, "fsGroup": _USER},
        "initContainers": _sync_containers(serving, poll_s=config.serve.poll_s),
        "containers": [_server(deployment, serving, mount=mount)],
        "volumes": [volume, {"name": "config", "configMap": {"name": meta["name"]}}],
    }


def _mounted_store(config: Config) -> Path:
    """Returns the root of the store where training pods see it, so that the paths in models.config hold."""
    return Path(_WORK) / config.store().parent


def _mount_of(store: Path) -> str:
    return _WORK if store.is_relative_to(_WORK) else str(store)


def _sync_containers(serving: KubernetesServing, *, poll_s: int) -> list[Manifest]:
    """Returns what fills the pod's copy of the store before the server starts, and what keeps it up to date."""
    if not serving.source:
        return []
    command = ["rankmill", "sync", serving.source, _SYNCED]
    container: Manifest = {
        "image": serving.sync_image,
        "envFrom": [{"secretRef": {"name": serving.secret, "optional": True}}],
        "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": _hardened(),
        "volumeMounts": [{"name": "models", "mountPath": _SYNCED}],
    }
    return [
        {"name": "first-sync", "command": [*command, "--once"], **container},
        {
            "name": "sync",
            "command": [*command, "--every", "30", "--server", "127.0.0.1:8501", "--poll-s", str(poll_s)],
            "restartPolicy": "Always",
            **container,
        },
    ]


def _server(deployment: ServeDeployment, serving: KubernetesServing, *, mount: str) -> Manifest:
    resources = {"cpu": serving.cpus, "memory": serving.memory}
    ready = _probe(["bash", "-c", probe_script(deployment.model, rest_port=deployment.rest_port)])
    return {
        "name": "serve",
        "image": serving.image,
        "command": ["tensorflow_model_server"],
        "args": server_flags(deployment),
        "ports": [{"name": "grpc", "containerPort": 8500}, {"name": "http", "containerPort": 8501}],
        "resources": {"requests": resources, "limits": dict(resources)},
        "securityContext": _hardened(),
        "startupProbe": {**ready, "periodSeconds": 5, "failureThreshold": 360},
        "readinessProbe": {**ready, "periodSeconds": 5, "failureThreshold": 2},
        "livenessProbe": {"tcpSocket": {"port": "grpc"}, "periodSeconds": 10, "failureThreshold": 6},
        # The server ends at once when it is told to: first wait until no new request is sent to this pod.
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(_DRAIN_S)]}}},
        "volumeMounts": [
            {"name": "models", "mountPath": mount, "readOnly": True},
            {"name": "config", "mountPath": _FILES, "readOnly": True},
        ],
    }


def _probe(command: Sequence[str]) -> dict[str, Any]:
    return {"exec": {"command": list(command)}, "timeoutSeconds": 10}


def _hardened() -> Manifest:
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

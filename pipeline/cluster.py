"""The processes that train together, and which of them this one is: from TF_CONFIG or from the config.

Job names are TensorFlow's: `worker`, `ps` (a parameter server), `chief` (the coordinator of parameter servers, or
worker 0 of a synchronous cluster that names it so).
"""

from __future__ import annotations

import dataclasses
import json
import socket
import time
from collections.abc import Mapping
from typing import Any

from pipeline.train_spec import ClusterSpec, StrategySpec
from preprocessing.errors import ConfigError, TrainingError

__all__ = ["Cluster", "find_cluster", "wait_for_tasks"]

TF_CONFIG = "TF_CONFIG"
_JOBS = ("chief", "worker", "ps")
_START_TIMEOUT_S = 300.0
_POLL_S = 0.2


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Addresses HOST:PORT by job, and the job and index of this process."""

    jobs: Mapping[str, tuple[str, ...]]
    job: str
    index: int

    @property
    def name(self) -> str:
        """Such as 'worker-1'."""
        return f"{self.job}-{self.index}"

    @property
    def names(self) -> dict[str, str]:
        """The address of every process by its name."""
        return {f"{job}-{i}": address for job in _JOBS for i, address in enumerate(self.jobs.get(job, ()))}

    @property
    def members(self) -> tuple[str, ...]:
        """The names of those that train in step: the chief, if there is one, then the workers."""
        return tuple(name for name in self.names if not name.startswith("ps-"))

    @property
    def worker(self) -> int:
        """The place of this process among `members`."""
        return self.members.index(self.name)

    @property
    def leads(self) -> bool:
        """Whether this process writes what is written once."""
        return self.name == self.members[0]

    @property
    def tf_config(self) -> str:
        """What TensorFlow reads from the environment."""
        cluster = {job: list(addresses) for job, addresses in self.jobs.items() if addresses}
        return json.dumps({"cluster": cluster, "task": {"type": self.job, "index": self.index}})


def find_cluster(spec: StrategySpec, environment: Mapping[str, str]) -> Cluster | None:
    """Returns the cluster that this process is part of; None for strategies of one process.

    Raises:
        ConfigError: if the strategy needs one and none is told, or it makes no sense.
    """
    if spec.kind not in ("multi_worker_mirrored", "parameter_server"):
        return None
    if spec.cluster is not None:
        cluster = _declared(spec.cluster)
    elif environment.get(TF_CONFIG):
        cluster = _parsed(environment[TF_CONFIG])
    else:
        raise ConfigError(
            f"strategy.kind {spec.kind} needs to know its processes: give strategy.cluster, set {TF_CONFIG} in the "
            "environment of each, or start them by `rankmill launch --workers N train CONFIG`"
        )
    _check(cluster, spec)
    return cluster


def _declared(spec: ClusterSpec) -> Cluster:
    if not spec.task:
        raise ConfigError(
            "strategy.cluster.task: say what this process is, such as --set strategy.cluster.task=worker:0"
        )
    job, _, index = spec.task.partition(":")
    chief = (spec.coordinator,) if spec.coordinator else ()
    return Cluster({"chief": chief, "worker": spec.workers, "ps": spec.servers}, job, int(index))


def _parsed(text: str) -> Cluster:
    try:
        value: Any = json.loads(text)
        jobs = {job: tuple(str(address) for address in addresses) for job, addresses in value["cluster"].items()}
        return Cluster(jobs, str(value["task"]["type"]), int(value["task"]["index"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f'{TF_CONFIG} must be such as {{"cluster": {{"worker": ["HOST:PORT"]}}, "task": {{"type": "worker", '
            f'"index": 0}}}}, not {text[:200]!r}'
        ) from error


def _check(cluster: Cluster, spec: StrategySpec) -> None:
    unknown = [job for job in cluster.jobs if job not in _JOBS]
    if unknown:
        raise ConfigError(f"the cluster has a job {unknown[0]!r}; jobs are {', '.join(_JOBS)}")
    if cluster.name not in cluster.names:
        raise ConfigError(f"the cluster has no task {cluster.name}; it has {', '.join(cluster.names) or 'none'}")
    servers, chief = cluster.jobs.get("ps", ()), cluster.jobs.get("chief", ())
    if spec.kind == "multi_worker_mirrored" and servers:
        raise ConfigError("strategy.kind multi_worker_mirrored has no parameter servers, but the cluster names some")
    if spec.kind == "parameter_server" and not (servers and len(chief) == 1 and cluster.jobs.get("worker")):
        raise ConfigError(
            "strategy.kind parameter_server needs at least one worker, one ps and exactly one chief (the coordinator), "
            f"the cluster has {', '.join(cluster.names)}"
        )


def wait_for_tasks(cluster: Cluster, *, timeout_s: float = _START_TIMEOUT_S) -> None:
    """Returns once every worker and server listens.

    Raises:
        TrainingError: if one does not in time.
    """
    deadline = time.monotonic() + timeout_s
    for name, address in cluster.names.items():
        if name != cluster.name:
            host, _, port = address.rpartition(":")
            _wait_for(name, host.strip("[]"), int(port), deadline=deadline, timeout_s=timeout_s)


def _wait_for(name: str, host: str, port: int, *, deadline: float, timeout_s: float) -> None:
    while True:
        try:
            socket.create_connection((host, port), timeout=5.0).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise TrainingError(
                    f"{name} at {host}:{port} did not listen within {timeout_s:.0f} s ({error}); "
                    "start every process of the cluster"
                ) from error
            time.sleep(_POLL_S)

"""The training stage in a process that does not lead its cluster: it works in the leader's folder and waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipeline.artefacts import Artefact, Plan, open_artefact, partial_folder
from pipeline.cluster import Cluster
from pipeline.train_spec import StrategySpec
from preprocessing.errors import ArtefactError
from preprocessing.manifest import exists

__all__ = ["follow"]

_POLL_S = 0.2


def follow(plan: Plan, cluster: Cluster, strategy: StrategySpec, work: Callable[[Path], Mapping[str, Any]]) -> Artefact:
    """Does this process's part and returns the artefact that the leader completes.

    Raises:
        ArtefactError: if the leader does not complete it, or another cluster's does not share this folder.
    """
    folder = partial_folder(plan)
    folder.mkdir(parents=True, exist_ok=True)
    if strategy.kind == "parameter_server":
        from pipeline.parameter_servers import serve_task

        serve_task(cluster, folder, strategy=strategy)
    else:
        work(folder)
    deadline = time.monotonic() + strategy.watchdog.dead_after_s
    while not exists(plan.folder):
        if time.monotonic() > deadline:
            raise ArtefactError(
                f"{cluster.members[0]} did not complete {plan.folder} within {strategy.watchdog.dead_after_s:.0f} s; "
                "work_dir must be on storage that all processes share"
            )
        time.sleep(_POLL_S)
    return open_artefact(plan)

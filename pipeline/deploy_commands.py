"""The commands that write what other systems need: `deploy kubernetes train|serve`, `deploy docker|systemd serve`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cluster_commands import strategy_overrides
from pipeline.config import load_config
from pipeline.display import Display
from pipeline.quiet import import_tensorflow
from preprocessing.errors import ConfigError

__all__ = ["register"]

ConfigPath = Annotated[Path, typer.Argument(help="The YAML file that describes the line.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override one value: a.b.c=VALUE. May be given again.", metavar="A.B=C"),
]
Out = Annotated[Path, typer.Option(help="Folder for the files.")]
Cpus = Annotated[str, typer.Option(help="Of a server.")]
Memory = Annotated[str, typer.Option(help="Of a server; it must hold two versions at once.")]


def register(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    deploy = typer.Typer(help="Write what other systems need to run the line.", no_args_is_help=True)
    kubernetes = typer.Typer(help="Kubernetes manifests.", no_args_is_help=True)
    kubernetes.command("train")(deploy_train)
    kubernetes.command("serve")(deploy_serve)
    docker = typer.Typer(help="Compose files of Docker.", no_args_is_help=True)
    docker.command("serve")(deploy_docker)
    docker.callback()(_group)
    systemd = typer.Typer(help="Units of systemd.", no_args_is_help=True)
    systemd.command("serve")(deploy_systemd)
    systemd.callback()(_group)
    for name, group in (("kubernetes", kubernetes), ("docker", docker), ("systemd", systemd)):
        deploy.add_typer(group, name=name)
    app.add_typer(deploy, name="deploy")


def _group() -> None:
    """Keeps the name of a group's only command."""


def deploy_train(
    config: ConfigPath,
    *,
    out: Annotated[Path, typer.Option(help="Folder for the manifests.")],
    workers: Annotated[int, typer.Option(min=1, help="Pods that train.")] = 2,
    ps: Annotated[int, typer.Option(min=0, help="Parameter servers; without any, workers go in step.")] = 0,
    image: Annotated[str, typer.Option(help="Container image with rankmill installed.")] = "rankmill:latest",
    namespace: Annotated[str, typer.Option(help="Made for the job.")] = "rankmill",
    cpus: Annotated[str, typer.Option(help="Of each pod.")] = "4",
    memory: Annotated[str, typer.Option(help="Of each pod.")] = "16Gi",
    gpus: Annotated[int, typer.Option(min=0, help="Of each worker.")] = 0,
    storage: Annotated[str, typer.Option(help="Of the volume that all pods share.")] = "100Gi",
    storage_class: Annotated[str, typer.Option(help="That can be written by many pods; empty: the default.")] = "",
    set_: Overrides = None,
) -> None:
    """Write manifests of a training cluster: a pod for each process, their addresses, a shared volume, a quota."""
    from pipeline.deploy_train import TrainDeployment, write_manifests

    overrides = [*(set_ or ()), *strategy_overrides(ps > 0)]
    loaded = load_config(config, overrides)
    deployment = TrainDeployment(
        name=loaded.name,
        namespace=namespace,
        image=image,
        workers=workers,
        servers=ps,
        cpus=cpus,
        memory=memory,
        gpus=gpus,
        storage=storage,
        storage_class=storage_class,
    )
    path = write_manifests(deployment, config.read_text(encoding="utf-8"), overrides=overrides, out=out)
    _say([path])


def deploy_serve(
    config: ConfigPath,
    *,
    out: Out,
    store: Annotated[
        str, typer.Option(help="PersistentVolumeClaim of the store, or s3://bucket/store to copy it from.")
    ] = "",
    image: Annotated[str, typer.Option(help="TF Serving's; by default of the release that models are made for.")] = "",
    sync_image: Annotated[str, typer.Option(help="Container image with rankmill installed.")] = "rankmill:latest",
    namespace: Annotated[str, typer.Option(help="Made for the servers.")] = "rankmill",
    replicas: Annotated[int, typer.Option(min=1, help="Servers.")] = 2,
    cpus: Cpus = "2",
    memory: Memory = "4Gi",
    set_: Overrides = None,
) -> None:
    """Write manifests of model servers: probes on the model's status, limits, updates that lose no request."""
    import_tensorflow()
    from pipeline.deploy_kubernetes_serve import KubernetesServing, serving_manifests
    from pipeline.deploy_serve import default_image
    from pipeline.kubernetes import kubernetes_name, write_documents

    loaded = load_config(config, set_ or ())
    remote = "://" in store
    serving = KubernetesServing(
        namespace=namespace,
        image=image or default_image(),
        replicas=replicas,
        cpus=cpus,
        memory=memory,
        claim="" if remote else store or kubernetes_name(loaded.name, "train"),
        source=store if remote else "",
        sync_image=sync_image,
    )
    _say([write_documents(serving_manifests(loaded, serving), out / "serve.yaml")])


def deploy_docker(
    config: ConfigPath,
    *,
    out: Out,
    image: Annotated[str, typer.Option(help="TF Serving's; by default of the release that models are made for.")] = "",
    cpus: Cpus = "2",
    memory: Memory = "4Gi",
    set_: Overrides = None,
) -> None:
    """Write a compose file of a model server on this machine's store: `docker compose -f OUT/compose.yaml up`."""
    import_tensorflow()
    from pipeline.deploy_local_serve import write_compose
    from pipeline.deploy_serve import default_image

    loaded = load_config(config, set_ or ())
    _say(write_compose(loaded, image=image or default_image(), cpus=cpus, memory=memory, out=out))


def deploy_systemd(
    config: ConfigPath,
    *,
    out: Out,
    binary: Annotated[
        str, typer.Option(help="Path of tensorflow_model_server, or `embedded`; by default what PATH has.")
    ] = "",
    cpus: Cpus = "2",
    memory: Memory = "4Gi",
    set_: Overrides = None,
) -> None:
    """Write a systemd unit of a model server on this machine's store: `systemctl enable --now OUT/NAME.service`."""
    import_tensorflow()
    from pipeline.deploy_local_serve import write_unit
    from serving.launch import find_binary

    if binary not in ("", "embedded") and not Path(binary).is_absolute():
        raise ConfigError(f"--binary {binary}: systemd needs an absolute path")
    found = find_binary() if not binary else None if binary == "embedded" else binary
    command = [found] if found is not None else [sys.executable, "-m", "serving.server"]
    loaded = load_config(config, set_ or ())
    _say(write_unit(loaded, command=command, cpus=cpus, memory=memory, out=out))


def _say(paths: Iterable[Path]) -> None:
    console = Display().console
    for path in paths:
        console.print(str(path), soft_wrap=True)

"""Files that serve a model on one machine: a compose file for Docker, a unit for systemd."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from pipeline.config import Config
from pipeline.deploy_serve import ServeDeployment, check_memory, config_texts, server_flags
from pipeline.kubernetes import check_quantities, kubernetes_name, quantity_value
from preprocessing.errors import ArtefactError
from serving.deployment import probe_script

__all__ = ["write_compose", "write_unit"]

_CONTAINER_FILES = Path("/config")


def write_compose(config: Config, *, image: str, cpus: str, memory: str, out: Path) -> list[Path]:
    """Writes `compose.yaml` and the server's config files into `out`; returns their paths.

    Raises:
        ConfigError: if a quantity is none, or the memory holds no two versions.
        ArtefactError: if there is no store to mount.
    """
    store = _existing_store(config, cpus=cpus, memory=memory)
    deployment = ServeDeployment(config=config, store=store, files=_CONTAINER_FILES)
    host, serve = config.serve.host, config.serve
    name = kubernetes_name(config.name, "serve")
    service = {
        "image": image,
        "entrypoint": ["tensorflow_model_server"],
        "command": server_flags(deployment),
        "ports": [f"{host}:{serve.port}:{deployment.port}", f"{host}:{serve.rest_port}:{deployment.rest_port}"],
        "volumes": [
            {"type": "bind", "source": str(store), "target": str(store), "read_only": True},
            *(
                {"type": "bind", "source": f"./{file}", "target": str(_CONTAINER_FILES / file), "read_only": True}
                for file in config_texts(config)
            ),
        ],
        "cpus": quantity_value(cpus),
        "mem_limit": f"{math.ceil(quantity_value(memory))}b",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "restart": "unless-stopped",
        "healthcheck": {
            # compose replaces variables: what bash should see has its dollars doubled
            "test": ["CMD", "bash", "-c", _doubled(probe_script(deployment.model, rest_port=deployment.rest_port))],
            "interval": "10s",
            "timeout": "10s",
            "retries": 3,
            "start_period": "10m",
        },
    }
    text = yaml.safe_dump({"name": name, "services": {"serve": service}}, sort_keys=False)
    return _write({"compose.yaml": text, **config_texts(config)}, out)


def write_unit(config: Config, *, command: Sequence[str], cpus: str, memory: str, out: Path) -> list[Path]:
    """Writes a systemd unit and the server's config files into `out`; returns their paths.

    Args:
        config: of the line.
        command: what starts a model server, before its flags.
        cpus: processors, as Kubernetes writes them.
        memory: likewise.
        out: a folder that stays: the unit names the files in it.

    Raises:
        ConfigError: if a quantity is none, or the memory holds no two versions.
        ArtefactError: if there is no store to serve.
    """
    store, folder = _existing_store(config, cpus=cpus, memory=memory), out.absolute()
    deployment = ServeDeployment(
        config=config, store=store, files=folder, port=config.serve.port, rest_port=config.serve.rest_port
    )
    wait = f"until {probe_script(deployment.model, rest_port=deployment.rest_port)}; do sleep 1; done 2>/dev/null"
    lines = [
        "[Unit]",
        f"Description=Model server of {config.name}",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Service]",
        f"ExecStart={_words([*command, *server_flags(deployment)])}",
        "# The unit counts as started when the model answers.",
        f"ExecStartPost={_words(['/bin/bash', '-c', wait])}",
        "TimeoutStartSec=1800",
        "Restart=always",
        "RestartSec=2",
        f"CPUQuota={quantity_value(cpus) * 100:g}%",
        f"MemoryMax={math.ceil(quantity_value(memory))}",
        "DynamicUser=yes",
        "ProtectSystem=strict",
        "ProtectHome=read-only",
        "PrivateTmp=yes",
        "NoNewPrivileges=yes",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
        "",
    ]
    return _write({f"{kubernetes_name(config.name, 'serve')}.service": "\n".join(lines), **config_texts(config)}, out)


def _existing_store(config: Config, *, cpus: str, memory: str) -> Path:
    check_quantities({"--cpus": cpus, "--memory": memory})
    store = config.store().parent.absolute()
    if not store.is_dir():
        raise ArtefactError(f"{store}: there is no such store; publish a version first: rankmill run CONFIG")
    check_memory(config.store(), given=quantity_value(memory), flag=f"--memory {memory}")
    return store


def _write(texts: dict[str, str], out: Path) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    return [out / name for name in texts]


def _doubled(text: str) -> str:
    return text.replace("$", "$$")


def _words(words: Sequence[str]) -> str:
    """Returns a command line by systemd's rules: quoted, with its specifiers and variables taken literally."""
    return " ".join(_word(word.replace("%", "%%").replace("$", "$$")) for word in words)


def _word(word: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_./:=,@%$+-]+", word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

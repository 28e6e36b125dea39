"""The store of a config and its servers, and what becomes of a version once it is published."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.config import Config
from serving.labels import promote_published
from serving.lifecycle import expire
from serving.rollout import Place

__all__ = ["after_publication", "own_address", "place_of"]


def place_of(config: Config, say: Callable[[str], None]) -> Place:
    """Returns the place of a config's model; `say` is told of each step of what is done there."""
    serve = config.serve
    return Place(
        store=config.store().absolute(),
        servers=serve.servers or (own_address(config),),
        poll_s=serve.poll_s,
        load_timeout_s=serve.load_timeout_s,
        say=say,
    )


def own_address(config: Config) -> str:
    """Returns where the server of this config is asked."""
    serve = config.serve
    address = f"{serve.host}:{serve.rest_port}" if serve.rest_port else f"grpc://{serve.host}:{serve.port}"
    return address.replace("0.0.0.0", "127.0.0.1")


def after_publication(config: Config, version: int, *, why: str, say: Callable[[str], None]) -> None:
    """Promotes a version that was just published, as `export.promote` says, then removes what is kept no longer.

    Raises:
        ServingError: if a running server does not load the version; what it served, it goes on serving.
        ArtefactError: if its memory does not hold the version.
    """
    place = place_of(config, say)
    if config.export.promote != "none":
        done = promote_published(place, version, config.export.promote, why=why, memory=config.serve.memory_check)
        if done:
            say(done)
    if config.export.retention is not None:
        for removed in expire(place, config.export.retention):
            say(f"version {removed} is removed: export.retention")

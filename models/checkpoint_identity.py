"""To which models a checkpoint belongs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.ranking_model import RankingModel
from preprocessing.errors import ArtefactError

__all__ = ["FORMAT", "check_identity", "identity", "optimizer_kinds"]

FORMAT = 2
# What shapes the weights; the rest of a spec may change between save and load.
_SHAPING = ("kind", "embedding_dim", "hidden_units", "batch_norm", "attention", "position")
_SHAPING_ONE = {"deepfm": (), "wide_deep": (), "dcn": ("cross_layers",), "dlrm": ("bottom_units",)}


def identity(model: RankingModel) -> dict[str, Any]:
    """Returns what must be equal in a model to take a checkpoint's weights."""
    shaping = {*_SHAPING, *_SHAPING_ONE.get(model.spec.kind, ("params",))}
    spec = model.spec.model_dump(mode="json", include=shaping)
    return {"schema": model.schema.fingerprint(), **{f"model.{key}": value for key, value in spec.items()}}


def optimizer_kinds(model: RankingModel) -> dict[str, str]:
    """Returns the optimizer of each group, which must be equal to take its slots."""
    kinds = {storage.group: storage.optimizer.kind for storage in model.tables.plan.storages}
    return {**kinds, "dense": model.optimizers.dense.kind}


def check_identity(folder: Path, model: RankingModel, *, manifest: Mapping[str, Any], slots: bool) -> None:
    """Refuses a checkpoint of another model.

    Raises:
        ArtefactError: with all differences.
    """
    if manifest.get("format") != FORMAT:
        raise ArtefactError(f"{folder} is not a checkpoint of format {FORMAT}: format {manifest.get('format')!r}")
    saved, wanted = dict(manifest["identity"]), identity(model)
    if slots:
        saved |= {f"optimizer of {group}": kind for group, kind in manifest["optimizers"].items()}
        wanted |= {f"optimizer of {group}": kind for group, kind in optimizer_kinds(model).items()}
    differences = [
        f"{key} is {saved.get(key)!r} there and {wanted.get(key)!r} here"
        for key in sorted(saved.keys() | wanted.keys())
        if saved.get(key) != wanted.get(key)
    ]
    if differences:
        raise ArtefactError(f"checkpoint {folder} is of another model: {'; '.join(differences)}; train anew")

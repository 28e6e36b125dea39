"""A small valid config as a tree, for tests to change."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

_TREE: dict[str, Any] = {
    "name": "tiny",
    "work_dir": "work",
    "data": {
        "root": ".",
        "time_zone": "UTC",
        "sources": {
            "log": {
                "paths": "log.csv",
                "columns": {
                    "user": "string",
                    "item": "string",
                    "clicked": {"type": "int64", "required": True},
                    "price": "float64",
                    "seen_at": {"type": "timestamp", "unit": "ms"},
                },
            },
            "items": {"paths": "items.csv", "columns": {"item": "string", "category": "string"}},
        },
        "impressions": "log",
        "joins": [{"source": "items", "key": "item"}],
        "roles": {"user": "user", "item": "item", "event_time": "seen_at"},
        "labels": [{"name": "click", "column": "clicked"}],
        "split": {"kind": "time", "train_until": "2026-01-03", "valid_until": "2026-01-04", "test_until": "2026-01-05"},
    },
    "features": [
        {"name": "user", "kind": "categorical"},
        {"name": "item", "kind": "categorical"},
        {"name": "category", "kind": "categorical"},
        {"name": "price", "kind": "numeric"},
    ],
    "model": {"embedding_dim": 4, "hidden_units": [8]},
    "train": {"batch_size": 64, "epochs": 1},
}


def tiny_tree() -> dict[str, Any]:
    """Returns a fresh copy."""
    return copy.deepcopy(_TREE)


def write_config(folder: Path, tree: dict[str, Any]) -> Path:
    """Returns the path of a YAML file with `tree` in it."""
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(tree, allow_unicode=True), encoding="utf-8")
    return path

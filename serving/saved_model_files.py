"""Whether a folder holds a whole SavedModel, and a copy of it the same files."""

from __future__ import annotations

import re
from pathlib import Path

from preprocessing.errors import ArtefactError
from serving.version_files import files_of

__all__ = ["check_same_files", "check_saved_model"]

_SHARD = re.compile(r"variables\.data-(\d{5})-of-(\d{5})")


def check_same_files(export: Path, copied: Path) -> None:
    """Raises ArtefactError if a copy lacks files, has others, or of another size."""
    expected, found = files_of(export), files_of(copied)
    if expected != found:
        wrong = sorted(set(expected.items()) ^ set(found.items()))[0][0]
        raise ArtefactError(f"{copied / wrong} differs from {export / wrong}: was the export changed meanwhile?")


def check_saved_model(export: Path) -> None:
    """Raises ArtefactError if files of a SavedModel are missing; whether it runs is for the gate to say."""
    graph = export / "saved_model.pb"
    if not graph.is_file() or not graph.stat().st_size:
        raise ArtefactError(f"{export} is not a SavedModel: saved_model.pb is missing or empty")
    variables = export / "variables"
    if not variables.is_dir():
        return
    found = [match for path in variables.iterdir() if (match := _SHARD.fullmatch(path.name))]
    complete = bool(found) and len(found) == int(found[0][2]) and (variables / "variables.index").is_file()
    if not complete and any(variables.iterdir()):
        raise ArtefactError(f"{variables} is incomplete: it needs variables.index and every shard; export again")

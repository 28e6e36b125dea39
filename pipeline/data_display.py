"""What a person sees of exported and replayed rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.replay import Exported, Replayed
from preprocessing.shown_text import shown_text

__all__ = ["exported", "replayed"]

_SHOWN = 20  # rows that are still wrong, of each file


def exported(files: Sequence[Exported], folder: Path, config: Path) -> None:
    """Prints the files of rejected rows and what to do with them."""
    console = Console(highlight=False)
    if not files:
        console.print(f"no rejected rows: nothing to repair (rankmill preprocess {config} finds them)", markup=False)
        return
    table = Table("file", "rows", "reasons")
    for file in files:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(file.reasons.items()))
        table.add_row(Text(str(file.path)), f"{file.rows:,}", Text(reasons))
    console.print(table)
    console.print(f"repair the rows, then: rankmill replay {config} {folder}", markup=False, soft_wrap=True)


def replayed(files: Sequence[Replayed], config: Path) -> None:
    """Prints what became of repaired rows, and what is still wrong with which."""
    console = Console(highlight=False)
    for file in files:
        for line, _, column, why, text in file.wrong[:_SHOWN]:
            where = f"{file.path}, line {line}" + (f", column {column!r}" if column else "")
            console.print(f"{where}: {why}: {shown_text(text.encode())}", markup=False, soft_wrap=True)
        if len(file.wrong) > _SHOWN:
            console.print(f"{file.path}: {len(file.wrong) - _SHOWN} more rows are still wrong", markup=False)
    table = Table("source", "accepted", "still wrong", "taken out", "replayed before")
    for file in files:
        counts = (file.accepted, len(file.wrong), file.left_out, file.known)
        table.add_row(file.source, *(f"{count:,}" for count in counts))
    console.print(table)
    for file in files:
        if file.stored is not None:
            console.print(f"{file.source}: stored as {file.stored}", markup=False, soft_wrap=True)
    if any(file.accepted for file in files):
        console.print(f"the next run reads them: rankmill run {config}", markup=False, soft_wrap=True)

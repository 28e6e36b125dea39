"""What a person sees while the line works: bars with rows per second and time left, a table at the end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from pipeline.artefacts import Artefact, Plan
from pipeline.gate import Verdict
from pipeline.progress_lines import LAUNCHER, progress_line
from pipeline.train_events import Evaluated, Finished, Lost, Resumed, Started, Stepped, TrainEvent, Warned
from preprocessing.manifest import exists
from preprocessing.spec import SPLITS

__all__ = ["Bar", "Display", "shown"]

# Below it a figure is shown by its order of magnitude.
_TINY = 5e-4

Bar = Callable[..., None]

_METRICS = (
    "auc",
    "gauc",
    "pr_auc",
    "ndcg",
    "recall",
    "log_loss",
    "normalised_entropy",
    "calibration",
    "ece",
    "num_rows",
    "agreement",
)


class _RateColumn(ProgressColumn):
    """Units a second."""

    def render(self, task: Task) -> Text:
        """Returns such as '12,345 rows/s'."""
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} {task.fields['unit']}/s" if speed else "", style="cyan")


class Display:
    """Draws on standard output; bars only where that is a terminal."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        # A terminal that cannot show a character would end the command with an error.
        self._running, self._done = ("▶", "✓") if self.console.encoding.startswith("utf") else (">", "*")

    @contextlib.contextmanager
    def stage(self, plan: Plan) -> Iterator[None]:
        """Says which stage runs, or that it is done already."""
        if exists(plan.folder):
            self.console.print(
                f"[green]{self._done}[/] {plan.stage:<9} [dim]done before, {plan.folder}[/]", soft_wrap=True
            )
        else:
            self.console.print(f"[bold]{self._running}[/] {plan.stage:<9} [dim]{plan.folder}[/]", soft_wrap=True)
        yield

    @contextlib.contextmanager
    def bar(self, title: str, *, total: int | None, unit: str = "rows") -> Iterator[Bar]:
        """Draws a bar while the block runs; the value is called as bar(completed, note="...", total=...)."""
        columns = (
            TextColumn("  {task.description:<9}"),
            BarColumn(bar_width=30),
            TextColumn("{task.completed:>11,.0f} {task.fields[unit]}"),
            _RateColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}", style="dim"),
        )
        with Progress(*columns, console=self.console, disable=not self.console.is_terminal) as progress:
            task = progress.add_task(title, total=total, unit=unit, note="")

            def move(completed: float, *, note: str | None = None, total: float | None = None) -> None:
                expected = progress.tasks[0].total if total is None else total
                progress.update(
                    task,
                    completed=completed,
                    total=None if expected is None else max(expected, completed),
                    note=progress.tasks[0].fields["note"] if note is None else note,
                )

            yield move
            progress.update(task, total=progress.tasks[0].completed)  # an estimate before: what came is all there is

    @contextlib.contextmanager
    def training(self) -> Iterator[Callable[[TrainEvent], None]]:
        """Draws the bar of a training run from its events; a launched process has the launcher draw it."""
        if os.environ.get(LAUNCHER):
            yield self._launched_event
            return
        with self.bar("train", total=None, unit="steps") as bar:
            yield lambda event: self._train_event(event, bar)

    def _launched_event(self, event: TrainEvent) -> None:
        def tell(completed: float, *, note: str | None = None, total: float | None = None) -> None:
            line = progress_line(completed, note=note, total=total)
            self.console.file.write(line + "\n")
            self.console.file.flush()

        self._train_event(event, tell)

    def _train_event(self, event: TrainEvent, bar: Bar) -> None:
        match event:
            case Resumed(step=step, checkpoint=checkpoint, skipped=skipped):
                self.console.print(f"  resumed at step {step} from {checkpoint}", soft_wrap=True)
                for path in skipped:
                    self.console.print(f"  [yellow]checkpoint {path} could not be read[/]", soft_wrap=True)
            case Started(step=step, total_steps=total):
                bar(step, total=total, note="building the graph")
            case Stepped(step=step, loss=loss, rows_per_s=rate):
                bar(step, note=f"loss {loss:.4f}" + ("" if rate is None else f"  {rate:,.0f} rows/s"))
            case Evaluated(step=step, metrics=metrics, is_best=is_best):
                figures = "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())
                best = "  [green]best so far[/]" if is_best else ""
                self.console.print(f"  valid at step {step}: {figures}{best}", soft_wrap=True)
            case Warned(text=text) | Lost(text=text):
                self.console.print(f"  [yellow]{escape(text)}[/]", soft_wrap=True)
            case Finished(result=result):
                why = ", stopped early" if result.stopped_early else ""
                self.console.print(
                    f"  best step {result.best_step} of {result.num_steps}{why}; {result.rows_per_s:,.0f} rows/s"
                )

    def verdicts(self, verdicts: Sequence[Verdict]) -> None:
        """Prints each rule of the gate with its value and bounds."""
        if not verdicts:
            self.console.print("[dim]the gate has no rules[/]")
            return
        table = Table("gate", "value", "bound", "verdict", "")
        for verdict in verdicts:
            mark = "[green]passed[/]" if verdict.passed else "[bold red]failed[/]"
            value = "" if verdict.value is None else shown(verdict.value)
            table.add_row(escape(verdict.rule), value, verdict.bound, mark, escape(verdict.note))
        self.console.print(table)

    def summary(
        self,
        *,
        stages: Sequence[Artefact],
        metrics: Mapping[str, Mapping[str, Any]],
        verdicts: Sequence[Verdict],
        store: Path,
        version: int | None,
        report: Path,
    ) -> None:
        """Prints the tables at the end of a run."""
        table = Table("stage", "state", "seconds", "artefact")
        for stage in stages:
            state, seconds = ("skipped", "") if stage.skipped else ("done", f"{stage.seconds:.1f}")
            table.add_row(stage.stage, state, seconds, str(stage.folder))
        self.console.print(table)
        metrics = {split: metrics[split] for split in SPLITS if split in metrics}
        figures = Table("metric", *metrics)
        for name in _METRICS:
            if any(name in split for split in metrics.values()):
                figures.add_row(name, *(_figure(name, split.get(name), split) for split in metrics.values()))
        for label in metrics["test"].get("labels", {}) if "test" in metrics else ():
            of_label = [split["labels"][label] for split in metrics.values()]
            for name in ("auc", "log_loss", "calibration"):
                figures.add_row(f"{name} of {label}", *(_figure(name, one.get(name), one) for one in of_label))
        self.console.print(figures)
        self.verdicts(verdicts)
        self.console.print(f"report: {report}", soft_wrap=True)
        if version is not None:
            self.console.print(f"published as version {version} in {store}", soft_wrap=True)


def shown(value: float | None) -> str:
    """Returns a metric as text; of tiny ones the order of magnitude."""
    if value is None:
        return "undefined"
    return f"{value:.1e}" if 0 < abs(value) < _TINY else f"{value:.4f}"


def _figure(name: str, value: float | None, split: Mapping[str, Any]) -> str:
    if value is None:
        return shown(value)
    if name == "num_rows":
        return f"{value:,.0f}"
    between = split.get("intervals", {}).get(name)
    spread = "" if between is None else f" [dim]{between[0]:.4f} to {between[1]:.4f}[/]"
    return f"{shown(value)}{spread}"

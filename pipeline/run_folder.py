"""The checkpoints of a training run: which to resume from, which to keep.

    FOLDER/resume/<step>   weights, slots and state after that step
    FOLDER/best/<step>     the same of the evaluation with the best figure

The best is written before the checkpoint that knows of it, and an older best removed after: whatever is killed
between, the best that a checkpoint names is there.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from models.checkpoint import CheckpointWriter, load_checkpoint, prune_checkpoints, unfinished_checkpoints
from models.config import ModelSpec
from models.ranking_model import RankingModel
from pipeline.train_spec import TrainSpec
from pipeline.train_state import TrainState, state_of
from pipeline.workers import ALONE, Workers
from preprocessing.dataset import Dataset
from preprocessing.errors import ArtefactError, CorruptError
from preprocessing.manifest import digest, exists

__all__ = ["Loaded", "RunFolder", "run_digest"]

# Settings that may change between two runs of a folder without changing its weights.
_FREE_SETTINGS = {
    "steps_per_execution",
    "evaluate_batch_size",
    "checkpoint_every_steps",
    "keep_checkpoints",
    "tensorboard",
    "profile",
}


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A state, the checkpoint it came from, and others that were left unfinished or could not be read."""

    state: TrainState
    checkpoint: Path
    skipped: tuple[Path, ...]


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """Where a run keeps its checkpoints; `run` is the digest of all that its weights follow from."""

    folder: Path
    run: str
    keep: int
    writer: CheckpointWriter
    workers: Workers = ALONE

    def save(self, state: TrainState) -> None:
        """Starts to write a checkpoint to resume from, as the best too if it is; old ones are removed when it is there.

        Every worker calls it; it returns once the weights are copied. What fails after that, the next call raises.
        """
        progress = {"step": state.step, "run": self.run, "state": state.as_json()}
        folders = [self._resume / str(state.step)]
        if state.best_step == state.step:
            folders.insert(0, self._best / str(state.step))
        self.writer.save(folders, progress=progress, then=lambda: self._prune(has_best=state.best_step is not None))

    def _prune(self, *, has_best: bool) -> None:
        prune_checkpoints(self._resume, keep=self.keep, spare=self.writer.session)
        if has_best:
            prune_checkpoints(self._best, keep=1, spare=self.writer.session)

    def load(self, model: RankingModel) -> Loaded | None:
        """Restores the newest readable checkpoint into the model and removes what is newer; None if there is none.

        Raises:
            ArtefactError: if the folder is of a run with other data or settings.
            CorruptError: if there are checkpoints and none can be read.
            TrainingError: if another worker found another checkpoint.
        """
        loaded = self._newest_readable(model)
        self.workers.agree(-1 if loaded is None else loaded.state.step, "the checkpoint to go on from")
        if loaded is not None and self.workers.is_chief:
            self._remove_after(loaded.state.step)
        return loaded

    def _newest_readable(self, model: RankingModel) -> Loaded | None:
        skipped: list[Path] = []
        for checkpoint in sorted(_steps(self._resume), key=lambda path: int(path.name), reverse=True):
            try:
                progress = load_checkpoint(checkpoint, model)
            except CorruptError:
                skipped.append(checkpoint)
                continue
            passed_over = (*unfinished_checkpoints(self._resume), *skipped)
            return Loaded(self._state(checkpoint, progress), checkpoint, passed_over)
        if skipped:
            raise CorruptError(
                f"none of the checkpoints in {self._resume} can be read; remove {self.folder} to train from the start"
            )
        return None

    def load_best(self, model: RankingModel, state: TrainState) -> Path:
        """Restores the best weights into the model and returns their checkpoint."""
        self.writer.wait()
        checkpoint = self._best / str(state.best_step)
        load_checkpoint(checkpoint, model, slots=False)
        return checkpoint

    def newest_step(self) -> int | None:
        """Returns the step of the newest checkpoint to resume from, as far as this process knows."""
        self.writer.settle()
        return max((int(path.name) for path in _steps(self._resume)), default=None)

    @property
    def _resume(self) -> Path:
        return self.folder / "resume"

    @property
    def _best(self) -> Path:
        return self.folder / "best"

    def _state(self, checkpoint: Path, progress: dict[str, Any]) -> TrainState:
        if progress.get("run") != self.run:
            raise ArtefactError(
                f"{checkpoint} is of a run with other data, model or training settings; "
                f"give this run a folder of its own, or remove {self.folder}"
            )
        return state_of(progress["state"])

    def _remove_after(self, step: int) -> None:
        """Removes checkpoints of steps that will be done again: a finished folder is never written over."""
        for checkpoint in [*_steps(self._resume), *_steps(self._best)]:
            if int(checkpoint.name) > step:
                shutil.rmtree(checkpoint)


def run_digest(dataset: Dataset, *, model: ModelSpec, train: TrainSpec, seed: int) -> str:
    """Returns a digest of all that the weights follow from; the strategy changes no answer, so it is left out."""
    shards = {name: [(shard.records, shard.num_rows) for shard in shards] for name, shards in dataset.splits.items()}
    settings = train.model_dump(mode="json", exclude=_FREE_SETTINGS)
    # Of the embeddings' placement and exchange only a narrower dtype changes weights.
    free = {"embeddings": set(type(model.embeddings).model_fields) - {"exchange_dtype"}}
    network = model.model_dump(mode="json", exclude=free)
    return digest([dataset.schema.fingerprint(), shards, network, settings, seed])


def _steps(root: Path) -> list[Path]:
    """Returns the finished checkpoints in a folder."""
    if not root.is_dir():
        return []
    return [path for path in root.iterdir() if path.name.isdecimal() and exists(path)]

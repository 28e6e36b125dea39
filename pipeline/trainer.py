"""A training run: steps, evaluations and checkpoints, until there are no more steps or no better weights.

The unit is the step. Everything that a step depends on besides the weights (rows, learning rate, dropout) follows
from (seed, step), so a run that was killed goes on from its last checkpoint to the weights of an uninterrupted one.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from models.build import build_model
from models.checkpoint import CheckpointWriter
from models.config import ModelSpec
from models.ranking_model import RankingModel
from pipeline.batch_scaling import scaled_optimizers
from pipeline.cluster import Cluster
from pipeline.embedding_norms import row_norms
from pipeline.engine import Engine, in_step
from pipeline.label_classes import check_classes, check_rows
from pipeline.learning_rate import learning_rate_scales
from pipeline.non_finite import batch_records, first_suspect, told
from pipeline.parameter_servers import on_servers, servers_of
from pipeline.plateau import check_plateau
from pipeline.profile_trace import ProfileTrace
from pipeline.record_faults import reading
from pipeline.run_folder import RunFolder, run_digest
from pipeline.split_scores import SplitScores, split_metrics, write_scores
from pipeline.step_plan import StepPlan, plan_steps
from pipeline.strategy import build_strategy
from pipeline.train_events import Evaluated, Finished, Resumed, Started, Stepped, TrainEvent, TrainResult, Warned
from pipeline.train_log import TrainLog
from pipeline.train_spec import StrategySpec, TrainSpec
from pipeline.train_state import TrainState
from pipeline.watched import Mark, watched
from pipeline.workers import ALONE, Workers, workers_of
from preprocessing.dataset import Dataset
from preprocessing.errors import TrainingError

__all__ = ["train"]

_SCORED_SPLITS = ("valid", "test")


def train(
    dataset: Dataset,
    *,
    model: ModelSpec,
    train: TrainSpec,
    strategy: StrategySpec,
    seed: int,
    folder: Path,
    observe: Callable[[TrainEvent], None],
    cluster: Cluster | None = None,
) -> TrainResult:
    """Trains in `folder`, or goes on there, and returns where the best weights and their scores are.

    Call it in a process of its own if `strategy` splits the CPU or has a cluster; then in each process of it, on one
    shared `folder`. The split 'valid' chooses the best weights; without one they are the last.

    Raises:
        ConfigError: if a device does not exist, or a learning rate waits for evaluations that cannot be.
        DataError: if the training split is empty, or the labels cannot be learned from (LabelError).
        ArtefactError: if the folder is of another run, or files are damaged (CorruptError).
        TrainingError: if a loss is not finite, or another process of the cluster was lost.
    """
    check_rows(dataset)
    check_plateau(train.learning_rate, num_valid_rows=dataset.num_rows("valid"))
    with watched(folder, cluster, spec=strategy.watchdog, observe=observe) as mark:
        distribution = build_strategy(strategy, cluster=cluster)
        check_classes(dataset, train)
        folder.mkdir(parents=True, exist_ok=True)
        network, engine, workers = _prepared(
            dataset, distribution, cluster, model=model, spec=train, strategy=strategy, seed=seed
        )
        run = _Run(
            dataset=dataset,
            spec=train,
            model=network,
            engine=engine,
            workers=workers,
            plan=plan_steps(dataset.num_rows("train"), train),
            checkpoints=RunFolder(
                folder,
                run=run_digest(dataset, model=model, train=train, seed=seed),
                keep=train.keep_checkpoints,
                writer=CheckpointWriter(network),
                workers=workers,
            ),
            log=TrainLog(folder, train.tensorboard) if workers.is_chief else None,
            observe=observe if workers.is_chief else lambda _event: None,
            mark=mark,
            seed=seed,
            profile=ProfileTrace(folder / "tensorboard", train.profiled_steps if workers.is_chief else None),
        )
        state = run.to_end(run.resumed())
        result = run.result(state, folder)
    run.observe(Finished(result))
    return result


def _prepared(
    dataset: Dataset,
    distribution: tf.distribute.Strategy,
    cluster: Cluster | None,
    *,
    model: ModelSpec,
    spec: TrainSpec,
    strategy: StrategySpec,
    seed: int,
) -> tuple[RankingModel, Engine, Workers]:
    """Returns the model, what drives it, and the workers that go in step with this process."""
    build = functools.partial(
        build_model,
        dataset.schema,
        model,
        optimizers=scaled_optimizers(spec, model),
        seed=seed,
        strategy=distribution,
        label_weights=spec.label_weights,
        accumulate_steps=spec.accumulate_steps,
    )
    if cluster is not None and strategy.kind == "parameter_server":
        network = build(servers=servers_of(cluster, min_shard_bytes=strategy.min_shard_bytes))
        engine = on_servers(
            dataset,
            model=network,
            strategy=distribution,
            spec=spec,
            seed=seed,
            num_workers=len(cluster.jobs["worker"]),
        )
        return network, engine, ALONE
    network = build()
    workers = ALONE
    if cluster is not None:
        workers = workers_of(distribution, index=cluster.worker, count=len(cluster.members))
    engine = in_step(dataset, model=network, strategy=distribution, workers=workers, spec=spec, seed=seed)
    return network, engine, workers


@dataclasses.dataclass(frozen=True)
class _Run:
    """One run and what it works with."""

    dataset: Dataset
    spec: TrainSpec
    model: RankingModel
    engine: Engine
    workers: Workers
    plan: StepPlan
    checkpoints: RunFolder
    log: TrainLog | None
    observe: Callable[[TrainEvent], None]
    mark: Mark
    seed: int
    profile: ProfileTrace

    def resumed(self) -> TrainState:
        """Returns the state to start from, its weights restored."""
        self.mark(0, "looking for a checkpoint")
        loaded = self.checkpoints.load(self.model)
        state = TrainState() if loaded is None else loaded.state
        if loaded is not None:
            self.observe(Resumed(state.step, checkpoint=loaded.checkpoint, skipped=loaded.skipped))
        self.observe(
            Started(
                step=state.step,
                total_steps=self.plan.total_steps,
                steps_per_epoch=self.plan.steps_per_epoch,
                num_rows=self.dataset.num_rows("train"),
                num_replicas=self.engine.num_replicas,
            )
        )
        return state

    def to_end(self, state: TrainState) -> TrainState:
        """Trains until the last step, or until evaluations do not get better."""
        try:
            with reading(self.dataset, "train"):
                while not self._is_done(state):
                    state = self._through_epoch(state)
        finally:
            self.profile.close()
            self.checkpoints.writer.settle()
        if self.log is not None:
            self.log.close()
        return state

    def result(self, state: TrainState, folder: Path) -> TrainResult:
        """Scores the splits by the best weights and writes the scores."""
        self.mark(state.step, "scoring by the best weights")
        checkpoint = self.checkpoints.load_best(self.model, state)
        metrics, scores = {}, {}
        for split in _SCORED_SPLITS:
            if self.dataset.num_rows(split):
                scored = self.engine.scores(split)
                metrics[split] = split_metrics(scored, self.dataset.schema.labels)
                scores[split] = folder / f"scores-{split}.npy"
                if self.workers.is_chief:
                    write_scores(scores[split], scored.scores)
        return TrainResult(
            checkpoint=checkpoint,
            best_step=int(checkpoint.name),
            num_steps=state.step,
            stopped_early=state.stopped_early,
            metrics=metrics,
            scores=scores,
            seconds=state.seconds,
            rows_per_s=state.rows_per_s() or 0.0,
        )

    def _is_done(self, state: TrainState) -> bool:
        return state.stopped_early or state.step >= self.plan.total_steps

    def _through_epoch(self, state: TrainState) -> TrainState:
        """Trains to the end of the epoch that `state` is in, or of the run."""
        epoch, start_step = divmod(state.step, self.plan.steps_per_epoch)
        batches = self.engine.batches(epoch, start_step)
        while state.step // self.plan.steps_per_epoch == epoch and not self._is_done(state):
            state = self._executed(state, batches)
            if self.plan.checkpoints_at(state.step):
                self._check_weights(state.step)
                state = self._evaluated(state) if self.plan.evaluates_at(state.step) else state
                self.mark(state.step, "writing a checkpoint")
                self.checkpoints.save(state)
        return state

    def _executed(self, state: TrainState, batches: Iterator[Any]) -> TrainState:
        """Runs the steps up to the next stop."""
        steps = np.arange(state.step, self.plan.next_stop(state.step))
        scales = learning_rate_scales(
            self.spec.learning_rate,
            warmup_steps=self.spec.warmup_steps,
            steps=steps,
            steps_per_epoch=self.plan.steps_per_epoch,
            total_steps=self.plan.total_steps,
            plateau_scale=state.plateau.scale,
        )
        self.mark(state.step, f"steps {steps[0] + 1} to {steps[-1] + 1}")
        started = time.perf_counter()
        with self.profile.around(int(steps[0]) + 1, int(steps[-1]) + 1):
            figures = self.engine.execute(batches, state.step, scales)
        losses, out_of_range = figures[:, 0], figures[:, 1]
        seconds = time.perf_counter() - started
        self._check_losses(losses, flags=figures[:, 2:], first_step=state.step)
        count = int(out_of_range.sum())
        if count and not state.out_of_range:
            self.observe(
                Warned(f"{count} ids that no table has by step {steps[-1] + 1}: looked up as out of vocabulary")
            )
        state = state.after_steps(losses.tolist(), seconds=seconds, num_rows=self._rows_of(steps), out_of_range=count)
        self._tell_steps(state, losses, learning_rate=float(scales[-1]) * self.model.optimizers.dense.learning_rate)
        return state

    def _rows_of(self, steps: npt.NDArray[np.int64]) -> int:
        """Returns the rows of consecutive steps of one epoch, without padding."""
        first = int(steps[0]) % self.plan.steps_per_epoch * self.spec.batch_size
        return min(len(steps) * self.spec.batch_size, self.dataset.num_rows("train") - first)

    def _tell_steps(self, state: TrainState, losses: npt.NDArray[np.float64], *, learning_rate: float) -> None:
        rate = state.rows_per_s()
        if self.log is not None:
            self.log.stepped(
                state.step,
                losses=losses.tolist(),
                learning_rate=learning_rate,
                rows_per_s=rate,
                out_of_range=state.out_of_range,
                loss_scale=self.model.loss_scale_figures(),
            )
        left = (self.plan.total_steps - state.step) * self.spec.batch_size
        self.observe(
            Stepped(
                step=state.step,
                total_steps=self.plan.total_steps,
                epoch=(state.step - 1) // self.plan.steps_per_epoch,
                loss=float(losses.mean()),
                rows_per_s=rate,
                eta_s=left / rate if rate else None,
            )
        )

    def _evaluated(self, state: TrainState) -> TrainState:
        """Scores the valid split, if there is one, and tells whether these are the best weights."""
        self.mark(state.step, "scoring the valid split")
        labels = self.dataset.schema.labels
        scored = self._valid_scores(state.step) if self.dataset.num_rows("valid") else None
        metrics = {} if scored is None else split_metrics(scored, labels)
        state = state.after_evaluation(
            metrics, rule=self.spec.early_stopping, epoch=state.step / self.plan.steps_per_epoch
        ).with_rate(self.spec.learning_rate, metrics=metrics, rule=self.spec.early_stopping)
        if self.log is not None:
            norms = row_norms(self.model.tables) if self.spec.tensorboard.histograms else {}
            self.log.evaluated(state.step, metrics=metrics, weights=self.model.dense_variables, norms=norms)
            if scored is not None:
                self.log.scored(state.step, scored, labels)
            self.log.history(state.evaluations)
        if scored is not None:
            self.observe(Evaluated(state.step, metrics=metrics, is_best=state.best_step == state.step))
        return state

    def _valid_scores(self, step: int) -> SplitScores:
        scored = self.engine.scores("valid")
        if not np.isfinite(scored.scores).all():
            raise self._not_finite("scores of the valid split are not finite after it", step=step - 1)
        return scored

    def _check_losses(
        self, losses: npt.NDArray[np.float64], *, flags: npt.NDArray[np.float64], first_step: int
    ) -> None:
        """Stops at the first loss that is not finite; no checkpoint is written after it."""
        wrong = np.flatnonzero(~np.isfinite(losses))
        if wrong.size:
            first = int(wrong[0])
            epoch, step = divmod(first_step + first, self.plan.steps_per_epoch)
            records = batch_records(
                self.dataset,
                "train",
                batch_size=self.spec.batch_size,
                seed=self.seed,
                epoch=epoch,
                step=step,
                shuffle_rows=self.spec.shuffle_rows,
            )
            found = told(records, first_suspect(self.model.suspects, flags[first]))
            raise self._not_finite(f"the loss is {losses[first]}; {found}", step=first_step + first)

    def _check_weights(self, step: int) -> None:
        """Stops before weights are saved that the last step broke; its own loss cannot show that."""
        named = [(f"weights {name!r}", variable) for name, variable in self.model.dense_variables.items()]
        named += [("rows of embedding tables", variable) for variable in self.model.tables.weights()]
        for name, variable in named:
            if not np.isfinite(tf.reduce_sum(variable)):  # a sum needs no memory, and hides no number
                raise self._not_finite(f"the {name} are not finite after it", step=step - 1)

    def _not_finite(self, found: str, *, step: int) -> TrainingError:
        kept = self.checkpoints.newest_step()
        return TrainingError(
            f"step {step} (epoch {step // self.plan.steps_per_epoch}): {found}; "
            + ("no checkpoint was written yet" if kept is None else f"the checkpoint after {kept} steps is kept")
            + "; lower train.optimizers' learning rates, add train.warmup_steps, or look for extreme dense inputs"
        )

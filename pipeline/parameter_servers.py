"""Training on parameter servers: a coordinator hands out steps, workers do them on their own, servers hold weights.

The coordinator reads the records of each global batch and sends them, serialised, with the step's number and
learning rate. So the plan of steps is that of every other strategy: each row is sent once, and with one worker the
steps come in their order. A worker that dies takes its step with it; the coordinator gives that step to another,
and its rows may then count twice. The steps of one execution are in the air together, `train.steps_per_execution` of
them: a step's weights may be older by as many steps as there are workers.

Shapes: P rows of a global batch, N steps of an execution, K labels.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from models.partitioned_tables import ParameterServers
from models.ranking_model import RankingModel
from pipeline.cluster import Cluster
from pipeline.engine import Engine
from pipeline.records import evaluation_records, parse_batch, training_records
from pipeline.split_scores import SplitScores, collect_scores
from pipeline.train_spec import StrategySpec, TrainSpec
from pipeline.train_step import step_figures
from pipeline.watched import watched_server
from preprocessing.dataset import Dataset
from preprocessing.schema import LABELS_KEY, WEIGHT_KEY

__all__ = ["on_servers", "serve_task", "servers_of"]

# A server whose threads all wait for others answers nobody: on few cores TensorFlow's default is too low.
_LEAST_THREADS = 8


def servers_of(cluster: Cluster, *, min_shard_bytes: int) -> ParameterServers:
    """Returns the devices of a cluster's servers."""
    count = len(cluster.jobs["ps"])
    return ParameterServers(
        tuple(f"/job:ps/replica:0/task:{i}/device:CPU:0" for i in range(count)), min_shard_bytes=min_shard_bytes
    )


def serve_task(cluster: Cluster, folder: Path, *, strategy: StrategySpec) -> None:
    """Runs a worker or a parameter server until the coordinator is done.

    Raises:
        TrainingError: if the coordinator failed or gives no sign of life.
    """
    config = tf.compat.v1.ConfigProto()
    config.inter_op_parallelism_threads = max(_LEAST_THREADS, 2 * len(cluster.names))
    tf.distribute.Server(
        tf.train.ClusterSpec({job: list(addresses) for job, addresses in cluster.jobs.items()}),
        job_name=cluster.job,
        task_index=cluster.index,
        protocol="grpc",
        config=config,
    )
    watched_server(folder, cluster, spec=strategy.watchdog)


def on_servers(
    dataset: Dataset,
    *,
    model: RankingModel,
    strategy: tf.distribute.Strategy,
    spec: TrainSpec,
    seed: int,
    num_workers: int,
) -> Engine:
    """Returns the engine of the coordinator of `strategy`."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    _end_without_the_dead(coordinator)

    @tf.function
    def train_step(records: tf.Tensor, step: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        batch = parse_batch(records, dataset.schema)
        return step_figures(model.train_step(batch, step=step, learning_rate_scale=scale))

    @tf.function
    def score(records: tf.Tensor) -> tf.Tensor:
        batch = parse_batch(records, dataset.schema)
        return tf.concat([tf.sigmoid(model.logits(batch)), batch[LABELS_KEY], batch[WEIGHT_KEY]], axis=1)

    def batches(epoch: int, start_step: int) -> Iterator[Any]:
        return iter(
            training_records(
                dataset,
                "train",
                batch_size=spec.batch_size,
                seed=seed,
                epoch=epoch,
                shuffle_rows=spec.shuffle_rows,
                start_step=start_step,
            )
        )

    def execute(records: Iterator[Any], step: int, scales: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        figures = [
            coordinator.schedule(train_step, args=(next(records), tf.constant(step + i, tf.int64), tf.constant(scale)))
            for i, scale in enumerate(scales)
        ]
        coordinator.join()
        return np.stack([one.fetch() for one in figures])

    def scores(split: str) -> SplitScores:
        found = evaluation_records(dataset, split, batch_size=spec.evaluate_batch_size)
        return collect_scores(_in_order(coordinator, score, found, ahead=4 * num_workers), dataset, split)

    return Engine(batches, execute, scores, num_workers)


def _end_without_the_dead(coordinator: Any) -> None:
    """Lets a coordinator end although a worker died: by itself it waits, for ever, for that worker to come back.

    Its `stop` takes a lock that the thread which waits for the worker holds. What is done under the lock needs none.
    """
    handler = coordinator._cluster.failure_handler

    def stop() -> None:
        handler._should_preemption_thread_run = False
        handler._cluster_due_for_update_or_finish.set()

    handler.stop = stop


def _in_order(
    coordinator: Any, score: Callable[..., Any], batches: Iterable[tuple[tf.Tensor, tf.Tensor]], *, ahead: int
) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
    """Yields the scores of batches in their order, with some of them being worked on."""
    waiting: collections.deque[tuple[int, Any]] = collections.deque()
    for count, records in batches:
        waiting.append((int(count), coordinator.schedule(score, args=(records,))))
        if len(waiting) > ahead:
            done, value = waiting.popleft()
            yield done, np.asarray(value.fetch())
    for done, value in waiting:
        yield done, np.asarray(value.fetch())

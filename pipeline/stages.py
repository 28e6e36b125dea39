"""The stages of the line, in order: examples, dataset, train, export, evaluate. Each makes one artefact.

What an artefact follows from is in its key; so a change of the network makes no records anew, and a change of a
source makes anew what follows from it. `pipeline.line` runs them; the gate and the publication come after.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from models.config import NETWORK_KINDS
from pipeline.artefacts import Artefact, Plan, finish, open_artefact, partial_folder
from pipeline.cluster import find_cluster
from pipeline.cluster_stage import follow
from pipeline.config import Config
from pipeline.display import Display
from pipeline.example_stage import Inputs, examples_parts, find_inputs, make_examples_index, settled_as_of
from pipeline.export_stage import export_parts, export_saved_model, options_of
from pipeline.quiet import import_tensorflow
from preprocessing.dataset import Dataset, open_dataset
from preprocessing.errors import ArtefactError
from preprocessing.manifest import exists

__all__ = ["BEST", "SAVED_MODEL", "STAGES", "Inputs", "best_checkpoint", "find_inputs", "make", "plan"]

STAGES = ("examples", "dataset", "train", "export", "evaluate")
SAVED_MODEL = "saved_model"
BEST = "best"

# Raised when a change of our code changes what a stage writes: older artefacts are then made anew.
_CODE_VERSIONS = {"examples": 2, "dataset": 3, "train": 1, "export": 2, "evaluate": 3}


def plan(stage: str, config: Config, inputs: Inputs) -> Plan:
    """Returns the plan of a stage: everything that its artefact follows from.

    Raises:
        ArtefactError: if the examples, whose content decides, are not there.
    """
    root = Path(config.work_dir)
    before = {earlier: plan(earlier, config, inputs).key for earlier in _KEYED_BY[stage]}
    parts = {"code": _CODE_VERSIONS[stage], **before, **_OWN_INPUTS[stage](config, inputs)}
    return Plan(stage, root, parts, resumable=stage == "train")


# A dataset is keyed by the rows that it holds, not by all that the examples came from.
_KEYED_BY: dict[str, tuple[str, ...]] = {
    "examples": (),
    "dataset": (),
    "train": ("dataset",),
    "export": ("train",),
    "evaluate": ("export", "dataset"),
}
_NEEDS: dict[str, tuple[str, ...]] = {
    "examples": (),
    "dataset": ("examples",),
    "train": ("dataset",),
    "export": ("train",),
    "evaluate": ("export", "dataset"),
}


def _dataset_inputs(config: Config, inputs: Inputs) -> Mapping[str, Any]:
    rows = open_artefact(plan("examples", config, inputs)).content
    grows = config.preprocess.vocabulary == "grow"
    return {
        "rows": rows["splits"],
        "windows": rows["windows"] if grows else [],
        "features": [feature.model_dump(mode="json") for feature in config.features],
        "labels": [label.name for label in config.data.labels],
        "time_zone": config.data.time_zone,
        "negative_keep": _negative_keep(config),
    }


def _negative_keep(config: Config) -> float:
    return 1.0 if config.data.negative_sampling is None else config.data.negative_sampling.keep


def _train_inputs(config: Config, _: Inputs) -> Mapping[str, Any]:
    # Where it was trained is left out: `launch` trains what the config's own strategy would.
    sections = ("seed", "model", "train")
    parts = {name: config.model_dump(mode="json")[name] for name in sections}
    return parts if config.model.kind in NETWORK_KINDS else {**parts, "network": _source(config.model.kind)}


def _source(kind: str) -> str:
    from models.own_network import source_digest

    return source_digest(kind)


def _evaluate_inputs(config: Config, _: Inputs) -> Mapping[str, Any]:
    return {
        "evaluate": config.evaluate.model_dump(mode="json"),
        "user": config.data.roles.user,
        "request": config.data.roles.request,
        "seed": config.seed,
    }


_OWN_INPUTS = {
    "examples": examples_parts,
    "dataset": _dataset_inputs,
    "train": _train_inputs,
    "export": lambda config, _: export_parts(config),
    "evaluate": _evaluate_inputs,
}


def make(stage: str, config: Config, inputs: Inputs, *, display: Display) -> Artefact:
    """Returns the artefact of a stage, made unless it is there; what it needs must be there.

    Raises:
        ArtefactError: if an earlier stage has not been run.
    """
    if stage != "examples":
        return _make(stage, config, inputs, display=display)
    with settled_as_of(config, inputs, is_waiting=lambda: _waits(plan(stage, config, inputs))):
        return _make(stage, config, inputs, display=display)


def _make(stage: str, config: Config, inputs: Inputs, *, display: Display) -> Artefact:
    this = plan(stage, config, inputs)
    needs = {earlier: open_artefact(plan(earlier, config, inputs)) for earlier in _NEEDS[stage]}
    if not exists(this.folder):
        import_tensorflow()
    cluster = find_cluster(config.strategy, os.environ) if stage == "train" else None
    with display.stage(this):
        if cluster is not None and not cluster.leads and not exists(this.folder):
            return follow(
                this, cluster, config.strategy, lambda folder: _WORK[stage](config, inputs, needs, folder, display)
            )
        return finish(this, lambda folder: _WORK[stage](config, inputs, needs, folder, display))


def _waits(examples: Plan) -> bool:
    """Returns whether a run has more to do now than at the time of the last one; a killed one is ended as it began."""
    if exists(examples.folder):
        return bool(open_artefact(examples).content["waiting"])
    return not partial_folder(examples).exists()


Needs = Mapping[str, Artefact]


def _make_examples(config: Config, inputs: Inputs, _: Needs, __: Path, display: Display) -> Mapping[str, Any]:
    return make_examples_index(config, inputs, display=display)


def _make_dataset(config: Config, inputs: Inputs, needs: Needs, folder: Path, display: Display) -> Mapping[str, Any]:
    from pipeline.beam_runner import pipeline_maker
    from preprocessing.dataset_job import RowFile, build_dataset

    content = needs["examples"].content
    files = {split: [RowFile(*file) for file in members] for split, members in content["splits"].items()}
    rows = {split: sum(file.num_rows for file in members) for split, members in files.items()}
    grows = config.preprocess.vocabulary == "grow"
    with display.bar("dataset", total=rows["train"] + sum(rows.values())) as bar:
        splits = build_dataset(
            Path(config.work_dir),
            files,
            features=config.features,
            labels=[label.name for label in config.data.labels],
            time_zone=config.data.time_zone,
            folder=folder,
            final_folder=plan("dataset", config, inputs).folder,
            pipeline=pipeline_maker(config),
            windows=[[RowFile(*file) for file in window] for window in content["windows"]] if grows else (),
            negative_keep=_negative_keep(config),
            observe=bar,
        )
    kept = {name: sum(shard.num_rows for shard in shards) for name, shards in splits.items()}
    return {
        "splits": {name: [shard.model_dump() for shard in shards] for name, shards in splits.items()},
        "rows": kept,
        "negative_keep": _negative_keep(config),
    }


def _make_model(config: Config, _: Inputs, needs: Needs, folder: Path, display: Display) -> Mapping[str, Any]:
    from pipeline.trainer import train

    with display.training() as observe:
        result = train(
            open_dataset(needs["dataset"].folder),
            model=config.model,
            train=config.train,
            strategy=config.strategy,
            seed=config.seed,
            folder=folder,
            observe=observe,
            cluster=find_cluster(config.strategy, os.environ),
        )
    figures = dataclasses.asdict(result)
    return {
        name: figures[name] for name in ("best_step", "num_steps", "stopped_early", "metrics", "seconds", "rows_per_s")
    }


def _make_export(config: Config, inputs: Inputs, needs: Needs, folder: Path, _: Display) -> Mapping[str, Any]:
    return export_saved_model(
        config, _dataset_of(config, inputs), best_checkpoint(needs["train"]), folder=folder / SAVED_MODEL
    )


def best_checkpoint(trained: Artefact) -> Path:
    """Returns the checkpoint that is exported."""
    return trained.folder / BEST / str(trained.content["best_step"])


def _dataset_of(config: Config, inputs: Inputs) -> Dataset:
    return open_dataset(open_artefact(plan("dataset", config, inputs)).folder)


def _make_evaluation(config: Config, inputs: Inputs, needs: Needs, folder: Path, display: Display) -> Mapping[str, Any]:
    """Scores valid and test by the exported model, and holds the trainer's own scores against them."""
    from pipeline.evaluation import columns_needed, evaluate_label, labelled, slice_masks
    from pipeline.scoring import score_split

    dataset = open_dataset(needs["dataset"].folder)
    trained = open_artefact(plan("train", config, inputs))
    metrics: dict[str, Any] = {}
    for split in ("valid", "test"):
        with display.bar(split, total=dataset.num_rows(split)) as bar:
            scored = score_split(
                needs["export"].folder / SAVED_MODEL,
                dataset,
                split,
                keep=columns_needed(config.evaluate, config.data.roles),
                batch_size=config.evaluate.batch_size,
                observe=bar,
            )
        if len(scored.scores) != dataset.num_rows(split):
            raise ArtefactError(
                f"{split}: {len(scored.scores)} rows scored, the manifest counts {dataset.num_rows(split)}"
            )
        masks = slice_masks(config.evaluate, scored.columns, dataset)
        figures = [
            evaluate_label(scored, k, spec=config.evaluate, roles=config.data.roles, masks=masks, seed=config.seed)
            for k in range(len(dataset.schema.labels))
        ]
        metrics[split] = labelled(figures, dataset.schema.labels)
        np.save(folder / f"scores-{split}.npy", scored.scores, allow_pickle=False)
        own = np.load(trained.folder / f"scores-{split}.npy", allow_pickle=False)
        if config.export.tables != "float32":
            from pipeline.stored_tables import offline_scores, stored_figures

            metrics[split] |= stored_figures(scored, own, export=needs["export"].content)
            own = offline_scores(
                dataset,
                split,
                checkpoint=best_checkpoint(trained),
                model=config.model,
                options=options_of(config),
                batch_size=config.evaluate.batch_size,
            )
        metrics[split]["agreement"] = _agreement(own, scored.scores, split, config.evaluate.agreement)
    metrics["test"]["importance"] = _importance(config, dataset, needs["export"].folder / SAVED_MODEL)
    return metrics


def _importance(config: Config, dataset: Dataset, saved_model: Path) -> dict[str, float | None]:
    from pipeline.importance import permutation_importance

    num_rows, batch_size = config.evaluate.importance_rows, config.evaluate.batch_size
    if not num_rows:
        return {}
    lost = permutation_importance(
        saved_model, dataset, "test", num_rows=num_rows, batch_size=batch_size, seed=config.seed
    )
    return {name: value if math.isfinite(value) else None for name, value in lost.items()}


def _agreement(own: np.ndarray, exported: np.ndarray, split: str, bound: float) -> float:
    """Returns the largest difference between the trainer's scores and the exported model's, row by row."""
    difference = float(np.abs(own - exported).max()) if own.shape == exported.shape else float("inf")
    if not difference <= bound:
        raise ArtefactError(
            f"{split}: the trainer's scores and the exported model's differ by {difference:.3g}, more than "
            f"evaluate.agreement = {bound:.3g}; what would be served is not what was trained"
        )
    return difference


_WORK = {
    "examples": _make_examples,
    "dataset": _make_dataset,
    "train": _make_model,
    "export": _make_export,
    "evaluate": _make_evaluation,
}

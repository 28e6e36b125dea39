"""Where the Beam jobs of a config run."""

from __future__ import annotations

import functools

from pipeline.config import Config
from preprocessing.runner import MakePipeline, local_pipeline

__all__ = ["pipeline_maker"]


def pipeline_maker(config: Config) -> MakePipeline:
    """Returns what makes a pipeline on the runner of the config."""
    return functools.partial(local_pipeline, workers=config.preprocess.workers, mode=config.preprocess.mode)

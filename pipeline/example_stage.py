"""The first stage: the files of the sources, the time of the run, and the index of labelled periods."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.artefacts import writing
from pipeline.config import Config
from pipeline.display import Display
from pipeline.replay_store import repaired_counts, replayed_files
from preprocessing.errors import ArtefactError
from preprocessing.estimates import estimate_rows
from preprocessing.log_sources import MS_PER_S, SourceFile, event_sources, longest_window_ms, side_sources
from preprocessing.manifest import digest, write_json
from preprocessing.sources import FingerprintCache, file_format, match_source

__all__ = ["Inputs", "examples_parts", "find_inputs", "make_examples_index", "settled_as_of"]

_STAGE = "examples"
_DAY_S = 86_400


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The files of each source, in order."""

    files: dict[str, list[SourceFile]]


def find_inputs(config: Config) -> Inputs:
    """Returns the files that the sources name.

    Raises:
        SourceError: if a source names none.
    """
    data = config.data
    cache = FingerprintCache(Path(config.work_dir) / "fingerprints.json")
    repaired = replayed_files(Path(config.work_dir))
    files = {}
    for name in [*event_sources(data), *side_sources(data)]:
        around = _around_days(config) if name in event_sources(data) else (0, 0)
        paths = match_source(data.sources[name], root=data.root, days=data.days, around_days=around)
        files[name] = [
            SourceFile(path, _content_of(cache.fingerprint(path))) for path in [*paths, *repaired.get(name, [])]
        ]
    if Path(config.work_dir).exists():  # a command that only looks makes no folder
        cache.save()
    return Inputs(files)


def _content_of(fingerprint: Mapping[str, Any]) -> str:
    """Returns what tells the content: its hash, or what a remote store says of it."""
    if "sha256" in fingerprint:
        return str(fingerprint["sha256"])
    return f"{fingerprint['size_bytes']}:{fingerprint['checksum']}"


def _around_days(config: Config) -> tuple[int, int]:
    """Returns how many days around the range hold events that matter to it: windows and lateness reach over."""
    window_s = longest_window_ms(config.data) / MS_PER_S
    late_s = config.data.allowed_lateness_s or 0.0
    return math.ceil(window_s / _DAY_S) + 1, math.ceil((window_s + late_s) / _DAY_S) + 1


def examples_parts(config: Config, inputs: Inputs) -> Mapping[str, Any]:
    """Returns everything that the labelled periods follow from, the time of the run among it."""
    parts = _timeless_parts(config, inputs)
    return {**parts, "as_of_ms": _as_of_ms(config, parts)}


def _timeless_parts(config: Config, inputs: Inputs) -> dict[str, Any]:
    root = config.data.root
    return {
        "data": config.data.model_dump(mode="json", exclude={"root", "as_of", "checks"}),
        "rows_per_shard": config.preprocess.rows_per_shard,
        "vocabulary_since": str(config.preprocess.vocabulary_since),
        "files": {
            name: [[os.path.relpath(file.path, root), file.fingerprint] for file in files]
            for name, files in sorted(inputs.files.items())
        },
    }


def _as_of_ms(config: Config, parts: Mapping[str, Any]) -> int | None:
    """Returns the declared time of the run, else that of the last run over the same data; None before the first."""
    if config.data.as_of is not None:
        return round(config.data.as_of.timestamp() * MS_PER_S)
    try:
        return int(json.loads(_as_of_file(config, parts).read_text(encoding="utf-8"))["as_of_ms"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        path = _as_of_file(config, parts)
        raise ArtefactError(f"{path} cannot be read: {error}; remove it and run again") from error


def _as_of_file(config: Config, parts: Mapping[str, Any]) -> Path:
    return Path(config.work_dir) / "as_of" / f"{digest(parts)}.json"


@contextlib.contextmanager
def settled_as_of(config: Config, inputs: Inputs, *, is_waiting: Callable[[], bool]) -> Iterator[None]:
    """Moves the time of the run to now, unless it is declared or nothing waits for it; no other moves it in the block.

    What was held back, or had not arrived, at the time of the last run over the same data may be ripe by now. Later
    stages and commands find the examples by the time that is noted here.

    Args:
        config: the whole config.
        inputs: the files of its sources.
        is_waiting: whether the examples of the last time are incomplete, or hold something back.

    Raises:
        ArtefactError: if another process makes the same examples.
    """
    if config.data.as_of is not None:
        yield
        return
    parts = _timeless_parts(config, inputs)
    path = _as_of_file(config, parts)
    with writing(path):
        if _as_of_ms(config, parts) is None or is_waiting():
            write_json(path, {"as_of_ms": _now_ms()})
        yield


def _now_ms() -> int:
    return round(time.time() * MS_PER_S)


def make_examples_index(config: Config, inputs: Inputs, *, display: Display) -> Mapping[str, Any]:
    """Labels what is not labelled yet and returns the content of the index: files of each split, counts, sources."""
    from pipeline.beam_runner import pipeline_maker
    from preprocessing.example_days import make_examples
    from preprocessing.examples_summary import (
        check_examples,
        check_sources,
        rejects_of,
        split_files,
        summarise,
        training_windows,
    )

    spec, work = config.data, Path(config.work_dir)
    as_of_ms = examples_parts(config, inputs)["as_of_ms"]
    repaired = repaired_counts(work, inputs.files)
    done: dict[str, int] = {}
    with display.bar(_STAGE, total=_expected_rows(config, inputs)) as bar:

        def observe(step: str, rows: int) -> None:
            done[step] = rows
            bar(sum(done.values()), note=step)

        periods, logs = make_examples(
            spec,
            inputs.files,
            work=work,
            rows_per_shard=config.preprocess.rows_per_shard,
            split_bytes=config.preprocess.split_bytes,
            as_of_ms=as_of_ms,
            now_ms=_now_ms(),
            pipeline=pipeline_maker(config),
            observe=observe,
            check=lambda logs, _: check_sources(
                spec, logs, rejects=", ".join(map(str, rejects_of(work, logs))), repaired=repaired
            ),
        )
    summary = summarise(spec, periods, logs)
    check_examples(summary, spec, logs, periods)
    since = config.preprocess.vocabulary_since
    windows = [] if since is None else training_windows(spec, periods, since=since)
    return {
        "as_of_ms": as_of_ms,
        "waiting": bool(summary.held_back or summary.counts.get("not_yet_arrived", 0)),
        "periods": [dataclasses.asdict(period) for period in periods],
        "splits": {
            split: [dataclasses.astuple(file) for file in files] for split, files in split_files(spec, periods).items()
        },
        "windows": [[dataclasses.astuple(file) for file in window] for window in windows],
        "sources": summary.sources,
        "counts": summary.counts,
        "label_rates": summary.label_rates,
        "rejects": [str(path.relative_to(work)) for path in rejects_of(work, logs)],
    }


def _expected_rows(config: Config, inputs: Inputs) -> int:
    """Every row is read, and impressions are joined besides; files that were read before count as well."""
    total = 0
    for name, files in inputs.files.items():
        source = config.data.sources[name]
        paths = dict.fromkeys(file.path for file in files)
        rows = sum(estimate_rows(path, file_format=file_format(path, source.format)) for path in paths)
        total += rows * (2 if name == config.data.impressions else 1)
    return total

"""Repaired rows back in: judged by the rules of their source, and stored as an additional file of it.

`replay_export` wrote them; `replay_store` keeps them.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline import replay_store
from pipeline.config import Config
from pipeline.replay_export import ORIGINS, REPLAY_REASONS, VERSION, Exported, export_rejects
from pipeline.replay_store import repaired_counts, replayed_files
from preprocessing import replay
from preprocessing.cleaning import FutureRule
from preprocessing.errors import ConfigError, SourceError
from preprocessing.ingest import future_rule
from preprocessing.line_matching import line_owners
from preprocessing.lines import BOM
from preprocessing.log_sources import MS_PER_S, cleaned_source, clock_of, event_sources
from preprocessing.replay import Judged
from preprocessing.spec import SourceSpec

__all__ = ["Exported", "Replayed", "export_rejects", "repaired_counts", "replay_rejects", "replayed_files"]


@dataclasses.dataclass(frozen=True)
class Replayed:
    """What became of a repaired file.

    Attributes:
        path: the repaired file.
        source: its source.
        stored: the additional file of the source; None if no row was new and valid.
        accepted: rows that are in it.
        known: rows that had been replayed before.
        left_out: exported rows that are not in the file any more.
        wrong: (line, reason, column, explanation, text) of the rows that are still none.
    """

    path: Path
    source: str
    stored: Path | None
    accepted: int
    known: int
    left_out: int
    wrong: tuple[tuple[int, str, str, str, str], ...]


_Reject = Mapping[str, Any]


def replay_rejects(config: Config, folder: Path) -> list[Replayed]:
    """Judges the repaired rows of a folder by the rules of their sources and stores those that are valid now.

    Raises:
        ConfigError: if the folder was not exported, or a header was changed.
    """
    records = sorted((folder / ORIGINS).glob("*.json"))
    if not records:
        raise ConfigError(
            f"{folder}: holds no exported rejects; make some with rankmill replay CONFIG --export {folder}"
        )
    return [_replay(config, folder, record) for record in records]


def _replay(config: Config, folder: Path, record: Path) -> Replayed:
    name = record.name.removesuffix(".json")
    origins = _read_origins(record, config)
    path, source = folder / name, origins["source"]
    try:
        original, edited = (folder / ORIGINS / name).read_bytes(), path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error}; export the rejects again") from error
    rows: Sequence[_Reject] = origins["rows"]
    owners = [-1] * origins["header_lines"]
    owners += [place for place, row in enumerate(rows) for _ in range(row["lines"])]
    now = _lines(edited)
    header = _kept_header(path, _lines(original), now, origins["header_lines"])
    owners = line_owners(_lines(original), owners, now)
    spec, future = cleaned_source(config.data, source), _future(config, source)
    if origins["kind"] == "parquet":
        judged = _judge_parquet(now, owners, spec, source=source, folder=origins["partitions"], future=future)
    else:
        judged = replay.judge_text(
            path,
            spec,
            kind=origins["kind"],
            source=source,
            folder=origins["partitions"],
            owners=owners,
            future=future,
        )
    return _keep(config, path, judged, origins=origins, header=header)


def _future(config: Config, source: str) -> FutureRule | None:
    """Returns which events a run that starts now would hold to be of the future."""
    data = config.data
    clock = clock_of(data, source) if source in event_sources(data) else None
    return future_rule(clock, now_ms=round(time.time() * MS_PER_S))


def _lines(data: bytes) -> list[bytes]:
    lines = [line.rstrip(b"\r") for line in data.removeprefix(BOM).split(b"\n")]
    return lines[:-1] if lines and not lines[-1] else lines


def _kept_header(path: Path, original: list[bytes], edited: list[bytes], lines: int) -> bytes | None:
    if not lines:
        return None
    if edited[:lines] != original[:lines]:
        raise ConfigError(
            f"{path}: the header was changed; it must stay {b' '.join(original[:lines]).decode(errors='replace')!r}"
        )
    return b"\n".join(original[:lines])


def _read_origins(record: Path, config: Config) -> dict[str, Any]:
    try:
        origins = json.loads(record.read_text(encoding="utf-8"))
        version, source = origins["version"], origins["source"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{record}: cannot be read: {error!r}; export the rejects again") from error
    if version != VERSION:
        raise ConfigError(f"{record}: written by another version ({version}); export the rejects again")
    if source not in config.data.sources:
        raise ConfigError(f"{record}: is of source {source!r}, which the config does not have")
    return origins


def _judge_parquet(
    lines: Sequence[bytes],
    owners: Sequence[int],
    spec: SourceSpec,
    *,
    source: str,
    folder: str,
    future: FutureRule | None,
) -> list[Judged]:
    numbers = [number for number, line in enumerate(lines) if line.strip()]
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "rows.parquet"
        judged = replay.judge_parquet(
            [lines[n] for n in numbers], spec, source=source, path=path, folder=folder, future=future
        )
    seen: set[int] = set()
    result = []
    for row in judged:
        number = numbers[row.owner]
        owner = owners[number]
        added = owner == -1 or owner in seen
        seen.add(owner)
        reason = "added_row" if added else row.reason
        result.append(dataclasses.replace(row, owner=-1 if added else owner, line=number + 1, reason=reason))
    return result


def _keep(
    config: Config, path: Path, judged: Sequence[Judged], *, origins: Mapping[str, Any], header: bytes | None
) -> Replayed:
    source, rows = origins["source"], origins["rows"]
    known = replay_store.replayed_rows(Path(config.work_dir)).get(source, set())
    judged = [_encodable(row, config.data.sources[source]) for row in judged]
    valid = [row for row in judged if not row.reason]
    new = [row for row in valid if (rows[row.owner]["fingerprint"], rows[row.owner]["position"]) not in known]
    stored = None
    if new:
        stored = _store(config, new, origins=origins, header=header)
    return Replayed(
        path=path,
        source=source,
        stored=stored,
        accepted=len(new),
        known=len(valid) - len(new),
        left_out=len(rows) - len({row.owner for row in judged if row.owner >= 0}),
        wrong=tuple(
            (
                row.line,
                row.reason,
                row.column,
                REPLAY_REASONS.get(row.reason, row.reason),
                row.raw.decode(errors="replace"),
            )
            for row in judged
            if row.reason
        ),
    )


def _encodable(row: Judged, spec: SourceSpec) -> Judged:
    try:
        if not row.reason:
            replay.encoded(None, [row.raw], spec)
    except SourceError:
        return dataclasses.replace(row, reason="wrong_encoding")
    return row


def _store(config: Config, rows: Sequence[Judged], *, origins: Mapping[str, Any], header: bytes | None) -> Path:
    source, kind = origins["source"], origins["kind"]
    spec = config.data.sources[source]
    if kind == "parquet":
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "rows.parquet"
            replay.judge_parquet(
                [row.raw for row in rows], spec, source=source, path=path, folder=origins["partitions"]
            )
            data = path.read_bytes()
    else:
        data = replay.encoded(header, [row.raw for row in rows], spec)
    compressed = {"gzip": ".gz", "bz2": ".bz2", "zstd": ".zst"}.get(spec.compression or "", "")
    return replay_store.store(
        Path(config.work_dir),
        source,
        folder=origins["partitions"],
        ext=f".{kind}{compressed}",
        data=data,
        rows=[
            {field: origins["rows"][row.owner][field] for field in ("file", "fingerprint", "position")} for row in rows
        ],
    )

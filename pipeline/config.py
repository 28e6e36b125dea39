"""The one place where a config file is read: YAML and overrides to a checked, frozen `Config`."""

from __future__ import annotations

import datetime as dt
import difflib
import re
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from models.config import ModelSpec
from pipeline.config_checks import check_config
from pipeline.evaluate_spec import EvaluateSpec, GateRule
from pipeline.serve_spec import ExportSpec, ServeSpec
from pipeline.train_spec import StrategySpec, TrainSpec
from preprocessing.errors import ConfigError
from preprocessing.spec import DataSpec, FeatureSpec

__all__ = ["Config", "PreprocessSpec", "load_config"]

_STRICT = ConfigDict(frozen=True, extra="forbid")


class PreprocessSpec(BaseModel):
    """How the Beam jobs run; none of it changes a byte of their output but `rows_per_shard`."""

    model_config = _STRICT

    workers: int = Field(0, ge=0, description="Parallel workers; 0 is one for each processor.")
    mode: Literal["multi_threading", "multi_processing"] = "multi_threading"
    rows_per_shard: int = Field(
        200_000, ge=1, description="About the largest number of impressions of a period in one file, or in memory."
    )
    split_bytes: int = Field(
        256 << 20,
        ge=1 << 16,
        description="Larger text files are read in parts, where sources.newlines_in_values allows.",
    )
    vocabulary: Literal["rebuild", "grow"] = Field(
        "rebuild", description="grow: tokens keep their ids from run to run, new ones are appended."
    )
    vocabulary_since: dt.date | None = Field(
        None, description="Of grow: the last training day of the first run, where the ids begin."
    )

    @model_validator(mode="after")
    def _grows_since(self) -> PreprocessSpec:
        if (self.vocabulary == "grow") != (self.vocabulary_since is not None):
            raise ValueError("vocabulary: grow and vocabulary_since are given together")
        return self


class Config(BaseModel):
    """One YAML file: from logs to a served model."""

    model_config = _STRICT

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    seed: int = Field(1, ge=0)
    work_dir: str = Field("work", description="Where artefacts and runs are kept, relative to the current folder.")
    data: DataSpec
    preprocess: PreprocessSpec = PreprocessSpec()
    features: tuple[FeatureSpec, ...] = Field(min_length=1)
    model: ModelSpec = ModelSpec()
    train: TrainSpec = TrainSpec()
    strategy: StrategySpec = StrategySpec()
    evaluate: EvaluateSpec = EvaluateSpec()
    gate: tuple[GateRule, ...] = ()
    export: ExportSpec = ExportSpec()
    serve: ServeSpec = ServeSpec()

    def store(self) -> Path:
        """Returns the folder that holds the versions of this model, as TF Serving's base path."""
        root = Path(self.export.store) if self.export.store else Path(self.work_dir) / "store"
        return root / self.export.model_name


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Returns the config in a YAML file, with `a.b=value` overrides applied, checked as a whole.

    Raises:
        ConfigError: for anything wrong; its text has one line for each mistake found.
    """
    tree = _read_yaml(path)
    for override in overrides:
        _apply_override(tree, override)
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        lines = [_describe(dict(problem)) for problem in _own_problems(error)]
        raise ConfigError("\n".join(f"{path}: {line}" for line in lines)) from error
    problems = check_config(
        data=config.data,
        features=config.features,
        model=config.model,
        train=config.train,
        evaluate=config.evaluate,
        gate=config.gate,
    )
    if problems:
        raise ConfigError("\n".join(f"{path}: {problem}" for problem in problems))
    return config


def _own_problems(error: ValidationError) -> list[Any]:
    """Returns what is wrong, without lists that are too short only because their members are wrong."""
    problems = error.errors()
    places = [problem["loc"] for problem in problems]
    return [
        problem
        for problem in problems
        if problem["type"] != "too_short"
        or not any(
            len(place) > len(problem["loc"]) and place[: len(problem["loc"])] == problem["loc"] for place in places
        )
    ]


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        tree = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such config file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except (yaml.YAMLError, ValueError) as error:  # the latter of what looks like a date and is none
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: a config is a mapping of sections, this file holds {type(tree).__name__}")
    return tree


class _StrictLoader(yaml.SafeLoader):
    """YAML's safe loader, that refuses a key given twice: the plain one keeps the last and says nothing."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _apply_override(tree: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise ConfigError(f"--set {override}: expected a.b.c=value")
    try:
        value = yaml.load(text, Loader=_StrictLoader)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"--set {override}: the value is not valid YAML: {' '.join(str(error).split())}") from error
    node: Any = tree
    *parents, last = path.split(".")
    for part in parents:
        node = _child(node, part, override)
    if isinstance(node, list):
        node[_index(node, last, override)] = value
    elif isinstance(node, dict):
        node[last] = value
    else:
        raise ConfigError(f"--set {override}: the parent of {last!r} is a value, not a section")


def _child(node: Any, part: str, override: str) -> Any:
    if isinstance(node, list):
        return node[_index(node, part, override)]
    if isinstance(node, dict):
        if node.get(part) is None:
            node[part] = {}
        return node[part]
    raise ConfigError(f"--set {override}: {part!r} lies below a value, not a section")


def _index(node: list[Any], part: str, override: str) -> int:
    named = [i for i, item in enumerate(node) if isinstance(item, dict) and item.get("name") == part]
    if named:
        return named[0]
    if part.isdigit() and int(part) < len(node):
        return int(part)
    raise ConfigError(f"--set {override}: no item {part!r}; give a name or a number from 0 to {len(node) - 1}")


def _describe(problem: Mapping[str, Any]) -> str:
    """Returns one line for one pydantic error: dotted path, rule, what was given, the nearest known key."""
    location = problem["loc"]
    path, known = _walk(location)
    if problem["type"] == "extra_forbidden":
        close = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(sorted(known))}"
        return f"{path}: unknown key; {hint}"
    if problem["type"] == "missing":
        return f"{path}: is required"
    if problem["type"] in ("literal_error", "union_tag_invalid"):
        return _describe_choice(path, problem)
    message = problem["msg"].removeprefix("Value error, ")
    given = problem.get("input")
    shown = "" if isinstance(given, dict | list | tuple | BaseModel) else f" (given: {given!r})"
    return f"{path}: {message}{shown}"


def _describe_choice(path: str, problem: Mapping[str, Any]) -> str:
    context = problem["ctx"]
    known = re.findall(r"'([^']*)'", context.get("expected") or context["expected_tags"])
    given = str(context.get("tag", problem["input"]))
    close = difflib.get_close_matches(given, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"it is one of: {', '.join(known)}"
    return f"{path}{'.kind' if 'tag' in context else ''}: no such value {given!r}; {hint}"


def _walk(location: Sequence[int | str]) -> tuple[str, list[str]]:
    """Returns the dotted path as a user writes it, and the keys known beside its last part.

    pydantic names the chosen member of a union in its location; a user does not.
    """
    path, known, kind = "", [], typing.cast("Any", Config)
    for part in location:
        kind = _strip(kind)
        if isinstance(part, int):
            path += f"[{part}]"
            kind = _element(kind)
            continue
        members = [member for member in typing.get_args(kind) if _is_union(kind) and _tag_of(member, part)]
        if members:
            kind = members[0]
            continue
        if _is_union(kind):  # a plain union: pydantic adds the name of the type it tried
            continue
        fields = kind.model_fields if isinstance(kind, type) and issubclass(kind, BaseModel) else {}
        known = list(fields)
        path += f".{part}" if path else part
        kind = fields[part].annotation if part in fields else _element(kind)
    return path, known


def _strip(kind: Any) -> Any:
    while typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    options = [option for option in typing.get_args(kind) if option is not types.NoneType] if _is_union(kind) else []
    return _strip(options[0]) if len(options) == 1 else kind


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


def _tag_of(member: Any, tag: str) -> bool:
    field = getattr(member, "model_fields", {}).get("kind")
    return field is not None and tag in typing.get_args(field.annotation)


def _element(kind: Any) -> Any:
    arguments = [argument for argument in typing.get_args(kind) if argument is not Ellipsis]
    return arguments[-1] if arguments else object

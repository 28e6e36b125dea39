"""The commands about versions, on a store that was filled by hand: what they do, say, and answer to mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.config import load_config
from pipeline.serve import serve_options
from pipeline.store_place import after_publication, place_of
from preprocessing.errors import ArtefactError
from serving.labels import labels_of
from serving.launch import serve_command
from serving.server.flags import parse
from serving.version_store import publish, versions
from tests.pipeline.configs import tiny_tree, write_config
from tests.pipeline.tiny_line import Outcome, rankmill

NOBODY = {"port": 0, "rest_port": 9}  # nobody listens there


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config whose store holds versions 1 to 3."""
    path = write_config(tmp_path, {**tiny_tree(), "work_dir": str(tmp_path / "work"), "serve": NOBODY})
    export = tmp_path / "export"
    export.mkdir()
    (export / "saved_model.pb").write_bytes(b"graph")
    for _ in range(3):
        publish(load_config(path).store(), export, metadata={"metrics": {"test": {"auc": 0.7123}}}, why="nightly")
    return path


def ran(*arguments: object) -> Outcome:
    outcome = rankmill(*arguments)
    assert (outcome.code, outcome.err) == (0, "")
    return outcome


def test_versions_are_promoted_rolled_back_pinned_retired_and_listed(config: Path) -> None:
    assert "no server runs at 127.0.0.1:9" in ran("promote", config, 1, "--why", "first").out
    assert "stable is on version 2, was on 1" in ran("promote", config, 2, "--why", "better").out
    assert "canary is on version 3" in ran("promote", config, 3, "--label", "canary", "--why", "try").out
    infos = [json.loads(line) for line in ran("versions", config, "--json").out.splitlines()]
    assert [(info["version"], info["labels"], info["why"]) for info in infos] == [
        (3, ["canary"], "try"),
        (2, ["stable"], "better"),
        (1, [], "first"),
    ]
    assert "0.7123" in ran("versions", config).out
    assert "stable is on version 1, was on 2" in ran("rollback", config, "--why", "bad").out
    assert "version 2 is pinned" in ran("pin", config, 2, "--why", "audit").out
    assert rankmill("retire", config, 2).code == 1
    assert "pinned no more" in ran("unpin", config, 2).out
    assert "version 2 is removed" in ran("retire", config, 2, "--why", "old").out
    events = [json.loads(line) for line in ran("history", config, "--json").out.splitlines()]
    assert [(event["action"], event["version"]) for event in events] == [
        ("publish", 1), ("publish", 2), ("publish", 3), ("promote", 1), ("promote", 2), ("promote", 3),
        ("rollback", 1), ("pin", 2), ("unpin", 2), ("retire", 2),
    ]  # fmt: skip
    assert "rollback" in ran("history", config, "--last", 4).out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("promote", 9), "no version 9; there are: 1, 2, 3"),
        (("rollback",), "promote one: rankmill promote CONFIG VERSION"),
        (("unpin", 1), "version 1 is not pinned; pinned are: none"),
    ],
)
def test_a_mistake_is_one_line_with_a_way_out(config: Path, arguments: tuple[object, ...], text: str) -> None:
    command, *rest = arguments
    outcome = rankmill(command, config, *rest)
    assert outcome.code == 1
    assert text in outcome.err


def test_what_is_published_is_promoted_as_the_config_says_and_old_versions_go(config: Path) -> None:
    heard: list[str] = []
    store = load_config(config).store().absolute()
    after_publication(load_config(config, ["export.promote=none"]), 3, why="gate", say=heard.append)
    assert (heard, labels_of(store)) == ([], {})
    after_publication(load_config(config, ["export.promote=canary"]), 3, why="gate", say=heard.append)
    assert labels_of(store) == {"canary": 3}
    retention = "export.retention={keep_last: 1, keep_days: 0}"
    after_publication(load_config(config, [retention]), 2, why="gate", say=heard.append)
    assert labels_of(store) == {"canary": 3, "stable": 2}
    assert heard[-1] == "version 1 is removed: export.retention"
    assert versions(store) == [2, 3]


def test_the_server_reads_models_config_of_the_store(config: Path) -> None:
    ran("promote", config, 2)
    loaded = load_config(config, ["serve.poll_s=3", "serve.threads=2"])
    flags, unknown = parse(serve_command(serve_options(loaded))[3:])
    root = loaded.store().absolute().parent
    assert unknown == ()
    assert flags.model_config_file == str(root / "models.config")
    assert flags.model_config_file_poll_wait_seconds == 3
    assert flags.allow_version_labels_for_unavailable_models
    assert flags.tensorflow_intra_op_parallelism == 2
    assert Path(flags.monitoring_config_file).is_file()


def test_a_store_without_labels_serves_its_newest_unless_nothing_is_to_be_promoted(config: Path) -> None:
    loaded = load_config(config)
    with pytest.raises(ArtefactError, match=r"no version in .* is promoted; promote one: rankmill promote CONFIG 3"):
        serve_options(load_config(config, ["export.promote=none"]))
    serve_options(loaded)
    assert labels_of(loaded.store()) == {"stable": 3}


def test_a_store_that_was_moved_is_served_from_where_it_is(config: Path, tmp_path: Path) -> None:
    ran("promote", config, 2)
    (tmp_path / "work").rename(tmp_path / "moved")
    serve_options(load_config(config, [f"work_dir={tmp_path / 'moved'}"]))
    text = (tmp_path / "moved" / "store" / "models.config").read_text()
    assert f'base_path: "{tmp_path}/moved/store/' in text


def test_the_servers_to_wait_for_are_those_of_the_config(config: Path) -> None:
    assert place_of(load_config(config), print).servers == ("127.0.0.1:9",)
    named = place_of(load_config(config, ["serve.servers=[a:1, grpc://b:2]"]), print)
    assert named.servers == ("a:1", "grpc://b:2")
    grpc_only = place_of(load_config(config, ["serve.rest_port=0", "serve.port=7"]), print)
    assert grpc_only.servers == ("grpc://127.0.0.1:7",)


def test_once_and_every_exclude_each_other(tmp_path: Path) -> None:
    outcome = rankmill("sync", tmp_path, tmp_path / "copy", "--once", "--every", 5)
    assert outcome.code == 2
    assert "give one of --once and --every" in outcome.err

"""Labels, pins and removal by what servers are told, with and without a server that answers."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from preprocessing.errors import ArtefactError, ServingError
from serving.config import RetentionSpec
from serving.history import read_events
from serving.labels import labels_of, live_version, promote, promote_published, rollback
from serving.lifecycle import expire, list_infos, pin, retire, unpin
from serving.models_config import read_model, write_model
from serving.preflight import Memory
from serving.rollout import Place
from serving.server.config_files import parse_model_config_file
from serving.server.discovery import ModelConfig
from serving.server.labels import check_labels
from serving.server.status import StatusError
from serving.starting import is_starting, note_start
from serving.version_store import publish, versions


def export_of(tmp_path: Path) -> Path:
    folder = tmp_path / "export"
    folder.mkdir(exist_ok=True)
    (folder / "saved_model.pb").write_bytes(b"graph")
    return folder


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A store with versions 1 to 4 and no server."""
    made = Place(store=tmp_path / "store" / "shop", poll_s=0.05, load_timeout_s=5)
    for _ in range(4):
        publish(made.store, export_of(tmp_path), metadata={"metrics": {"test": {"auc": 0.7}}})
    return made


def told(place: Place) -> tuple[tuple[int, ...], dict[str, int]]:
    (model,) = parse_model_config_file(place.root / "models.config")
    assert (model.name, model.base_path, model.policy.kind) == ("shop", place.store, "specific")
    return model.policy.versions, dict(model.labels)


class FakeServer:
    """Answers as a model server that reads the store's `models.config` whenever it is asked, by the real rules.

    A version whose number is in `broken` fails to load; each is LOADING for one question before it is AVAILABLE.
    """

    def __init__(self, root: Path, port: int = 0) -> None:
        self.root, self.broken, self.refused = root, set[int](), list[str]()
        self.states: dict[int, str] = {}
        self.labels: dict[str, int] = {}
        self.seen: list[ModelConfig] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                fake.read()
                code, body = fake.answer(self.path)
                self.send_response(code)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.address = f"127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def read(self) -> None:
        models = parse_model_config_file(self.root / "models.config") if (self.root / "models.config").exists() else []
        config = next((model for model in models if model.name == "shop"), ModelConfig("shop", self.root))
        available = {version for version, state in self.states.items() if state == "AVAILABLE"}
        try:
            check_labels([config], {"shop": self.labels}, {"shop": available}, allow_unavailable=True)
        except StatusError as error:
            self.refused.append(str(error))
            return
        if not self.seen or self.seen[-1] != config:
            self.seen.append(config)
        self.labels = dict(config.labels)
        for version in config.policy.versions:
            after = {None: "LOADING", "END": "LOADING", "LOADING": "AVAILABLE"}.get(
                self.states.get(version), "AVAILABLE"
            )
            self.states[version] = "END" if version in self.broken else after
        for version in set(self.states) - set(config.policy.versions):
            self.states[version] = "END"

    def answer(self, path: str) -> tuple[int, str]:
        if path == "/v1/models/shop":
            states = ",".join(
                f'{{"version": "{version}", "state": "{state}", "status": {{"error_code": '
                f'"{"UNKNOWN" if version in self.broken else "OK"}", "error_message": "no graph"}}}}'
                for version, state in self.states.items()
            )
            return (200, f'{{"model_version_status": [{states}]}}') if states else (404, '{"error": "none"}')
        label = path.removeprefix("/v1/models/shop/labels/").removesuffix("/metadata")
        if label in self.labels:
            return 200, f'{{"model_spec": {{"name": "shop", "version": "{self.labels[label]}"}}, "metadata": {{}}}}'
        return 400, '{"error": "Unrecognized servable version label"}'


@pytest.fixture
def serve(place: Place) -> Iterator[Callable[[], tuple[FakeServer, Place]]]:
    started = []

    def start() -> tuple[FakeServer, Place]:
        server = FakeServer(place.root)
        started.append(server)
        server.read()
        server.read()
        return server, Place(store=place.store, servers=(server.address,), poll_s=0.05, load_timeout_s=5)

    yield start
    for server in started:
        server.http.shutdown()
        server.http.server_close()


def test_without_a_server_the_final_state_is_written_and_said(place: Place) -> None:
    heard: list[str] = []
    quiet = Place(store=place.store, servers=("127.0.0.1:9",), say=heard.append)
    assert "stable is on version 2" in promote(quiet, 2, why="good")
    assert told(place) == ((2,), {"stable": 2})
    assert "no server runs at 127.0.0.1:9" in heard[0]
    assert "canary is on version 3" in promote(place, 3, "canary", why="try")
    assert told(place) == ((2, 3), {"stable": 2, "canary": 3})
    assert live_version(place.store) == 2


def test_a_label_moves_in_steps_that_the_server_accepts(place: Place, serve: Any) -> None:
    promote(place, 1, why="")
    server, running = serve()
    done = promote(running, 2, why="better")
    assert done == f"stable is on version 2, was on 1; served by {server.address}"
    server.read()
    steps = [(config.policy.versions, dict(config.labels)) for config in server.seen]
    assert steps == [
        ((1,), {"stable": 1}),
        ((1, 2), {"stable": 1}),
        ((1, 2), {"stable": 2}),
        ((2,), {"stable": 2}),
    ]
    assert server.refused == []


def test_a_version_that_does_not_load_leaves_the_label_and_says_so(place: Place, serve: Any) -> None:
    promote(place, 1, why="")
    server, running = serve()
    server.broken.add(2)
    with pytest.raises(ServingError, match=r"could not load version 2: no graph; .*: stable stays on version 1"):
        promote(running, 2, why="better")
    assert told(place) == ((1,), {"stable": 1})
    assert [event.version for event in read_events(place.store) if event.action == "promote"] == [1]
    assert server.labels == {"stable": 1}


def test_a_server_that_refused_a_label_is_brought_along_later(place: Place, serve: Any) -> None:
    promote(place, 1, why="")
    server, running = serve()
    promote(place, 2, why="while the server seemed to be down")  # this place knows of no server
    server.read()
    assert server.refused and server.labels == {"stable": 1}
    promote(running, 2, why="again")
    assert (server.labels, server.states[2]) == ({"stable": 2}, "AVAILABLE")


def test_a_server_that_reads_another_store_is_told_from_one_that_is_slow(place: Place, serve: Any) -> None:
    promote(place, 1, why="")
    server, running = serve()
    server.root = server.root / "elsewhere"
    impatient = Place(store=place.store, servers=running.servers, poll_s=-1.6, load_timeout_s=5)
    with pytest.raises(ServingError, match="has not begun to load version 2: does it read this store's"):
        promote(impatient, 2, why="")
    assert told(place) == ((1,), {"stable": 1})


def test_rolling_back_goes_to_the_stable_version_before_and_further_back_the_next_time(place: Place) -> None:
    for version in (1, 2, 3):
        promote(place, version, why="")
    assert rollback(place, why="bad").startswith("stable is on version 2, was on 3")
    assert told(place) == ((2,), {"stable": 2})
    promote(place, 4, why="")
    rollback(place, why="bad too")
    assert labels_of(place.store) == {"stable": 2}
    rollback(place, why="and more")
    assert labels_of(place.store) == {"stable": 1}
    with pytest.raises(ArtefactError, match="no stable version before 1 to go back to"):
        rollback(place, why="too far")
    last = read_events(place.store)[-1]
    assert (last.action, last.version, last.before, last.why) == ("rollback", 1, 2, "and more")
    assert "@" in last.who and last.when.endswith("+00:00")


def test_a_rollback_takes_a_bad_version_out_of_service_whatever_its_labels(place: Place) -> None:
    promote(place, 1, why="")
    promote(place, 2, why="")
    promote(place, 2, "canary", why="")
    assert "canary moved along from 2" in rollback(place, why="bad")
    assert told(place) == ((1,), {"stable": 1, "canary": 1})


def test_a_canary_does_not_stay_behind_the_stable_version(place: Place) -> None:
    promote(place, 1, why="")
    promote(place, 2, "canary", why="")
    promote(place, 3, why="")
    assert told(place) == ((3,), {"stable": 3, "canary": 3})
    promote(place, 4, "canary", why="")
    promote(place, 2, why="")  # an older one: the newer canary is left alone
    assert told(place) == ((2, 4), {"stable": 2, "canary": 4})


def test_what_is_published_is_not_promoted_again_after_a_rollback_nor_over_a_newer_one(place: Place) -> None:
    promote_published(place, 1, "stable", why="gate")
    promote_published(place, 3, "stable", why="gate")
    assert "stable has been on version 3 since" in promote_published(place, 2, "stable", why="gate")
    rollback(place, why="bad")
    assert promote_published(place, 3, "stable", why="gate") == ""
    assert labels_of(place.store) == {"stable": 1}


def test_labelled_and_pinned_versions_are_not_retired(place: Place) -> None:
    promote(place, 2, why="")
    pin(place, 3, served=False, why="audit")
    with pytest.raises(ArtefactError, match=r"version 2 is stable.*rankmill promote CONFIG 4 --label stable"):
        retire(place, 2, why="")
    with pytest.raises(ArtefactError, match="rankmill unpin CONFIG 3"):
        retire(place, 3, why="")
    with pytest.raises(ArtefactError, match="no version 9"):
        retire(place, 9, why="")
    assert "version 1 is removed" in retire(place, 1, why="old")
    unpin(place, 3, why="done")
    retire(place, 3, why="old")
    assert versions(place.store) == [2, 4]
    with pytest.raises(ArtefactError, match="version 3 is not pinned; pinned are: none"):
        unpin(place, 3, why="")


def test_a_version_that_a_server_still_holds_is_not_removed(place: Place, serve: Any) -> None:
    promote(place, 1, why="")
    server, running = serve()
    server.root = server.root / "elsewhere"  # it will not hear of anything
    server.states = {1: "AVAILABLE", 2: "AVAILABLE"}
    server.read = lambda: None
    impatient = Place(store=place.store, servers=running.servers, poll_s=-1.6, load_timeout_s=5)
    with pytest.raises(ArtefactError, match=f"version 2 is still loaded at {server.address}"):
        retire(impatient, 2, why="")
    assert expire(running, RetentionSpec(keep_last=1, keep_days=0)) == [3]
    assert versions(place.store) == [1, 2, 4]


def test_a_pin_may_keep_a_version_loaded(place: Place) -> None:
    promote(place, 2, why="")
    pin(place, 1, served=True, why="compare")
    assert told(place) == ((1, 2), {"stable": 2})
    promote(place, 3, why="")
    assert told(place) == ((1, 3), {"stable": 3})
    unpin(place, 1, why="")
    assert told(place) == ((3,), {"stable": 3})


def test_retention_keeps_what_is_in_use_and_what_to_go_back_to(place: Place, tmp_path: Path) -> None:
    for version in (1, 2):
        promote(place, version, why="")
    pin(place, 3, served=False, why="")
    for _ in range(3):
        publish(place.store, export_of(tmp_path), metadata={})
    assert expire(place, RetentionSpec(keep_last=1, keep_days=1)) == []
    assert expire(place, RetentionSpec(keep_last=1, keep_days=0)) == [4, 5, 6]
    assert versions(place.store) == [1, 2, 3, 7]
    assert [event.version for event in read_events(place.store) if event.action == "expire"] == [4, 5, 6]


def test_other_models_of_the_store_are_left_as_they_are(place: Place) -> None:
    place.root.joinpath("models.config").write_text(
        'model_config_list { config { name: "other" base_path: "/m/other" model_platform: "tensorflow"'
        ' model_version_policy { latest { num_versions: 2 } } version_labels { key: "x" value: 9 } } }'
    )
    promote(place, 2, why="")
    other, ours = parse_model_config_file(place.root / "models.config")
    assert (other.name, other.policy.kind, other.policy.num_versions, dict(other.labels)) == (
        "other",
        "latest",
        2,
        {"x": 9},
    )
    assert (ours.name, ours.policy.versions) == ("shop", (2,))


def test_a_models_config_that_does_not_parse_is_an_error_with_a_way_out(place: Place) -> None:
    place.root.joinpath("models.config").write_text("model_config_list {")
    with pytest.raises(ArtefactError, match=r"models.config cannot be read: .*mend it by hand, or remove it"):
        promote(place, 2, why="")


def test_a_store_of_before_labels_serves_its_newest(place: Place) -> None:
    assert read_model(place.root, place.model) is None
    assert live_version(place.store) == 4
    assert live_version(place.root / "none") is None


def test_a_version_that_does_not_fit_the_memory_is_refused_or_warned_of(
    place: Place, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    promote(place, 1, why="")
    _, running = serve()
    monkeypatch.setattr("serving.memory_check.available_memory", lambda: Memory(1, "the memory limit of the container"))
    with pytest.raises(ArtefactError, match=r"loading version 2 .*left of the memory limit .*serve\.memory_check=warn"):
        promote(running, 2, why="")
    assert told(place) == ((1,), {"stable": 1})
    heard: list[str] = []
    careless = Place(store=place.store, servers=running.servers, poll_s=0.05, load_timeout_s=5, say=heard.append)
    promote(careless, 2, why="", memory="warn")
    assert heard[0].startswith("warning: loading version 2")
    assert told(place) == ((2,), {"stable": 2})


def test_the_list_holds_what_is_known_of_each_version(place: Place) -> None:
    promote(place, 2, why="better")
    pin(place, 1, served=False, why="audit")
    four, _, two, one = list_infos(place)
    assert (four.version, four.labels, four.pin, four.metadata["metrics"]["test"]["auc"]) == (4, (), None, 0.7)
    assert (two.labels, two.why, one.pin and one.pin.why) == (("stable",), "better", "audit")
    assert all(info.size_bytes > 5 and "@" in info.who for info in (four, two, one))


def test_what_is_no_model_server_stops_a_promotion_but_not_the_list(place: Place, serve: Any) -> None:
    promote(place, 1, why="")
    server, running = serve()
    server.answer = lambda _: (200, "<html>hello</html>")
    with pytest.raises(ServingError, match=f"what listens at {server.address} is no model server.*see serve.servers"):
        promote(running, 2, why="")
    assert told(place) == ((1,), {"stable": 1})
    assert [info.version for info in list_infos(running)] == [4, 3, 2, 1]


def test_a_broken_off_move_is_put_right_by_the_next_one(place: Place) -> None:
    promote(place, 1, why="")
    model = read_model(place.root, place.model)
    assert model is not None
    write_model(place.root, type(model)(model.name, model.base_path, (1, 2), model.labels))  # killed after step one
    promote(place, 3, why="")
    assert told(place) == ((3,), {"stable": 3})


def test_a_server_that_is_starting_is_waited_for(place: Place, free_port: Callable[[], int]) -> None:
    promote(place, 1, why="")
    port = free_port()
    servers: list[FakeServer] = []

    def hear(text: str) -> None:
        if text == f"the server at 127.0.0.1:{port} is starting: it is waited for":
            servers.append(FakeServer(place.root, port))

    slow = Place(place.store, (f"127.0.0.1:{port}",), poll_s=0.05, load_timeout_s=10, say=hear)
    note_start(place.root, slow.servers[0])  # of this process, which lives
    assert "served by 127.0.0.1" in promote(slow, 2, why="")
    (server,) = servers
    server.http.shutdown()
    server.http.server_close()
    assert (server.refused, server.labels) == ([], {"stable": 2})


def test_a_process_that_is_gone_starts_nothing(tmp_path: Path) -> None:
    assert not is_starting(tmp_path, "a:1")
    code = "import sys; from pathlib import Path; from serving.starting import note_start; "
    subprocess.run([sys.executable, "-c", code + "note_start(Path(sys.argv[1]), 'a:1')", str(tmp_path)], check=True)
    assert not is_starting(tmp_path, "a:1")
    note_start(tmp_path, "a:1")
    assert is_starting(tmp_path, "a:1")
    assert not is_starting(tmp_path, "a:2")

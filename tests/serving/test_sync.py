"""Copies of a store: between folders, and through a store that speaks S3, on a free port of this machine."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from preprocessing.errors import ArtefactError, ConfigError, CorruptError
from preprocessing.remote_files import match_remote
from serving.labels import promote
from serving.lifecycle import retire
from serving.models_config import read_models, remove_model
from serving.rollout import Place
from serving.sync import SyncOptions, sync_forever, sync_once
from serving.sync_files import download_version, read_manifest_of
from serving.version_store import publish, versions
from tests.preprocessing.test_remote_files import wait_for

QUIET = SyncOptions()


def store_with(root: Path, *models: str, count: int = 2, text: bytes = b"graph") -> dict[str, Place]:
    """Makes a store whose models have versions 1 to `count`, the first of them stable."""
    export = root / "export"
    (export / "variables").mkdir(parents=True, exist_ok=True)
    (export / "saved_model.pb").write_bytes(text)
    (export / "variables" / "variables.index").write_bytes(b"index")
    (export / "variables" / "variables.data-00000-of-00001").write_bytes(b"data" * 1000)
    places = {}
    for model in models:
        places[model] = Place(root / "store" / model)
        for _ in range(count):
            publish(places[model].store, export, metadata={})
        promote(places[model], 1, why="")
    return places


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_named_versions_come_first_and_then_the_config_with_paths_of_the_copy(tmp_path: Path) -> None:
    places = store_with(tmp_path, "shop", "news")
    sync_once(str(tmp_path / "store"), str(tmp_path / "copy"), QUIET)
    assert contents(tmp_path / "copy" / "shop" / "1") == contents(places["shop"].store / "1")
    found = read_models(tmp_path / "copy")
    assert {name: (model.base_path, model.versions, model.labels) for name, model in found.items()} == {
        name: (tmp_path / "copy" / name, (1,), {"stable": 1}) for name in ("shop", "news")
    }
    assert versions(tmp_path / "copy" / "shop") == [1]


def test_what_the_config_names_no_more_is_removed_from_the_copy(tmp_path: Path) -> None:
    places = store_with(tmp_path, "shop", "news")
    source, dest = str(tmp_path / "store"), str(tmp_path / "copy")
    sync_once(source, dest, QUIET)
    promote(places["shop"], 2, why="")
    shutil.rmtree(places["news"].store)
    remove_model(tmp_path / "store", "news")
    sync_once(source, dest, QUIET)
    assert versions(tmp_path / "copy" / "shop") == [2]
    assert versions(tmp_path / "copy" / "news") == []
    assert set(read_models(tmp_path / "copy")) == {"shop"}


def test_nothing_is_done_twice(tmp_path: Path) -> None:
    store_with(tmp_path, "shop")
    heard: list[str] = []
    options = SyncOptions(say=heard.append)
    sync_once(str(tmp_path / "store"), str(tmp_path / "copy"), options)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "copy").rglob("*")}
    assert heard[0].startswith("model shop: version 1 copied")
    heard.clear()
    sync_once(str(tmp_path / "store"), str(tmp_path / "copy"), options)
    assert heard == []
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "copy").rglob("*")} == before


@pytest.mark.parametrize("spoil", ["changed", "shorter", "missing", "unfinished"])
def test_what_is_not_as_published_never_appears_and_the_old_config_stays(tmp_path: Path, spoil: str) -> None:
    places = store_with(tmp_path, "shop", "news")
    source, dest = str(tmp_path / "store"), str(tmp_path / "copy")
    sync_once(source, dest, QUIET)
    for place in places.values():
        promote(place, 2, why="")
    file = places["shop"].store / "2" / "variables" / "variables.data-00000-of-00001"
    whole = file.read_bytes()
    file.unlink()
    if spoil == "changed":
        file.write_bytes(b"x" + whole[1:])
    elif spoil == "shorter":
        file.write_bytes(whole[:-1])
    elif spoil == "unfinished":
        file.write_bytes(whole)
        (places["shop"].store / "2" / "manifest.json").rename(tmp_path / "kept")
    with pytest.raises(ArtefactError, match="is not finished" if spoil == "unfinished" else "variables.data-00000"):
        sync_once(source, dest, QUIET)
    assert versions(tmp_path / "copy" / "shop") == [1]
    assert read_models(tmp_path / "copy")["shop"].labels == {"stable": 1}
    assert read_models(tmp_path / "copy")["news"].labels == {"stable": 2}  # one model's fault is not another's
    if spoil == "unfinished":
        (tmp_path / "kept").rename(places["shop"].store / "2" / "manifest.json")
    file.write_bytes(whole)
    sync_once(source, dest, QUIET)
    assert contents(tmp_path / "copy" / "shop" / "2") == contents(places["shop"].store / "2")


def test_a_download_goes_on_with_what_one_before_has_left(tmp_path: Path) -> None:
    place = store_with(tmp_path, "shop")["shop"]
    manifest = read_manifest_of(str(place.store / "1"))
    assert manifest is not None
    partial = tmp_path / "copy" / ".tmp-sync-1"
    (partial / "variables").mkdir(parents=True)
    (partial / "saved_model.pb").write_bytes(b"graph")  # right
    (partial / "variables" / "variables.index").write_bytes(b"inde")  # cut short
    (partial / "variables" / "junk").write_bytes(b"junk")
    whole = sum(each["size"] for each in manifest["files"].values())
    assert download_version(str(place.store / "1"), tmp_path / "copy", 1, manifest) == whole - len(b"graph")
    assert contents(tmp_path / "copy" / "1") == contents(place.store / "1")


def test_a_number_that_means_another_version_is_refused(tmp_path: Path) -> None:
    store_with(tmp_path / "a", "shop")
    store_with(tmp_path / "b", "shop", text=b"another graph")
    sync_once(str(tmp_path / "a" / "store"), str(tmp_path / "copy"), QUIET)
    with pytest.raises(ArtefactError, match="another version 1"):
        sync_once(str(tmp_path / "b" / "store"), str(tmp_path / "copy"), QUIET)


@pytest.mark.parametrize("name", ["../evil", "/etc/evil"])
def test_a_manifest_cannot_write_outside_of_its_version(tmp_path: Path, name: str) -> None:
    place = store_with(tmp_path, "shop")["shop"]
    path = place.store / "1" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"][name] = manifest["files"]["saved_model.pb"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(ArtefactError, match="no file of a version"):
        sync_once(str(tmp_path / "store"), str(tmp_path / "copy"), QUIET)
    with pytest.raises(CorruptError):
        download_version(str(place.store / "1"), tmp_path / "other", 1, manifest)


def test_a_model_whose_name_is_a_path_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "models.config").write_text(
        'model_config_list { config { name: "../up" base_path: "/m" model_platform: "tensorflow" } }'
    )
    with pytest.raises(ArtefactError, match="cannot be the name of a folder"):
        sync_once(str(tmp_path / "store"), str(tmp_path / "copy"), QUIET)


def test_a_policy_that_others_wrote_is_resolved_by_what_is_finished(tmp_path: Path) -> None:
    place = store_with(tmp_path, "shop", count=3)["shop"]
    (place.store / "3" / "manifest.json").unlink()
    (tmp_path / "store" / "models.config").write_text(
        'model_config_list { config { name: "shop" base_path: "/m/shop" model_platform: "tensorflow" '
        "model_version_policy { latest { num_versions: 1 } } } }"
    )
    sync_once(str(tmp_path / "store"), str(tmp_path / "copy"), QUIET)
    assert read_models(tmp_path / "copy")["shop"].versions == (2,)


def test_two_remote_places_and_a_source_without_a_config_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="both remote"):
        sync_once("s3://a", "s3://b", QUIET)
    with pytest.raises(ArtefactError, match=r"models\.config is not there; promote a version"):
        sync_once(str(tmp_path / "none"), str(tmp_path / "copy"), QUIET)


def test_it_goes_on_after_an_error_and_says_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            store_with(tmp_path, "shop")
        if len(slept) == 3:
            raise KeyboardInterrupt

    slept: list[float] = []
    monkeypatch.setattr("serving.sync.time.sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        sync_forever(str(tmp_path / "store"), str(tmp_path / "copy"), SyncOptions(say=heard.append), every_s=30)
    assert slept == [30, 30, 30]
    assert [text.split(":")[0] for text in heard[:2]] == ["not synced, trying again", "model shop"]
    assert versions(tmp_path / "copy" / "shop") == [1]


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """Root of an empty bucket."""
    boto3 = pytest.importorskip("boto3", reason="s3:// needs the extra 's3'")
    pytest.importorskip("moto.server", reason="the local store comes with the extra 'test'")
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    patch = pytest.MonkeyPatch()
    try:
        wait_for(url, server)
        for name, value in {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            patch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="models")
        yield "s3://models"
    finally:
        patch.undo()
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(10)


@pytest.mark.serving
def test_a_store_goes_up_to_s3_and_down_again(tmp_path: Path, bucket: str) -> None:
    place = store_with(tmp_path, "shop", count=3)["shop"]
    source, dest, remote = str(tmp_path / "store"), str(tmp_path / "copy"), f"{bucket}/up-and-down"
    heard: list[str] = []
    options = dataclasses.replace(QUIET, say=heard.append)
    sync_once(source, remote, options)
    sync_once(source, remote, options)
    assert [text.split(",")[0] for text in heard] == [
        "model shop: version 1 uploaded",
        f"{remote}/models.config written",
    ]
    sync_once(remote, dest, QUIET)
    assert contents(tmp_path / "copy" / "shop" / "1") == contents(place.store / "1")
    promote(place, 3, why="")
    retire(place, 1, why="")
    sync_once(source, remote, dataclasses.replace(options, prune=True))
    assert f"model shop: version 1 removed from {remote}/shop" in heard
    assert not match_remote([f"{remote}/shop/1/**"])
    sync_once(remote, dest, QUIET)
    assert versions(tmp_path / "copy" / "shop") == [3]
    assert read_models(tmp_path / "copy")["shop"].labels == {"stable": 3}


@pytest.mark.serving
def test_a_version_half_uploaded_or_damaged_on_s3_is_not_served(tmp_path: Path, bucket: str) -> None:
    boto3 = pytest.importorskip("boto3", reason="s3:// needs the extra 's3'")
    place = store_with(tmp_path, "shop")["shop"]
    source, dest, remote = str(tmp_path / "store"), str(tmp_path / "copy"), f"{bucket}/damaged"
    sync_once(source, remote, QUIET)
    sync_once(remote, dest, QUIET)
    promote(place, 2, why="")
    sync_once(source, remote, QUIET)
    client, key = boto3.client("s3"), "damaged/shop/2/variables/variables.data-00000-of-00001"
    body = client.get_object(Bucket="models", Key=key)["Body"].read()
    marker = client.get_object(Bucket="models", Key="damaged/shop/2/manifest.json")["Body"].read()
    for damage in ("short", "gone", "unfinished"):
        client.put_object(Bucket="models", Key=key, Body=body[:-1] if damage == "short" else body)
        if damage == "gone":
            client.delete_object(Bucket="models", Key=key)
        if damage == "unfinished":
            client.delete_object(Bucket="models", Key="damaged/shop/2/manifest.json")
        with pytest.raises(ArtefactError):
            sync_once(remote, dest, QUIET)
        assert versions(tmp_path / "copy" / "shop") == [1]
        assert read_models(tmp_path / "copy")["shop"].labels == {"stable": 1}
    client.put_object(Bucket="models", Key="damaged/shop/2/manifest.json", Body=marker)
    sync_once(remote, dest, QUIET)
    assert contents(tmp_path / "copy" / "shop" / "2") == contents(place.store / "2")


@pytest.mark.serving
def test_killed_at_any_moment_it_leaves_no_half_version_and_the_next_one_ends_it(tmp_path: Path, bucket: str) -> None:
    place = store_with(tmp_path, "shop")["shop"]
    big = tmp_path / "export" / "assets"
    big.mkdir()
    for number in range(8):
        (big / f"{number}.bin").write_bytes(os.urandom(1 << 16))
    publish(place.store, tmp_path / "export", metadata={"export_key": "big"})
    promote(place, 3, why="")
    source, dest, remote = str(tmp_path / "store"), tmp_path / "copy", f"{bucket}/killed"
    sync_once(source, remote, QUIET)
    command = [sys.executable, "-m", "pipeline", "sync", remote, str(dest), "--every", "1", "--server", "127.0.0.1:9"]
    partial = dest / "shop" / ".tmp-sync-3"
    for wanted in (1, 4):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while len(list((partial / "assets").glob("*"))) < wanted and not (dest / "models.config").exists():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        if not (dest / "shop" / "3").exists():
            assert not (dest / "models.config").exists()
    sync_once(remote, str(dest), QUIET)
    assert contents(dest / "shop" / "3") == contents(place.store / "3")
    assert not partial.exists()


@pytest.mark.serving
def test_a_server_beside_the_copy_follows_labels_of_the_remote_store(
    tmp_path: Path, bucket: str, half_plus: Any, free_port: Any
) -> None:
    import httpx

    from serving.launch import ServeOptions, serve_command, start, wait_until_available

    place = Place(tmp_path / "store" / "half")
    for k in (1, 2, 3):
        publish(place.store, half_plus(k), metadata={})
    promote(place, 1, why="")
    remote, dest = f"{bucket}/served", tmp_path / "copy"
    sync_once(str(tmp_path / "store"), remote, QUIET)
    sync_once(remote, str(dest), QUIET)
    flags = {"model_config_file_poll_wait_seconds": 1, "allow_version_labels_for_unavailable_models": True}
    rest = free_port()
    options = ServeOptions(model_config_file=dest / "models.config", port=free_port(), rest_api_port=rest, flags=flags)
    server = start(serve_command(options, backend="embedded"), log_path=tmp_path / "log")
    try:
        wait_until_available("127.0.0.1", rest, model_name="half", timeout_s=60, server=server)
        for version in (2, 3):
            promote(place, version, why="")  # at once: the copy never sees the steps between
            sync_once(str(tmp_path / "store"), remote, QUIET)
            sync_once(remote, str(dest), SyncOptions(servers=(f"127.0.0.1:{rest}",), poll_s=1.0))
            url = f"http://127.0.0.1:{rest}/v1/models/half/labels/stable:predict"
            answer = httpx.post(url, content='{"instances": [0.0]}').json()
            assert answer == {"predictions": [float(version)]}
    finally:
        server.stop()

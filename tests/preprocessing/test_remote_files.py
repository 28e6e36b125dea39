"""Sources on a store that speaks S3, a server of its own on a free port of this machine."""

import gzip
import io
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preprocessing.cleaning import clean
from preprocessing.errors import SourceError
from preprocessing.estimates import estimate_rows
from preprocessing.remote_files import is_remote, match_remote, open_remote
from preprocessing.sources import fingerprint, match, match_source, plan_splits, read_table_blocks
from preprocessing.spec import DayRange, SourceSpec

START_TIMEOUT_S = 60.0
CSV = b"a,b\n" + b"".join(b"%d,x\n" % i for i in range(500))


def parquet() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"a": range(500), "b": ["x"] * 500, "z": range(500)}), file, row_group_size=200)
    return file.getvalue()


OBJECTS = {
    "log/dt=2026-11-01/x.csv": CSV,
    "log/dt=2026-11-02/x.csv.gz": gzip.compress(CSV),
    "log/dt=2026-11-10/x.csv": b"a,b\n1,y\n",
    "table/x.parquet": parquet(),
    "lines/x.jsonl": b'{"a": 1, "b": "x"}\n' * 500,
}
SPEC = SourceSpec(
    paths=("log/dt=*/*",),
    columns={"a": "int64", "b": "string", "dt": {"type": "string", "partition": True}},
    day_partition="dt",
    newlines_in_values=False,
)
PLAIN = SourceSpec(paths=("x",), columns={"a": "int64", "b": "string"})


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while server.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=1).close()
        except urllib.error.HTTPError:
            return  # it answers
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"the store at {url} did not answer within {START_TIMEOUT_S} s")


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """Root of a bucket with `OBJECTS`."""
    boto3 = pytest.importorskip("boto3", reason="s3:// needs the extra 's3'")
    pytest.importorskip("moto.server", reason="the local store comes with the extra 'test'")
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
        client = boto3.client("s3")
        client.create_bucket(Bucket="logs")
        for key, body in OBJECTS.items():
            client.put_object(Bucket="logs", Key=key, Body=body)
        yield "s3://logs"
    finally:
        patch.undo()
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(10)


def rows(path: str, spec: SourceSpec, **more: Any) -> list[dict[str, Any]]:
    blocks = read_table_blocks(path, spec, block_bytes=1 << 10, **more)
    return [row for block in blocks for row in clean(block, spec, source="s", path=path).rows.to_pylist()]


@pytest.mark.serving
def test_files_of_the_days_are_found_and_read(store: str) -> None:
    assert len(match(["log/*/*", "table/x.parquet"], root=store)) == 4
    files = match_source(SPEC, root=store, days=DayRange(first="2026-11-01", last="2026-11-03"))
    assert files == [f"{store}/log/dt=2026-11-01/x.csv", f"{store}/log/dt=2026-11-02/x.csv.gz"]
    for path, day in zip(files, (b"2026-11-01", b"2026-11-02"), strict=True):
        assert rows(path, SPEC) == [{"a": i, "b": b"x", "dt": day} for i in range(500)]
    assert estimate_rows(files[0], file_format="csv") == 501


@pytest.mark.serving
def test_a_file_is_read_in_parts(store: str) -> None:
    path = f"{store}/log/dt=2026-11-01/x.csv"
    splits = plan_splits(path, SPEC, split_bytes=len(CSV) // 3)
    assert len(splits) > 2
    assert [row for split in splits for row in rows(path, SPEC, split=split)] == rows(path, SPEC)


@pytest.mark.serving
def test_parquet_and_json_lines_are_read(store: str) -> None:
    spec = PLAIN.model_copy(update={"paths": ("table/*.parquet",)})
    assert match_source(spec, root=store) == [f"{store}/table/x.parquet"]
    assert rows(f"{store}/table/x.parquet", spec) == [{"a": i, "b": b"x"} for i in range(500)]
    assert rows(f"{store}/lines/x.jsonl", PLAIN) == [{"a": 1, "b": b"x"}] * 500
    assert estimate_rows(f"{store}/table/x.parquet", file_format="parquet") == 500


@pytest.mark.serving
def test_the_checksum_of_the_store_tells_contents_apart(store: str) -> None:
    import hashlib

    found = fingerprint(f"{store}/log/dt=2026-11-01/x.csv")
    assert found == {
        "path": f"{store}/log/dt=2026-11-01/x.csv",
        "size_bytes": len(CSV),
        "checksum": hashlib.md5(CSV).hexdigest(),  # what S3 calls an ETag of an object put at once
    }


@pytest.mark.serving
def test_what_is_not_there_is_an_error(store: str) -> None:
    with pytest.raises(SourceError, match=r"no file matches 'none/\*'"):
        match(["none/*"], root=store)
    with pytest.raises(SourceError, match=r"s3://logs/none\.csv cannot be opened: .*Not found"):
        rows(f"{store}/none.csv", SPEC)
    with pytest.raises(SourceError, match="cannot be measured"):
        fingerprint(f"{store}/none.csv")


def test_a_store_that_nobody_knows_is_an_error() -> None:
    assert is_remote("nowhere://a/b") and not is_remote("a/b")
    with pytest.raises(SourceError, match=r"nowhere://a/b cannot be opened: .*correct the path, or the access"):
        open_remote("nowhere://a/b")
    with pytest.raises(SourceError, match="cannot be listed"):
        match_remote(["nowhere://a/*"])

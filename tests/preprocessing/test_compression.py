import bz2
import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from preprocessing.errors import SourceError
from preprocessing.sources import read_table_blocks
from preprocessing.spec import SourceSpec


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


Compress = Callable[[bytes], bytes]
CODECS: list[tuple[str, Compress]] = [(".gz", gzip.compress), (".zst", zstd), (".bz2", bz2.compress)]
CONTENT = b"a\n" + b"".join(b"%d\n" % (i * i) for i in range(3000))


def values(path: Path, content: bytes, *, compression: str | None = None, block_bytes: int = 1000) -> list[bytes]:
    path.write_bytes(content)
    spec = SourceSpec(paths=("x",), columns={"a": "string"}, compression=compression)
    blocks = read_table_blocks(str(path), spec, block_bytes=block_bytes)
    return [value for block in blocks for value in block.batch.column("a").to_pylist()]


@pytest.mark.parametrize(("suffix", "compress"), CODECS)
@pytest.mark.parametrize("block_bytes", [300, 1 << 20])
def test_members_in_a_row_are_read_as_one(tmp_path: Path, suffix: str, compress: Compress, block_bytes: int) -> None:
    expected = [b"%d" % (i * i) for i in range(3000)]
    content = compress(CONTENT[:101]) + compress(CONTENT[101:])
    assert values(tmp_path / f"x.csv{suffix}", content, block_bytes=block_bytes) == expected


@pytest.mark.parametrize(("suffix", "compress"), CODECS)
def test_a_file_cut_short_anywhere_is_an_error_that_says_how_far_it_got(
    tmp_path: Path, suffix: str, compress: Compress
) -> None:
    whole = compress(CONTENT)
    for cut in (5, len(whole) // 2, len(whole) - 1):
        with pytest.raises(
            SourceError, match=r"x\.csv.* cannot be read to its end: .*, after \d+ bytes of text; is the"
        ):
            values(tmp_path / f"x.csv{suffix}", whole[:cut])


@pytest.mark.parametrize(("suffix", "compress"), [CODECS[0], CODECS[2]])  # zstd need not carry a checksum
def test_a_damaged_file_is_an_error(tmp_path: Path, suffix: str, compress: Compress) -> None:
    whole = compress(CONTENT)
    half = len(whole) // 2
    damaged = whole[:half] + bytes([byte ^ 0x5A for byte in whole[half : half + 40]]) + whole[half + 40 :]
    with pytest.raises(SourceError):  # at its end, or before if not even the header survived
        values(tmp_path / f"x.csv{suffix}", damaged)


@pytest.mark.parametrize(("suffix", "compress"), CODECS)
def test_a_plain_file_with_the_name_of_a_compressed_one_is_an_error_unless_declared(
    tmp_path: Path, suffix: str, compress: Compress
) -> None:
    with pytest.raises(SourceError, match="cannot be read to its end"):
        values(tmp_path / f"x.csv{suffix}", b"a\n1\n")
    assert values(tmp_path / f"x.csv{suffix}", b"a\n1\n", compression="none") == [b"1"]
    kind = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}[suffix]
    assert values(tmp_path / "x.csv", compress(b"a\n1\n"), compression=kind) == [b"1"]


def test_compressed_parquet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="a compressed Parquet file cannot be read"):
        values(tmp_path / "x.parquet.gz", b"")

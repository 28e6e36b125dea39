from pathlib import Path

import pyarrow as pa
import pytest

from preprocessing.block_dictionaries import BlockDictionaries
from preprocessing.dictionaries import DICTIONARY

BLOCKS: list[list[bytes | None]] = [[b"a", b"b", None, b"a"], [b"c", b"a"], [None, b"\xff", b"b"]]


def write_blocks(folder: Path) -> list[tuple[str, pa.Array]]:
    """Returns for each block its path and its column."""
    found = []
    for number, words in enumerate(BLOCKS):
        column = pa.array(words, pa.binary()).dictionary_encode().cast(DICTIONARY)
        batch = pa.record_batch([column], names=["text"])
        path = str(folder / f"block-{number}.arrow")
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        found.append((path, column))
    return found


@pytest.mark.parametrize(
    "limits", [{}, {"column_bytes": 1}, {"total_bytes": 1}], ids=["merged", "column too large", "all too large"]
)
def test_slices_of_blocks_come_back_in_their_order_with_one_dictionary(tmp_path: Path, limits: dict[str, int]) -> None:
    blocks = write_blocks(tmp_path)
    dictionaries = BlockDictionaries(**limits)
    (first, a), (second, b), (third, c) = blocks
    files = [path for path, _ in blocks]
    for _ in range(2):  # the second time from what was merged before
        column = dictionaries.column("text", [(third, c), (first, a[1:3]), (second, b[:1])], files)
        assert column.type == DICTIONARY
        assert column.to_pylist() == [None, b"\xff", b"b", b"b", None, b"c"]
        assert len(set(column.dictionary.to_pylist())) == len(column.dictionary)


def test_sets_of_files_are_merged_apart_and_none_is_confused_with_another(tmp_path: Path) -> None:
    blocks = write_blocks(tmp_path)
    dictionaries = BlockDictionaries()
    for members in ([0, 1], [1, 2], [0, 2], [0, 1]):
        column = dictionaries.column("text", [blocks[m] for m in members], [blocks[m][0] for m in members])
        assert column.to_pylist() == [word for m in members for word in BLOCKS[m]]

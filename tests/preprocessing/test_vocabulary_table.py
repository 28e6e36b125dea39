from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing import vocabulary_table
from preprocessing.vocabulary import Vocabulary
from preprocessing.vocabulary_table import IdTable, write_assets

HOSTILE = st.one_of(st.sampled_from([b"", b"0:", b"1:", b"1:a", b"\n", b"a\x00", b"\xff"]), st.binary(max_size=4))


def vocabulary(tokens: list[bytes], num_oov: int = 1) -> Vocabulary:
    return Vocabulary(pa.array(tokens, pa.large_binary()), np.ones(len(tokens), np.int64), num_oov)


@settings(deadline=None, max_examples=15)
@given(st.lists(st.lists(HOSTILE, unique=True, max_size=6), min_size=1, max_size=3), st.integers(1, 40))
def test_each_table_knows_its_own_tokens_only(
    tmp_path_factory: pytest.TempPathFactory, words: list[list[bytes]], part_bytes: int
) -> None:
    vocabularies = {f"t{i}": vocabulary(tokens, num_oov=i + 1) for i, tokens in enumerate(words)}
    asked = sorted({token for tokens in words for token in tokens} | {b"never seen"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary_table.write_assets, "__kwdefaults__", {"part_bytes": part_bytes})
        table = IdTable(vocabularies, folder=tmp_path_factory.mktemp("assets"))
    for number, (name, tokens) in enumerate(zip(vocabularies, words, strict=True)):
        num_oov = number + 1
        for token, found in zip(asked, table.ids(tf.constant(asked), table=name).numpy().tolist(), strict=True):
            if token in tokens:
                assert found == 1 + num_oov + tokens.index(token)
            else:
                assert 1 <= found <= num_oov


def test_tokens_that_pass_the_limit_of_a_message_lie_in_several_assets(tmp_path: Path) -> None:
    tokens = [b"%03d" % i + bytes(97) for i in range(50)]
    paths = write_assets({"a": vocabulary(tokens[:30]), "b": vocabulary(tokens[30:])}, tmp_path, part_bytes=1000)
    assert len(paths) == 6  # nine strings of 108 bytes each
    assert all(path.stat().st_size < 1020 for path in paths)
    parsed = [token for path in paths for token in tf.io.parse_tensor(path.read_bytes(), tf.string).numpy()]
    assert parsed == [b"0:" + token for token in tokens[:30]] + [b"1:" + token for token in tokens[30:]]


def test_without_a_vocabulary_there_is_one_empty_asset(tmp_path: Path) -> None:
    (path,) = write_assets({}, tmp_path)
    assert tf.io.parse_tensor(path.read_bytes(), tf.string).shape == [0]

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preprocessing.errors import ArtefactError
from preprocessing.joining import KNOWN_PREFIX
from preprocessing.profile import profile
from preprocessing.profile_job import profile_rows
from preprocessing.profile_state import load_profile, to_bytes
from preprocessing.runner import local_pipeline


def rows(start: int, stop: int) -> pa.Table:
    numbers = list(range(start, stop))
    return pa.table(
        {
            "user": pa.array([str(number % 7).encode() for number in numbers], pa.binary()),
            "tags": pa.array([[str(number).encode()] * (number % 3) for number in numbers], pa.list_(pa.binary())),
            "__label_click": pa.array([number % 2 for number in numbers], pa.float32()),
        }
    )


def test_each_file_gets_a_state_and_together_they_are_the_profile_of_all_rows(tmp_path: Path) -> None:
    files = []
    for split, start, stop in (("train", 0, 30), ("valid", 30, 40), ("test", 40, 50)):
        files.append((tmp_path / f"{split}.parquet", tmp_path / "states" / split / "all.parquet"))
        kept = rows(start, stop)
        kept = kept.append_column(f"{KNOWN_PREFIX}click", pa.array(range(kept.num_rows)))
        pq.write_table(kept, files[-1][0])
    seen: list[int] = []
    profile_rows(files, labels=["click"], progress=tmp_path / "progress", pipeline=local_pipeline, observe=seen.append)
    assert {path for path in (tmp_path / "states").rglob("*") if path.is_file()} == {target for _, target in files}
    assert to_bytes(load_profile([target for _, target in files])) == to_bytes(profile(rows(0, 50), ["click"]))
    assert seen[-1] == 50


def test_a_spoiled_file_is_named_and_gets_no_state(tmp_path: Path) -> None:
    spoiled, target = tmp_path / "spoiled.parquet", tmp_path / "states" / "spoiled.parquet"
    spoiled.write_bytes(b"PAR1")
    with pytest.raises(ArtefactError, match=r"spoiled\.parquet cannot be read"):
        profile_rows([(spoiled, target)], labels=["click"], progress=tmp_path / "progress", pipeline=local_pipeline)
    assert list(target.parent.iterdir()) == []

"""From logs with dirt to a proposed config, records, and repaired rejects: the commands, on one small line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.config import load_config
from pipeline.example_stage import find_inputs
from pipeline.replay import repaired_counts, replayed_files
from pipeline.show import dataset_of, show_record
from preprocessing.cleaning import clean
from preprocessing.dataset import Dataset
from preprocessing.log_sources import cleaned_source
from preprocessing.sources import read_table_blocks
from preprocessing.vocabulary import load
from tests.pipeline.tiny_line import Outcome, rankmill


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the config that init proposes for simulated logs with dirt, preprocessed as it is."""
    root = tmp_path_factory.mktemp("line")
    logs, config = root / "logs", root / "config.yaml"
    simulated = ["--days", 4, "--rows-per-day", 400, "--seed", 3, "--dirt", 0.1]
    assert rankmill("simulate", "--out", logs, *simulated).code == 0
    assert rankmill("init", logs, "--out", config).code == 0
    config.write_text(config.read_text().replace("work_dir: work/logs", f"work_dir: {root / 'work'}"))
    done = rankmill("preprocess", config)
    assert (done.code, done.err) == (0, "")
    return config


@pytest.fixture(scope="module")
def dataset(line: Path) -> Dataset:
    return dataset_of(load_config(line))


def json_lines(outcome: Outcome) -> list[dict[str, Any]]:
    assert (outcome.code, outcome.err) == (0, "")
    return [json.loads(text) for text in outcome.out.splitlines()]


def by_name(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {field["name"]: field for field in record["fields"]}


def test_init_knows_the_simulator(line: Path) -> None:
    config = load_config(line)
    assert config.data.impressions == "impressions"
    assert config.data.labels[0].action is not None
    assert config.data.labels[0].action.source == "clicks"
    assert {(join.source, join.key) for join in config.data.joins} == {("items", ("item_id",)), ("users", ("user_id",))}
    roles = config.data.roles
    assert (roles.row_id, roles.user, roles.item) == ("impression_id", "user_id", "item_id")
    assert "truth" not in config.data.sources


@pytest.mark.parametrize(("split", "row"), [("train", 0), ("train", 7), ("valid", 3), ("test", 1)])
def test_a_record_says_what_its_row_says(line: Path, dataset: Dataset, split: str, row: int) -> None:
    (record,) = json_lines(rankmill("show", line, "--split", split, "--row", row, "--json"))
    place = row
    for shard in dataset.splits[split]:
        if place < shard.num_rows:
            raw = pq.read_table(dataset.folder / shard.rows).slice(place, 1).to_pylist()[0]
            break
        place -= shard.num_rows
    fields, words = by_name(record), load(dataset.folder / "vocabularies" / "item_id.parquet")
    tokens = words.tokens.to_pylist()
    item = raw["item_id"]
    expected = words.first_token_id + tokens.index(item) if item in tokens else 1
    assert fields["item_id"]["value"] == expected
    assert fields["item_id"]["raw"] == {"item_id": item.decode()}
    if item in tokens:
        assert fields["item_id"]["meaning"].startswith(f"{item.decode()} (seen ")
    if raw["price"] is not None:
        assert fields["price"]["meaning"] == f"about {raw['price']:.6g}"
    assert record["labels"] == {"click": raw["__label_click"]}


def test_a_file_of_records_is_enough(line: Path, dataset: Dataset) -> None:
    shard = dataset.splits["valid"][0]
    (by_file,) = json_lines(rankmill("show", dataset.folder / shard.records, "--row", 2, "--json"))
    (by_split,) = json_lines(rankmill("show", line, "--split", "valid", "--row", 2, "--json"))
    assert by_file == by_split
    table = rankmill("show", dataset.folder / shard.records)
    assert table.code == 0
    assert "labels: click" in table.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "rest"], "the dataset has train, valid, test"),
        (["--split", "valid", "--row", 10**6], "records; they are 0 to"),
        (["--row", -1], "records; they are 0 to"),
        (["--row-id", "nobody"], "no row of the dataset has this impression_id"),
        (["--row-id", "a", "--raw", "b"], "give one of --raw and --row-id"),
        (["--raw", "/nowhere.jsonl"], "cannot be read"),
    ],
)
def test_what_cannot_be_shown_is_one_line(line: Path, arguments: list[object], message: str) -> None:
    outcome = rankmill("show", line, *arguments)
    assert outcome.code == 2
    assert message in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_a_file_that_is_none_of_a_dataset_is_one_line(tmp_path: Path) -> None:
    stray = tmp_path / "stray.tfrecord"
    assert "no such file" in rankmill("show", stray).err
    stray.write_bytes(b"")
    assert "belongs to no finished dataset" in rankmill("show", stray).err


def test_a_raw_row_is_followed_and_what_is_lost_is_explained(line: Path, tmp_path: Path) -> None:
    row = {"item_id": "never", "price_shown": "abc", "position": 99, "timestamp_ms": 1767571593509, "price": 3.5}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n\n", encoding="utf-8")
    (shown,) = json_lines(rankmill("show", line, "--raw", path, "--json"))
    cells = {cell["column"]: cell for cell in shown["cells"]}
    fields = by_name(shown)
    assert cells["user_id"]["why"] == "missing: not given"
    assert (cells["price_shown"]["raw"], cells["price_shown"]["cleaned"]) == ("abc", None)
    assert "the value is no number" in cells["price_shown"]["why"]
    assert (fields["user_id"]["value"], fields["user_id"]["meaning"]) == (0, "missing")
    assert fields["item_id"]["value"] == 1
    assert "not in the vocabulary" in fields["item_id"]["meaning"]
    assert "seen fewer than 2 times in train" in fields["item_id"]["meaning"]
    assert fields["position"]["meaning"].startswith("not a number from 0 to")
    assert (fields["hour"]["value"], fields["weekday"]["meaning"]) == (1, "Monday")  # 2026-01-05T00:06:33Z
    assert fields["price"]["meaning"] == "about 3.5"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1: not JSON"),
        ("[]", "a row is a JSON object"),
        ("", "holds no row"),
        ('{"itm": 1}', "no source declares"),
    ],
)
def test_raw_rows_that_are_none_are_one_line(line: Path, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text, encoding="utf-8")
    assert message in rankmill("show", line, "--raw", path).err


def test_a_row_is_followed_by_its_identifier(line: Path, dataset: Dataset) -> None:
    rows = pq.read_table(dataset.folder / dataset.splits["train"][0].rows).slice(4, 1).to_pylist()
    identifier = rows[0]["impression_id"].decode()
    (shown,) = json_lines(rankmill("show", line, "--row-id", identifier, "--json"))
    (record,) = json_lines(rankmill("show", line, "--row", 4, "--json"))
    values = {name: field["value"] for name, field in by_name(shown).items()}
    assert values == {name: field["value"] for name, field in by_name(record).items()}


def repair(path: Path) -> int:
    """Makes rows of one cell too many whole again, as they were before the simulator spoiled them."""
    lines = path.read_text(encoding="utf-8").splitlines()
    cells = lines[0].count(",")
    fixed = [line.removesuffix(",?") if line.count(",") == cells + 1 else line for line in lines]
    path.write_text("\n".join(fixed) + "\n", encoding="utf-8")
    return sum(one != other for one, other in zip(lines, fixed, strict=True))


def test_rejected_rows_are_exported_repaired_and_taken_in_once(line: Path, tmp_path: Path) -> None:
    config = load_config(line)
    work = Path(config.work_dir)
    folder = tmp_path / "rejects"
    exported = rankmill("replay", line, "--export", folder)
    assert (exported.code, exported.err) == (0, "")
    origins = json.loads((folder / "origins" / "impressions.csv.json").read_text())["rows"]
    raw = (folder / "impressions.csv").read_text(encoding="utf-8").splitlines()
    assert len(raw) == 1 + len(origins)
    for text, origin in list(zip(raw[1:], origins, strict=True))[:5]:
        assert Path(origin["file"]).read_text(encoding="utf-8").splitlines()[origin["position"] - 1] == text
        assert origin["reason"] in ("malformed_row", "future_time")  # what the simulator spoils rows by

    fixed = repair(folder / "impressions.csv")
    assert 0 < fixed < len(origins)
    (folder / "clicks.csv").unlink(missing_ok=True)
    for record in (folder / "origins").glob("clicks*"):
        record.unlink()
    taken = rankmill("replay", line, folder)
    assert (taken.code, taken.err) == (0, "")
    assert "the row does not have as many cells as the header" in taken.out

    (stored,) = replayed_files(work)["impressions"]
    spec = cleaned_source(config.data, "impressions")
    blocks = list(read_table_blocks(stored, spec, block_bytes=1 << 20))
    cleaned = [clean(block, spec, source="impressions", path=stored) for block in blocks]
    assert sum(part.rows.num_rows for part in cleaned) == fixed
    assert sum(part.rejects.num_rows for part in cleaned) == 0
    assert repaired_counts(work, find_inputs(config).files) == {"impressions": fixed}

    again = rankmill("replay", line, folder)
    assert again.code == 0
    assert replayed_files(work) == {"impressions": [stored]}
    rest = tmp_path / "rest"
    assert rankmill("replay", line, "--export", rest).code == 0
    left = json.loads((rest / "origins" / "impressions.csv.json").read_text())["rows"]
    assert len(left) == len(origins) - fixed


def test_a_replay_without_its_record_is_not_there(tmp_path: Path) -> None:
    folder = tmp_path / "replayed" / "log"
    folder.mkdir(parents=True)
    folder.joinpath("a.csv").write_text("x\n1\n")
    assert replayed_files(tmp_path) == {}
    folder.joinpath("a.csv.json").write_text('{"rows": []}')
    assert replayed_files(tmp_path) == {"log": [str(folder / "a.csv")]}


def test_wrong_replays_are_one_line(line: Path, tmp_path: Path) -> None:
    assert "give one of --export" in rankmill("replay", line).err
    assert "holds no exported rejects" in rankmill("replay", line, tmp_path).err
    full = tmp_path / "full"
    full.mkdir()
    full.joinpath("x").touch()
    assert "not empty" in rankmill("replay", line, "--export", full).err
    folder = tmp_path / "out"
    assert rankmill("replay", line, "--export", folder).code == 0
    path = folder / "impressions.csv"
    path.write_text("x" + path.read_text(encoding="utf-8"), encoding="utf-8")
    outcome = rankmill("replay", line, folder)
    assert outcome.code == 2
    assert "the header was changed" in outcome.err


def test_the_record_api_takes_any_row(dataset: Dataset) -> None:
    last = dataset.num_rows("train") - 1
    assert show_record(dataset, split="train", row=last).where.endswith(
        f"record {dataset.splits['train'][-1].num_rows - 1}"
    )

"""The whole line on tiny logs: what it makes, what it skips, what it makes anew, and when it does not publish."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from preprocessing.manifest import read_manifest
from serving.version_store import read_metadata, versions
from tests.pipeline.tiny_line import NUM_DAYS, ROWS_PER_DAY, Outcome, files_of, rankmill, tiny_line

STAGES = ("examples", "dataset", "train", "export", "evaluate")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Outcome]]:
    root = tmp_path_factory.mktemp("line")
    yield root, rankmill("run", tiny_line(root))


Done = tuple[Path, Outcome]


def folders(root: Path, stage: str) -> set[str]:
    return {path.name for path in (root / "work" / stage).iterdir() if not path.name.startswith(".")}


def skipped(outcome: Outcome) -> list[str]:
    return [line.split()[1] for line in outcome.out.splitlines() if "done before" in line]


def test_a_run_ends_with_a_published_model_and_names_its_folder_last(done: Done) -> None:
    root, outcome = done
    assert (outcome.code, outcome.err) == (0, "")
    run = Path(outcome.last_line)
    assert run.parent == root / "work" / "runs"
    assert versions(root / "work" / "store" / "ranker") == [1]
    assert json.loads((run / "published.json").read_text())["version"] == 1
    assert "published as version 1" in outcome.out
    metadata = read_metadata(root / "work" / "store" / "ranker", 1)
    assert (metadata["run"], metadata["version"]) == (run.name, 1)
    assert metadata["metrics"] == json.loads((run / "metrics.json").read_text())


def test_the_report_of_a_run_is_one_page_that_needs_no_network(done: Done) -> None:
    run = Path(done[1].last_line)
    text = (run / "report.html").read_text(encoding="utf-8")
    for part in ("Gate", "Metrics", "Slices of the test rows", "What the model rests on", "published as version 1"):
        assert part in text
    assert text.count("<svg") == 4
    assert "http" not in text.replace("http://www.w3.org", "")
    assert 'href="data_report.html"' in text
    assert (run / "data_report.html").exists()


def test_the_run_folder_holds_every_figure_by_split(done: Done) -> None:
    metrics = json.loads((Path(done[1].last_line) / "metrics.json").read_text())
    assert set(metrics) == {"valid", "test"}
    for figures in metrics.values():
        assert {"auc", "log_loss", "gauc", "normalised_entropy", "calibration", "num_rows"} <= set(figures)
        assert figures["num_rows"] == ROWS_PER_DAY
        assert figures["agreement"] <= 1e-5
        assert 0 <= figures["auc"] <= 1


def test_the_run_folder_says_what_it_was_made_from(done: Done) -> None:
    run = Path(done[1].last_line)
    stages = json.loads((run / "run.json").read_text())
    assert tuple(sorted(stages)) == tuple(sorted(STAGES))
    for stage in stages.values():
        assert read_manifest(Path(stage["folder"]))["key"] == stage["key"]
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["model"]["hidden_units"] == [8]
    assert config["train"]["optimizers"]["dense"]["kind"] == "adam"  # defaults are written out


def test_every_row_is_scored_once(done: Done) -> None:
    root, _ = done
    (evaluation,) = folders(root, "evaluate")
    (dataset,) = folders(root, "dataset")
    rows = read_manifest(root / "work" / "dataset" / dataset)["content"]["rows"]
    assert rows == {"train": 3 * ROWS_PER_DAY, "valid": ROWS_PER_DAY, "test": (NUM_DAYS - 4) * ROWS_PER_DAY}
    for split in ("valid", "test"):
        scores = np.load(root / "work" / "evaluate" / evaluation / f"scores-{split}.npy")
        assert scores.shape == (rows[split], 1)


def test_nothing_half_written_is_left(done: Done) -> None:
    root, _ = done
    names = [path.name for path in (root / "work").rglob("*")]
    assert not [name for name in names if "partial" in name or name.endswith(".tmp") or name == "scratch"]


def test_the_same_command_again_skips_all_and_changes_no_file(done: Done) -> None:
    root, first = done
    before = files_of(root / "work")
    again = rankmill("run", root / "config.yaml")
    assert (again.code, again.err, again.last_line) == (0, "", first.last_line)
    assert skipped(again) == list(STAGES)
    assert files_of(root / "work") == before
    assert versions(root / "work" / "store" / "ranker") == [1]


def test_a_gate_that_is_missed_publishes_nothing_and_ends_with_the_run_folder(done: Done) -> None:
    root, _ = done
    store = root / "other-store"
    rule = '[{"split": "test", "metric": "auc", "min": 0.9999}, {"split": "valid", "metric": "log_loss", "max": 9}]'
    failed = rankmill("run", root / "config.yaml", "--set", f"gate={rule}", "--set", f"export.store={store}")
    assert failed.code == 1
    assert skipped(failed) == list(STAGES)
    assert not store.exists()
    (line,) = failed.err.splitlines()
    assert line.startswith("error: not published: 1 of 2 rules of the gate failed (test auc = 0.")
    run = Path(line.rsplit("; ", 1)[1])
    verdicts = json.loads((run / "gate.json").read_text())
    assert [verdict["passed"] for verdict in verdicts["verdicts"]] == [False, True]
    assert not (run / "published.json").exists()
    refused = rankmill("publish", root / "config.yaml", "--set", f"gate={rule}", "--set", f"export.store={store}")
    assert refused.code == 1
    assert "did not pass its gate" in refused.err
    assert not store.exists()


def test_single_commands_do_what_the_line_does(done: Done) -> None:
    root, _ = done
    before = files_of(root / "work")
    for command, stage in zip(("preprocess", "train", "export", "evaluate"), STAGES[1:], strict=True):
        outcome = rankmill(command, root / "config.yaml")
        assert (outcome.code, outcome.err) == (0, "")
        assert Path(outcome.last_line).parent.name == stage
    judged = rankmill("gate", root / "config.yaml")
    assert judged.last_line == done[1].last_line
    for _ in range(2):
        published = rankmill("publish", root / "config.yaml")
        assert (published.code, published.last_line) == (0, str(root / "work" / "store" / "ranker" / "1"))
    assert files_of(root / "work") == before


@pytest.mark.parametrize("command", ["train", "export", "evaluate", "gate", "publish"])
def test_a_command_before_there_is_data_says_what_comes_first(tmp_path: Path, command: str) -> None:
    outcome = rankmill(command, tiny_line(tmp_path))
    assert outcome.code == 1
    (line,) = outcome.err.splitlines()
    assert line.endswith("run `rankmill preprocess` first")
    assert not list((tmp_path / "work").rglob("*"))


@pytest.mark.parametrize(
    ("command", "needed"), [("export", "train"), ("evaluate", "export"), ("gate", "evaluate"), ("publish", "export")]
)
def test_a_command_before_its_time_says_which_comes_first(done: Done, command: str, needed: str) -> None:
    outcome = rankmill(command, done[0] / "config.yaml", "--set", "seed=77")  # the data is there, the model is not
    assert outcome.code == 1
    (line,) = outcome.err.splitlines()
    assert line.endswith(f"run `rankmill {needed}` first")


def test_a_model_that_was_not_judged_is_not_published(done: Done) -> None:
    root, _ = done
    outcome = rankmill("publish", root / "config.yaml", "--set", "gate=[{metric: auc, max: 1}]")
    assert outcome.code == 1
    assert "run `rankmill gate` first" in outcome.err


@pytest.mark.slow
def test_another_network_uses_the_same_records(done: Done) -> None:
    root, _ = done
    before = files_of(root / "work")
    changed = rankmill("run", root / "config.yaml", "--set", "model.kind=wide_deep")
    assert (changed.code, changed.err) == (0, "")
    assert skipped(changed) == ["examples", "dataset"]
    after = files_of(root / "work")
    # The counter of versions moves on, and what servers read names the new one.
    kept = [name for name in before if not name.startswith(("store/ranker/.", "store/models.config"))]
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert versions(root / "work" / "store" / "ranker") == [1, 2]


@pytest.mark.slow
def test_a_changed_source_makes_everything_anew(done: Done, tmp_path: Path) -> None:
    root, _ = done
    shutil.copytree(root / "logs", tmp_path / "logs")
    moved = rankmill("run", root / "config.yaml", "--set", f"data.root={tmp_path / 'logs'}")
    assert skipped(moved) == list(STAGES)  # the content counts, not where it lies
    with (tmp_path / "logs" / "items.csv").open("a") as file:
        file.write("i11,c9\n")
    changed = rankmill("run", root / "config.yaml", "--set", f"data.root={tmp_path / 'logs'}")
    assert (changed.code, skipped(changed)) == (0, [])

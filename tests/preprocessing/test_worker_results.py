from pathlib import Path

from preprocessing.worker_results import all_results, put_result


def test_results_come_by_name_and_a_repeated_attempt_counts_once(tmp_path: Path) -> None:
    put_result(tmp_path, "b", [2])
    put_result(tmp_path, "a", {"n": 1})
    put_result(tmp_path, "b", [2])
    (tmp_path / ".c.json.1.tmp").write_text("half of an attempt that died")
    assert all_results(tmp_path) == [{"n": 1}, [2]]

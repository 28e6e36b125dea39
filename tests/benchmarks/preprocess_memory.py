"""Peak memory of preprocessing a large log: all processes of the job together, by the wide schema.

python -m tests.benchmarks.preprocess_memory [--rows 20000000] [--file-rows 1000000] [--mode multi_threading]

The rows lie in files of `--file-rows`. Resident memory of the job and its children is summed every tenth of a second;
pages that several processes share are counted in each, so the figure is never too low.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from tests.benchmarks.measure import machine
from tests.benchmarks.wide_data import wide_config, write_wide_rows

POLL_S = 0.1
DEADLINE_S = 4 * 3600


def main() -> None:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--file-rows", type=int, default=1_000_000)
    parser.add_argument("--mode", choices=("multi_threading", "multi_processing"), default="multi_threading")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), arguments), indent=2))


def measure(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns peak memory, wall time and what was written."""
    (folder / "logs").mkdir()
    num_files = -(-arguments.rows // arguments.file_rows)
    for number in range(num_files):
        num_rows = min(arguments.file_rows, arguments.rows - number * arguments.file_rows)
        write_wide_rows(folder / "logs" / f"{number:05d}.parquet", num_rows=num_rows, seed=number)
    config = wide_config(folder / "logs" / "*.parquet", folder / "work")
    # Each file numbers its rows from 0, so the split is by all columns.
    config["data"]["split"] = {"kind": "hash"}
    config["preprocess"] = {"mode": arguments.mode, "workers": arguments.workers}
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    start = time.perf_counter()
    command = (sys.executable, "-m", "pipeline", "preprocess", str(folder / "config.yaml"))
    peak = peak_rss_mb(*command, log=folder / "log")
    wall_s = time.perf_counter() - start
    rows = sum(pq.read_metadata(path).num_rows for path in (folder / "work" / "days").rglob("*.parquet"))
    if rows != arguments.rows:
        raise RuntimeError(f"{rows} rows labelled of {arguments.rows}")
    return {
        "machine": machine(),
        "rows": arguments.rows,
        "files": num_files,
        "mode": arguments.mode,
        "peak_rss_mb_of_all_processes": peak,
        "wall_s": round(wall_s),
    }


def peak_rss_mb(*command: str, log: Path) -> int:
    """Returns the largest sum of the resident memory of a command and its children; always ends it."""
    peak = 0
    deadline = time.monotonic() + DEADLINE_S
    with log.open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said) as process:
        try:
            while process.poll() is None:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{' '.join(command)} took longer than {DEADLINE_S} s")
                peak = max(peak, sum(rss_bytes(pid) for pid in family(process.pid)))
                time.sleep(POLL_S)
        finally:
            process.kill()
    if process.returncode:
        raise RuntimeError(log.read_text(encoding="utf-8", errors="replace")[-4000:])
    return peak >> 20


def family(root: int) -> set[int]:
    """Returns the process ids of a process and all that descend from it."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(name)] = int(fields[1])
    found, grown = {root}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found, grown = found | more, bool(more)
    return found


def rss_bytes(pid: int) -> int:
    """Returns the resident memory of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


if __name__ == "__main__":
    main()

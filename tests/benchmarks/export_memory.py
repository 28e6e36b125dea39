"""Peak memory of exporting and of loading one large table, against the bytes of the table itself.

    python -m tests.benchmarks.export_memory [--rows 16000000] [--shard-mb 256 65536]

Each side is a process of its own. A side's `peak_over_table` is its peak resident memory above what it had before it
began (TensorFlow imported, the transform not yet loaded), over the bytes of the table's weights. `--shard-mb` larger
than the table is one variable for all of it.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import TypeAdapter

from models.config import ModelSpec
from preprocessing.spec import FeatureSpec
from tests.benchmarks.measure import machine, run_side

SPEC = ModelSpec(kind="wide_deep", embedding_dim=16, hidden_units=(8,))
_MODULE = "tests.benchmarks.export_memory"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=16_000_000)
    parser.add_argument("--shard-mb", type=int, nargs="+", default=[256, 65536])
    parser.add_argument("--side", nargs=2)
    options = parser.parse_args()
    if options.side:
        side, folder = options.side
        print(json.dumps(_SIDES[side](Path(folder), options.rows, options.shard_mb[0])))
        return
    table_bytes = options.rows * (SPEC.embedding_dim + 1) * 4
    found: dict[str, Any] = {"machine": machine(), "table_mb": table_bytes >> 20, "sides": {}}
    with tempfile.TemporaryDirectory() as folder:
        common = ("--rows", str(options.rows))
        run_side(_MODULE, "--side", "prepare", folder, *common)
        for shard_mb in options.shard_mb:
            for side in ("export", "load"):
                result = run_side(_MODULE, "--side", side, folder, *common, "--shard-mb", str(shard_mb))
                result["peak_over_table"] = round(result["peak_bytes"] / table_bytes, 3)
                found["sides"][f"{side}, {shard_mb} MB a variable"] = result
    print(json.dumps(found, indent=1), flush=True)


def _prepare(folder: Path, num_rows: int, _: int) -> dict[str, Any]:
    from models.build import build_inference_model
    from models.checkpoint import save_checkpoint
    from tests.serving.exported import write_dataset

    features = (TypeAdapter(FeatureSpec).validate_python({"kind": "hashed", "name": "id", "buckets": num_rows}),)
    dataset = write_dataset(folder, pa.table({"id": ["a", "b"]}), features=features)
    (folder / "schema.json").write_text(dataset.schema.model_dump_json(), encoding="utf-8")
    model = build_inference_model(dataset.schema, SPEC)
    save_checkpoint(folder / "checkpoint", model, progress={"step": 1})
    return {}


def _export(folder: Path, _: int, shard_mb: int) -> dict[str, Any]:
    from preprocessing.dataset import Dataset
    from preprocessing.schema import DatasetSchema
    from serving.export import export_model
    from serving.export_spec import ExportOptions

    schema = DatasetSchema.model_validate_json((folder / "schema.json").read_bytes())
    options = ExportOptions(shard_bytes=shard_mb << 20)
    target = folder / f"model-{shard_mb}"
    return _measured(
        lambda: export_model(
            Dataset(folder, schema, {}), folder / "checkpoint", model=SPEC, folder=target, options=options
        )
    )


def _load(folder: Path, _: int, shard_mb: int) -> dict[str, Any]:
    from serving.server.servable import Servable

    def load() -> None:
        servable = Servable.load(folder / f"model-{shard_mb}")
        servable.run("serving_default", {"id": np.array([b"a"], object)})

    return _measured(load)


def _measured(work: Any) -> dict[str, Any]:
    """Returns how far resident memory rose at most while `work` ran, looked at 100 times a second."""
    before, peak, done = _resident(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, _resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start_s = time.perf_counter()
    work()
    seconds = time.perf_counter() - start_s
    done.set()
    watcher.join()
    whole = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"peak_bytes": max(peak, _resident()) - before, "process_peak_bytes": whole, "seconds": round(seconds, 1)}


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


_SIDES = {"prepare": _prepare, "export": _export, "load": _load}

if __name__ == "__main__":
    main()

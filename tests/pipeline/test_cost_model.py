"""What `rankmill plan` predicts: terms by hand, and tables of 400 GB on eight devices."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

import pipeline
from models.config import ModelSpec, OptimizersSpec
from models.embedding_plan import EmbeddingPlan
from models.placement import plan_embeddings, weight_groups
from pipeline.config import load_config
from pipeline.cost_model import Rates, memory_of, parse_quantity, step_cost
from pipeline.plan import plan_run
from pipeline.plan_view import show_plan
from preprocessing.errors import ConfigError
from preprocessing.schema import DatasetSchema, IdField, TableSchema

LARGE = Path(pipeline.__file__).parent / "configs" / "large_tables.yaml"
RATES = Rates(flops=1e9, memory=1e9, bandwidth=1e9, latency_s=1e-3)
SPEC = ModelSpec.model_validate({"embedding_dim": 4, "hidden_units": [8], "embeddings": {"placement": "sharded"}})
SCHEMA = DatasetSchema(
    raw_columns=(),
    id_fields=(IdField(name="a", table="a"), IdField(name="b", table="b")),
    tables=(TableSchema(name="a", num_rows=1000), TableSchema(name="b", num_rows=3)),
    dense=("x",),
    labels=("click",),
)


def plan_of(replicas: int) -> EmbeddingPlan:
    """Returns the plan of two sharded tables with Adagrad: 5 weights and 5 slots a row."""
    groups = weight_groups(SPEC.kind)
    return plan_embeddings(SCHEMA, SPEC, optimizers=OptimizersSpec(), groups=groups, num_replicas=replicas)


def test_each_term_of_a_step_is_its_formula() -> None:
    cost = step_cost(plan_of(2), SCHEMA, SPEC, global_batch=200, rates=RATES)
    weights = (2 * 4 + 1) * 8 + 8 + 1  # two fields and a number into 8 units, the head, the number's linear weight
    assert cost.compute_s == pytest.approx(6 * 100 * weights / 1e9)
    # 100 rows of 2 positions: 10 weights and slots read and written, 3 x 5 numbers looked up, pooled, given back.
    assert cost.rows_s == pytest.approx(100 * 2 * 4 * (2 * 10 + 3 * 5) / 1e9)
    # Half of up to 100 rows of table a and of all 3 of table b are the other's: an index, a row, a gradient.
    assert cost.exchange_bytes == 50 * (4 + 2 * 5 * 4) + 3 * (4 + 2 * 5 * 4) // 2
    assert cost.exchange_s == pytest.approx(cost.exchange_bytes / 1e9)
    assert cost.reduction_bytes == weights * 4  # 2 (R - 1) / R of the dense weights
    parts = cost.compute_s + cost.rows_s + cost.exchange_s + cost.reduction_s + cost.latency_s
    assert cost.total_s == pytest.approx(parts)


def test_one_replica_sends_nothing_and_waits_for_nobody() -> None:
    cost = step_cost(plan_of(1), SCHEMA, SPEC, global_batch=200, rates=RATES)
    assert (cost.exchange_bytes, cost.reduction_bytes, cost.latency_s) == (0, 0, 0)


def test_a_replica_holds_its_share_of_weights_and_slots() -> None:
    optimizers = OptimizersSpec()
    whole, half = (
        memory_of(plan_of(replicas), SCHEMA, SPEC, optimizers=optimizers, global_batch=200).tables
        for replicas in (1, 2)
    )
    row_bytes = 4 * 10
    assert whole - 1003 * row_bytes in (0, row_bytes)  # and a scratch row
    assert half - 502 * row_bytes in (0, row_bytes)


def test_tables_of_400_gb_are_planned_on_eight_devices(capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_run(load_config(LARGE), replicas=8, device_memory=80 * 10**9)
    assert sum(table.total_bytes for table in plan.tables) == pytest.approx(400e9, rel=0.01)
    assert plan.memory.tables == pytest.approx(50e9, rel=0.01)
    show_plan(plan, Console(width=200))
    shown = capsys.readouterr().out
    assert "expected step:" in shown
    for assumption in ("TFLOPS", "GB/s of its memory", "GB/s to others", "us a collective", "nothing overlaps"):
        assert assumption in shown
    assert "is assumed" not in shown  # the number of replicas was given


def test_tables_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"most is table 'user_id'.*shard it over 1\d replicas or more"):
        plan_run(load_config(LARGE), replicas=8, device_memory=40 * 10**9)


def test_quantities_have_units() -> None:
    assert parse_quantity("80GB", unit="B", flag="--device-memory") == 80e9
    assert parse_quantity("1.5 T", unit="FLOPS", flag="--flops") == 1.5e12
    for wrong in ("0GB", "GB", "-1GB", "8 apples"):
        with pytest.raises(ConfigError, match="--device-memory"):
            parse_quantity(wrong, unit="B", flag="--device-memory")

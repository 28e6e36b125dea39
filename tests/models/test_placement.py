"""Plans, as arithmetic."""

import pytest

from models.config import ModelSpec, OptimizerSpec, OptimizersSpec
from models.placement import EMBEDDING, FIRST_ORDER, EmbeddingPlan, plan_embeddings
from preprocessing.errors import ConfigError
from tests.models.samples import SCHEMA

ADAM = OptimizerSpec(kind="adam", learning_rate=0.01)


def plan(kind: str = "deepfm", **optimizers: OptimizerSpec) -> EmbeddingPlan:
    spec = ModelSpec.model_validate({"kind": kind, "embedding_dim": 8})
    return plan_embeddings(SCHEMA, spec, optimizers=OptimizersSpec(**optimizers), groups=(EMBEDDING, FIRST_ORDER))


def test_tables_lie_one_after_the_other_and_the_scratch_row_after_all() -> None:
    assert [(table.name, table.offset, table.num_rows) for table in plan().tables] == [
        ("user", 0, 13),
        ("item", 13, 17),
        ("tag", 30, 7),
    ]
    assert plan().scratch_row == 37


def test_bytes_count_weights_and_slots() -> None:
    # Adagrad: one slot. 38 rows x (8 + 1 columns) x 2 arrays x 4 bytes.
    assert plan().bytes_per_replica() == 38 * 9 * 2 * 4
    # Adam for vectors (2 slots), Adagrad for first-order weights (1 slot).
    assert plan(tables=ADAM, wide=OptimizersSpec().tables).bytes_per_replica() == 38 * (8 * 3 + 1 * 2) * 4


@pytest.mark.parametrize(("kind", "expected"), [("wide_deep", "ftrl"), ("deepfm", "adam")])
def test_the_wide_part_has_ftrl_in_wide_deep_and_the_tables_optimizer_elsewhere(kind: str, expected: str) -> None:
    assert {s.group: s.optimizer.kind for s in plan(kind, tables=ADAM).storages}[FIRST_ORDER] == expected
    assert {s.group: s.optimizer.kind for s in plan(kind, wide=ADAM).storages}[FIRST_ORDER] == "adam"


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(ConfigError, match="'shop'"):
        plan().table("shop")

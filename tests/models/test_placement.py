"""Plans, as arithmetic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.config import ModelSpec, OptimizerSpec, OptimizersSpec
from models.placement import EMBEDDING, FIRST_ORDER, EmbeddingPlan, plan_embeddings, rows_on, weight_groups
from models.plan_figures import bytes_sent_per_step, describe
from preprocessing.errors import ConfigError
from preprocessing.schema import DatasetSchema, IdField, TableSchema
from tests.models.samples import SCHEMA

ADAM = OptimizerSpec(kind="adam", learning_rate=0.01)
SGD = OptimizerSpec(kind="sgd", learning_rate=0.01)
BOTH = (EMBEDDING, FIRST_ORDER)


def plan(
    kind: str = "deepfm", *, replicas: int = 1, partitions: int = 0, embeddings: object = None, **optimizers: object
) -> EmbeddingPlan:
    spec = ModelSpec.model_validate({"kind": kind, "embedding_dim": 8, "embeddings": embeddings or {}})
    return plan_embeddings(
        SCHEMA,
        spec,
        optimizers=OptimizersSpec.model_validate(optimizers),
        groups=BOTH,
        num_replicas=replicas,
        num_partitions=partitions,
    )


def schema_of(sizes: list[int]) -> DatasetSchema:
    return DatasetSchema(
        raw_columns=(),
        id_fields=tuple(IdField(name=f"f{i}", table=f"t{i}") for i in range(len(sizes))),
        tables=tuple(TableSchema(name=f"t{i}", num_rows=size) for i, size in enumerate(sizes)),
        labels=("y",),
    )


def test_tables_lie_one_after_the_other_and_the_scratch_row_after_all() -> None:
    assert [(table.name, table.offset, table.num_rows, table.lookups) for table in plan().tables] == [
        ("user", 0, 13, 1),
        ("item", 13, 17, 4),
        ("tag", 30, 7, 2),
    ]
    (shelf,) = plan().shelves
    assert (shelf.scratch_row, shelf.columns) == (37, tuple(range(7)))


def test_bytes_count_weights_and_slots() -> None:
    # Adagrad: one slot. 38 rows x (8 + 1 columns) x 2 arrays x 4 bytes.
    assert plan().bytes_per_replica() == 38 * 9 * 2 * 4
    # Adam for vectors (2 slots), Adagrad for first-order weights (1 slot).
    assert plan(tables=ADAM, wide=OptimizersSpec().tables).bytes_per_replica() == 38 * (8 * 3 + 1 * 2) * 4


@pytest.mark.parametrize(("kind", "expected"), [("wide_deep", "ftrl"), ("deepfm", "adam")])
def test_the_wide_part_has_ftrl_in_wide_deep_and_the_tables_optimizer_elsewhere(kind: str, expected: str) -> None:
    assert {s.group: s.optimizer.kind for s in plan(kind, tables=ADAM).storages}[FIRST_ORDER] == expected
    assert {s.group: s.optimizer.kind for s in plan(kind, wide=ADAM).storages}[FIRST_ORDER] == "adam"


def test_networks_without_linear_part_have_one_group() -> None:
    assert weight_groups("dcn") == (EMBEDDING,)
    assert weight_groups("deepfm") == BOTH


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(ConfigError, match="'shop'"):
        plan().table("shop")
    with pytest.raises(ConfigError, match=r"model.embeddings.tables: no embedding table 'shop'"):
        plan(embeddings={"tables": {"shop": "sharded"}})


def test_auto_mirrors_small_tables_and_shards_large_ones() -> None:
    # A row takes (8 + 1) x 2 x 4 = 72 bytes: the tables 936, 1224 and 504.
    found = plan(replicas=2, embeddings={"mirrored_below_bytes": 1000})
    assert [table.placement for table in found.tables] == ["mirrored", "sharded", "mirrored"]
    assert [shelf.columns for shelf in found.shelves] == [(0, 5, 6), (1, 2, 3, 4)]


def test_a_named_table_goes_where_it_is_told() -> None:
    found = plan(replicas=2, embeddings={"placement": "mirrored", "tables": {"tag": "table_wise"}})
    assert [table.placement for table in found.tables] == ["mirrored", "mirrored", "table_wise"]


def test_one_replica_holds_everything_whole() -> None:
    assert {table.placement for table in plan(embeddings={"placement": "sharded"}).tables} == {"mirrored"}


def test_sharded_rows_go_round_the_replicas() -> None:
    found = plan(replicas=3, embeddings={"placement": "sharded"})
    (shelf,) = found.shelves
    assert shelf.shard_rows == (13, 12, 12)
    item = found.table("item")  # rows 13 to 29 of the shelf
    assert [(part.shard, part.first, part.step) for part in found.parts(item)] == [(0, 2, 3), (1, 0, 3), (2, 1, 3)]
    assert [rows_on(found, item, replica=replica) for replica in range(3)] == [5, 6, 6]


def test_whole_tables_are_balanced_largest_first() -> None:
    found = plan_embeddings(
        schema_of([5, 9, 4, 9, 1]),
        ModelSpec.model_validate({"embeddings": {"placement": "table_wise"}}),
        optimizers=OptimizersSpec(),
        groups=BOTH,
        num_replicas=2,
    )
    assert [found.owner(table) for table in found.tables] == [0, 0, 1, 1, 1]
    (shelf,) = found.shelves
    assert shelf.shard_rows == (14, 14)


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    replicas=st.integers(2, 5),
    kinds=st.lists(st.sampled_from(["mirrored", "sharded", "table_wise"]), min_size=6, max_size=6),
)
def test_every_row_has_one_place_and_no_place_two_rows(sizes: list[int], replicas: int, kinds: list[str]) -> None:
    tables = {f"t{i}": kinds[i] for i in range(len(sizes))}
    found = plan_embeddings(
        schema_of(sizes),
        ModelSpec.model_validate({"embeddings": {"tables": tables}}),
        optimizers=OptimizersSpec(),
        groups=BOTH,
        num_replicas=replicas,
    )
    places = set()
    for table in found.tables:
        shelf = found.shelf(table)
        rows = [table.offset + i * table.stride for i in range(table.num_rows)]
        assert all(row // shelf.num_shards < shelf.shard_rows[row % shelf.num_shards] for row in rows)
        assert max(rows) < shelf.end
        places |= {(shelf.kind, row) for row in rows}
        parts = found.parts(table)
        assert sorted(i for part in parts for i in part.ids(table.num_rows)) == list(range(table.num_rows))
        assert all(rows[i] % shelf.num_shards == part.shard for part in parts for i in part.ids(table.num_rows))
    assert len(places) == sum(sizes)
    assert not any((shelf.kind, shelf.scratch_row) in places for shelf in found.shelves)


def test_sharded_tables_take_an_rth_of_the_bytes() -> None:
    whole = plan(replicas=4, embeddings={"placement": "mirrored"}).bytes_per_replica()
    assert whole == 38 * 72
    assert plan(replicas=4, embeddings={"placement": "sharded"}).bytes_per_replica() == (10 + 1) * 72


def test_what_does_not_fit_is_refused_with_the_table_to_blame_and_ways_out() -> None:
    settings = {"placement": "mirrored", "budget_bytes": 38 * 72 - 1}
    with pytest.raises(ConfigError, match=r"2,735 bytes a replica.*'item' \(mirrored, 17 rows, 1,224 bytes") as error:
        plan(replicas=2, embeddings=settings)
    assert "model.embeddings.tables.item: sharded" in str(error.value)
    plan(replicas=2, embeddings={**settings, "budget_bytes": 38 * 72})
    plan(replicas=2, embeddings={**settings, "placement": "sharded"})


def test_parameter_servers_hold_all_tables_or_none() -> None:
    found = plan(partitions=2, replicas=1)
    assert {table.placement for table in found.tables} == {"partitioned"}
    assert found.bytes_per_replica() == 0
    with pytest.raises(ConfigError, match="sharded needs replicas in step"):
        plan(partitions=2, embeddings={"placement": "sharded"})
    with pytest.raises(ConfigError, match=r"model.embeddings.tables.tag: partitioned needs parameter servers"):
        plan(embeddings={"tables": {"tag": "partitioned"}})


def test_all_gather_cannot_dedupe() -> None:
    with pytest.raises(ConfigError, match=r"model.embeddings.dedupe"):
        plan(replicas=2, embeddings={"exchange": "all_gather", "dedupe": "on"})
    assert not plan(replicas=2, embeddings={"exchange": "all_gather"}).dedupe
    assert plan(replicas=2).dedupe


def test_figures_of_a_table_follow_the_formulas() -> None:
    # A global batch of 4 on 2 replicas: 2 examples each. item: 4 lookups, so 8 rows; user 2; tag 4. Width 9.
    tables = {"user": "sharded", "item": "mirrored", "tag": "table_wise"}
    found = plan(replicas=2, embeddings={"tables": tables})
    user, item, tag = describe(found, global_batch=4)
    assert (user.total_bytes, user.replica_bytes, user.width, user.slots) == (13 * 72, 7 * 72, 9, 9)
    assert user.bytes_per_step == 2 * (4 + 2 * 36) // 2
    assert item.bytes_per_step == 8 * (4 + 36)
    assert (tag.owner, tag.replica_bytes, tag.bytes_per_step) == (0, 7 * 72, 4 * (4 + 2 * 36) // 2)
    assert bytes_sent_per_step(found, global_batch=4) == user.bytes_per_step + item.bytes_per_step + tag.bytes_per_step


def test_distinct_rows_bound_the_traffic_and_bfloat16_halves_rows() -> None:
    def user(**settings: object) -> int:
        found = plan(replicas=2, embeddings={"placement": "sharded", **settings})
        return describe(found, global_batch=2000)[0].bytes_per_step

    assert user() == 13 * (4 + 2 * 36) // 2
    assert user(dedupe="off") == 1000 * (4 + 2 * 36) // 2
    assert user(exchange_dtype="bfloat16") == 13 * (4 + 2 * 18) // 2
    assert user(exchange="all_gather") == 1000 * (4 + 3 * 36)


def test_no_batch_or_one_replica_sends_nothing() -> None:
    assert bytes_sent_per_step(plan(), global_batch=4096) == 0
    assert bytes_sent_per_step(plan(replicas=2), global_batch=0) == 0

import json

import pytest
from pydantic import ValidationError

from pipeline.cluster import find_cluster, wait_for_tasks
from pipeline.launch import local_cluster
from pipeline.train_spec import ClusterSpec, StrategySpec
from preprocessing.errors import ConfigError, TrainingError

WORKERS = StrategySpec(kind="multi_worker_mirrored")
SERVERS = StrategySpec(kind="parameter_server")


def tf_config(job: str, index: int, **jobs: list[str]) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": jobs, "task": {"type": job, "index": index}})}


def test_a_strategy_of_one_process_has_no_cluster() -> None:
    assert find_cluster(StrategySpec(kind="mirrored"), tf_config("worker", 0, worker=["a:1"])) is None


def test_the_environment_tells_who_this_process_is() -> None:
    cluster = find_cluster(WORKERS, tf_config("worker", 1, worker=["a:1", "b:1"]))
    assert cluster is not None
    assert (cluster.name, cluster.worker, cluster.members, cluster.leads) == (
        "worker-1",
        1,
        ("worker-0", "worker-1"),
        False,
    )


def test_a_chief_is_the_first_worker_of_a_synchronous_cluster() -> None:
    cluster = find_cluster(WORKERS, tf_config("worker", 0, chief=["a:1"], worker=["b:1"]))
    assert cluster is not None
    assert cluster.members == ("chief-0", "worker-0")
    assert cluster.worker == 1


def test_the_config_may_tell_it_instead_and_goes_before_the_environment() -> None:
    spec = StrategySpec(
        kind="parameter_server",
        cluster=ClusterSpec(workers=("a:1", "b:1"), servers=("c:1",), coordinator="d:1", task="ps:0"),
    )
    cluster = find_cluster(spec, tf_config("worker", 0, worker=["x:1"]))
    assert cluster is not None
    assert cluster.names == {"chief-0": "d:1", "worker-0": "a:1", "worker-1": "b:1", "ps-0": "c:1"}
    assert json.loads(cluster.tf_config)["task"] == {"type": "ps", "index": 0}


@pytest.mark.parametrize(
    ("spec", "environment", "text"),
    [
        (WORKERS, {}, "give strategy.cluster, set TF_CONFIG"),
        (WORKERS, {"TF_CONFIG": "{"}, "TF_CONFIG must be such as"),
        (WORKERS, {"TF_CONFIG": "[1]"}, "TF_CONFIG must be such as"),
        (WORKERS, tf_config("worker", 2, worker=["a:1"]), "no task worker-2; it has worker-0"),
        (WORKERS, tf_config("boss", 0, boss=["a:1"]), "a job 'boss'"),
        (WORKERS, tf_config("worker", 0, worker=["a:1"], ps=["b:1"]), "no parameter servers"),
        (SERVERS, tf_config("worker", 0, worker=["a:1"]), "exactly one chief"),
    ],
)
def test_a_cluster_that_makes_no_sense_is_refused(spec: StrategySpec, environment: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        find_cluster(spec, environment)


def test_addresses_need_ports_and_options_their_kind() -> None:
    with pytest.raises(ValidationError, match="HOST:PORT"):
        ClusterSpec(workers=("a",))
    with pytest.raises(ValidationError, match="given twice"):
        ClusterSpec(workers=("a:1", "a:1"))
    with pytest.raises(ValidationError, match="cluster belongs to kind: multi_worker_mirrored or parameter_server"):
        StrategySpec(cluster=ClusterSpec(workers=("a:1",)))
    with pytest.raises(ValidationError, match="communication belongs to"):
        StrategySpec(kind="mirrored", communication="ring")


def test_a_task_that_never_listens_is_named() -> None:
    local = local_cluster(workers=1, servers=1)
    cluster = find_cluster(SERVERS, {"TF_CONFIG": local.tf_config("chief-0")})
    assert cluster is not None
    with pytest.raises(TrainingError, match=r"worker-0 at 127\.0\.0\.1:\d+ did not listen within 0 s"):
        wait_for_tasks(cluster, timeout_s=0.0)


def test_a_local_cluster_has_an_address_of_its_own_for_each_process() -> None:
    cluster = local_cluster(workers=2, servers=2)
    assert cluster.names == ("chief-0", "worker-0", "worker-1", "ps-0", "ps-1")
    assert len({address for addresses in cluster.jobs.values() for address in addresses}) == 5
    assert cluster.restartable == {"worker-0", "worker-1"}
    assert local_cluster(workers=2, servers=0).restartable == frozenset()

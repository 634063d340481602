"""What a job's session is made with: the measurements' settings, below what the person says."""

import pytest

from ottla.pipeline.jobs.session import is_local, settings
from ottla.pipeline.jobs.words import SessionWords

SHUFFLES = "spark.sql.shuffle.partitions"


@pytest.fixture(autouse=True)
def _not_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


def test_on_this_machine_all_cores_are_taken_and_nobody_else_is_let_in() -> None:
    chosen = settings(SessionWords(), cores=3)
    assert (chosen["spark.master"], chosen[SHUFFLES]) == ("local[*]", "3")
    assert (chosen["spark.ui.enabled"], chosen["spark.driver.bindAddress"]) == ("false", "127.0.0.1")
    assert chosen["spark.python.unix.domain.socket.enabled"] == "true"
    assert chosen["spark.sql.session.timeZone"] == "UTC"


def test_a_cluster_has_its_own_addresses_and_numbers() -> None:
    chosen = settings(SessionWords(master="spark://host:7077"), cores=3)
    assert chosen["spark.master"] == "spark://host:7077"
    assert not {SHUFFLES, "spark.driver.bindAddress", "spark.driver.memory"} & set(chosen)


def test_under_spark_submit_the_master_is_spark_submits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    chosen = settings(SessionWords(), cores=3)
    assert not {"spark.master", SHUFFLES, "spark.driver.bindAddress"} & set(chosen)
    assert "spark.sql.streaming.stateStore.providerClass" in chosen


def test_what_the_person_says_stands() -> None:
    confs = {SHUFFLES: "9", "spark.python.unix.domain.socket.enabled": "false", "spark.x": "y"}
    chosen = settings(SessionWords(confs=confs), cores=3)
    assert {name: chosen[name] for name in confs} == confs


def test_local_clusters_are_local_too() -> None:
    assert [is_local(each) for each in ("local", "local[2]", "local-cluster[2,1,1024]", "yarn")] == [
        True,
        True,
        True,
        False,
    ]

"""`ottla reassign` and `ottla brokers` on real processes: planned, slowed down, interrupted, gone on with, undone."""

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from ottla.cli.brokers import brokers
from ottla.cli.cluster_state import ClusterNow, read_cluster
from ottla.cli.placing import Place
from ottla.cli.reassign import reassign
from ottla.cli.topic_requests import create_topic
from ottla.testing.processes import ProcessCluster, wait_for

RECORDS = 200  # of 10 kB


@pytest.fixture(scope="module")
def four() -> Iterator[ProcessCluster]:
    with ProcessCluster(nodes=3, settings={"offsets.topic.num.partitions": "2"}) as cluster:
        cluster.add_node()
        yield cluster


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(group: Any, four: ProcessCluster, *words: str) -> Result:
    done = CliRunner().invoke(group, [words[0], "-b", four.bootstrap_servers, *words[1:]])
    assert done.exception is None, (words, done.output, done.exception)
    return done


def rows(group: Any, four: ProcessCluster, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(group, four, *words, "-o", "json").stdout)
    return found


def now(four: ProcessCluster) -> ClusterNow:
    return read_cluster(four.bootstrap_servers)


def replicas(four: ProcessCluster, topic: str, index: int = 0) -> tuple[int, ...]:
    return now(four).partitions[topic, index].replicas


def filled(four: ProcessCluster, topic: str, *assignment: list[int]) -> None:
    """With 2 MB in each partition."""
    list(create_topic(four.bootstrap_servers, topic, -1, -1, assignment, {"min.insync.replicas": "2"}))
    producer = Producer({"bootstrap.servers": four.bootstrap_servers})
    for number in range(RECORDS * len(assignment)):
        producer.produce(topic, b"x" * 10_000, partition=number % len(assignment))
    assert producer.flush(30) == 0


def throttles(four: ProcessCluster) -> bool:
    """Whether the metadata of the first node has any."""
    from ottla.broker.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
    from ottla.broker.wire.messages.describe_configs_response import DescribeConfigsResponse
    from ottla.cli.client import Client

    asked = [DescribeConfigsResource(4, str(each), ["leader.replication.throttled.rate"]) for each in range(1, 5)]
    with Client(four.bootstrap_servers) as client:
        answer = client.call(DescribeConfigsRequest(resources=asked), DescribeConfigsResponse)
    return any(int(config.value or 0) < 2**63 - 1 for each in answer.results for config in each.configs)


def test_a_plan_says_what_it_comes_to_moves_and_is_undone(four: ProcessCluster, here: Path) -> None:
    filled(four, "planned", [1, 2], [1, 2])
    told = run(
        reassign, four, "plan", "--topic", "planned", "--brokers", "3,4", "--out", "p.json", "--throttle", "1000000"
    )
    assert "2 partitions: 2 move, 0 only change their order, 0 are so already" in told.output
    assert "8.0 MB to move" in told.output or "8.1 MB to move" in told.output
    assert "at 1.0 MB/s a broker" in told.output
    assert replicas(four, "planned") == (1, 2), "nothing has moved"
    assert json.loads((here / "p.back.json").read_text())["partitions"][0]["replicas"] == [1, 2]

    assert "done" in run(reassign, four, "apply", "p.json", "--yes").output
    assert sorted(replicas(four, "planned")) == [3, 4]
    assert {row["state"] for row in rows(reassign, four, "status", "p.json")} == {"done"}
    run(reassign, four, "apply", "p.back.json", "--yes")
    assert replicas(four, "planned") == (1, 2)


def test_a_slow_move_is_looked_at_given_up_and_leaves_no_throttle(four: ProcessCluster, here: Path) -> None:
    filled(four, "slow", [1, 2])
    plan = {"version": 1, "partitions": [{"topic": "slow", "partition": 0, "replicas": [1, 4]}]}
    (here / "p.json").write_text(json.dumps(plan))
    run(reassign, four, "apply", "p.json", "--yes", "--detach", "--throttle", "50000")
    wait_for(lambda: ("slow", 0) in now(four).moving, "the move to begin")
    (row,) = rows(reassign, four, "status")
    assert (row["state"], row["adding"], row["target"]) == ("moves", [4], [1, 4])
    assert row["bytes to go"] > 500_000
    assert throttles(four)
    assert "given up: slow-0" in run(reassign, four, "cancel", "p.json").output
    wait_for(lambda: replicas(four, "slow") == (1, 2), "the old replicas")
    assert not throttles(four)
    assert "nothing of it moves" in run(reassign, four, "cancel", "--all").output


def test_a_plan_that_takes_too_much_is_told_before(four: ProcessCluster, here: Path) -> None:
    filled(four, "thin", [1, 2])
    plan = {"version": 1, "partitions": [{"topic": "thin", "partition": 0, "replicas": [1]}]}
    (here / "p.json").write_text(json.dumps(plan))
    told = run(reassign, four, "apply", "p.json", "--dry-run").output
    assert "1 partitions will have fewer live replicas than acks=all needs" in told
    assert "thin-0: 1 of 2" in told
    assert replicas(four, "thin") == (1, 2)


def test_a_broker_is_drained_and_gets_its_leaderships_back(four: ProcessCluster, here: Path) -> None:
    list(create_topic(four.bootstrap_servers, "led", -1, -1, [[2, 1, 3], [2, 3, 1]], {}))
    four.wait_for_topic("led", 2)
    told = run(brokers, four, "drain", "2", "--yes").output
    assert "no data moves" in told
    leaders = {row["broker"]: row["leads"] for row in rows(brokers, four, "list")}
    assert leaders[2] == 0
    assert "broker 2 leads 0 partitions" in told
    run(reassign, four, "apply", "drain-2.back.json", "--yes")
    assert replicas(four, "led") == (2, 1, 3)


def test_a_broker_is_taken_out_for_good_though_that_is_interrupted(four: ProcessCluster, here: Path) -> None:
    filled(four, "leaving", [4, 1], [1, 4])
    assert {"leaving"} == {row["topic"] for row in rows(brokers, four, "describe", "4")}
    plan = {"version": 1, "partitions": [{"topic": "leaving", "partition": 0, "replicas": [2, 1]}]}
    (here / "p.json").write_text(json.dumps(plan))
    run(
        reassign, four, "apply", "p.json", "--yes", "--detach", "--throttle", "400000"
    )  # as an interrupted call leaves it

    ended: list[Result] = []
    work = threading.Thread(target=lambda: ended.append(run(brokers, four, "decommission", "4", "--yes")))
    work.start()
    wait_for(lambda: not now(four).on(4) and ("leaving", 0) in now(four).partitions, "broker 4 to be empty")
    assert all(len(each.replicas) == 2 for place, each in now(four).partitions.items() if place[0] == "leaving")
    assert 4 in now(four).brokers, "its process runs still"
    four.kill(4, signal.SIGTERM)
    work.join(30)
    assert "broker 4 is unregistered" in ended[0].output
    assert 4 not in now(four).brokers
    assert not throttles(four)


def test_places_are_named_that_are_not_there(four: ProcessCluster, here: Path) -> None:
    missing: Place = ("nowhere", 0)
    plan = {"version": 1, "partitions": [{"topic": missing[0], "partition": 0, "replicas": [1]}]}
    (here / "p.json").write_text(json.dumps(plan))
    done = CliRunner().invoke(reassign, ["apply", "-b", four.bootstrap_servers, "p.json"])
    assert "there is no partition nowhere-0" in str(done.exception)

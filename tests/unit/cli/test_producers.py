"""`ottla producers`: who writes to a topic, as its leaders know it."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ottla.broker.wire.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.cli import leader_requests
from ottla.cli.failures import CommandError
from ottla.cli.leader_requests import Place
from ottla.cli.producers import producers
from ottla.runtime.errors import ErrorCode
from tests.unit.cli.fake_groups import FakeCluster, PassingTime


class Cluster(FakeCluster):
    """Topic t with two partitions, and their producers."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = {Place("t", 0): (0, 9), Place("t", 1): (0, 9)}
        self.producers = {0: [ProducerState(9, 1, 4, 1_000, 3, 5), ProducerState(7, 0, -1, -1, -1, -1)]}

    def describe_producers(self, request: Any) -> DescribeProducersResponse:
        error = max(self.error("describe_producers"), 0)
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    topic.name,
                    [
                        PartitionResponse(index, error, None, self.producers.get(index, []))
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        )


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(leader_requests, "Client", made.client)
    monkeypatch.setattr(leader_requests, "time", PassingTime())
    return made


def invoke(*given: str) -> Result:
    return CliRunner().invoke(producers, ["describe", *given])


def test_each_producer_of_each_partition_has_a_row(cluster: Cluster) -> None:
    lines = invoke("t").stdout.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["0", "7", "0", "-", "-", "-", "-"],
        ["0", "9", "1", "4", "1970-01-01", "00:00:01.000+00:00", "3", "5"],
    ]


def test_programs_get_json(cluster: Cluster) -> None:
    first, second = json.loads(invoke("t", "-o", "json").stdout)
    assert (first["producer id"], first["transaction begins at"]) == (7, None)
    assert (second["topic"], second["partition"], second["transaction begins at"]) == ("t", 0, 5)


def test_one_partition_alone_is_asked_about(cluster: Cluster) -> None:
    assert json.loads(invoke("t", "--partition", "1", "-o", "json").stdout) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [(("t", "-p", "5"), "t has no partition 5: it has 2"), (("nix",), "nix: UNKNOWN_TOPIC_OR_PARTITION")],
)
def test_what_is_not_there_is_named(cluster: Cluster, given: tuple[str, ...], said: str) -> None:
    failure = invoke(*given).exception
    assert isinstance(failure, CommandError)
    assert said in str(failure)


def test_a_leader_that_is_changing_is_asked_again(cluster: Cluster) -> None:
    cluster.errors["describe_producers"] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert len(json.loads(invoke("t", "-o", "json").stdout)) == 2

"""How a cluster is read while replicas move, from a broker that hears of it a moment later than the controller tells of it."""

from collections.abc import Callable
from types import TracebackType
from typing import Any

import msgspec
import pytest

from ottla.broker.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.broker.wire.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from ottla.broker.wire.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from ottla.broker.wire.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ottla.broker.wire.messages.metadata_request import MetadataRequest
from ottla.broker.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.cli import cluster_state, reassign_apply
from ottla.cli.client import ConnectionLost, NobodyAnswers
from ottla.cli.cluster_state import BrokerNow, ClusterNow, Moving, read_cluster
from ottla.cli.failures import CommandError
from ottla.cli.placing import Partition
from ottla.cli.planning import settled, way_back
from ottla.cli.reassign_requests import is_done

PLACE = ("t", 0)
BROKERS = {each: BrokerNow(each, f"h{each}:9092", "", is_fenced=False) for each in (1, 2, 4)}


class Late:
    """A client of a broker that still has the replicas 4, 1; the controller has begun to move them to 2, 1."""

    def __init__(self, *_: Any) -> None:
        moving = OngoingPartitionReassignment(0, [2, 1, 4], [2], [4])
        partition = MetadataResponsePartition(partition_index=0, leader_id=4, replica_nodes=[4, 1], isr_nodes=[4, 1])
        self._answers: dict[type, msgspec.Struct] = {
            DescribeClusterRequest: DescribeClusterResponse(brokers=[DescribeClusterBroker(4, "h4", 9092)]),
            MetadataRequest: MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=[partition])]),
            ListPartitionReassignmentsRequest: ListPartitionReassignmentsResponse(
                topics=[OngoingTopicReassignment("t", [moving])]
            ),
        }

    def __enter__(self) -> "Late":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def call(self, request: msgspec.Struct, response: type[msgspec.Struct]) -> msgspec.Struct:
        return self._answers[type(request)]


def test_a_move_that_the_broker_has_not_heard_of_has_the_controllers_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_state, "Client", Late)
    now = read_cluster("localhost:9092", with_sizes=False)
    assert settled(PLACE, now) == (2, 1)
    assert way_back({PLACE: (2, 1)}, now) == {PLACE: (1, 4)}
    assert not is_done(PLACE, (2, 1), now)


class Going:
    """A client of brokers, by address: "lost" goes in the middle of a question, "nobody" is not there, any other answers."""

    tried: list[str]

    @classmethod
    def of(cls, *tried: str) -> Callable[..., Late]:
        """Each attempt in its turn."""
        attempts = iter(tried)
        cls.tried = []

        def opened(bootstrap: str, *_: Any) -> Late:
            cls.tried.append(bootstrap)
            what, client = next(attempts), Late()
            if what == "nobody":
                raise NobodyAnswers("no broker answers")
            if what == "lost":
                client.call = lost  # type: ignore[method-assign]  # in the middle
            return client

        def lost(request: msgspec.Struct, response: type[msgspec.Struct]) -> msgspec.Struct:
            raise ConnectionLost("the connection to the broker broke")

        return opened


def test_a_broker_that_goes_while_it_is_asked_is_followed_by_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_state, "Client", Going.of("lost", "lost", "answers"))
    assert read_cluster("a:1,b:2,c:3", with_sizes=False).partitions
    assert Going.tried == ["a:1,b:2,c:3", "b:2,c:3,a:1", "c:3,a:1,b:2"]


def test_when_all_have_gone_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_state, "Client", Going.of("lost", "lost", "answers"))
    with pytest.raises(ConnectionLost):
        read_cluster("a:1,b:2", with_sizes=False)


def test_who_answers_nothing_at_first_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_state, "Client", Going.of("nobody", "answers"))
    with pytest.raises(NobodyAnswers):
        read_cluster("a:1", with_sizes=False)


def test_who_waits_for_hours_waits_for_a_broker_that_is_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_state, "Client", Going.of("lost", "nobody", "nobody", "answers"))
    monkeypatch.setattr(cluster_state, "RETRY_S", 0.0)
    assert read_cluster("a:1", with_sizes=False, patience_s=60).partitions


def test_a_move_that_somebody_gave_up_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    moves = ClusterNow(BROKERS, {PLACE: Partition((2, 1, 4), (1, 4), 4)}, {PLACE: Moving((2, 1, 4), (2,), (4,))}, {})
    back = ClusterNow(BROKERS, {PLACE: Partition((1, 4), (1, 4), 4)}, {}, {})
    seen = iter([moves, back, back])
    monkeypatch.setattr(reassign_apply, "read_cluster", lambda *_, **__: next(seen))
    monkeypatch.setattr(reassign_apply, "POLL_S", 0.001)
    monkeypatch.setattr(reassign_apply, "HEARD_S", 0.0)
    with pytest.raises(CommandError, match="t-0: the move has ended, but not as planned"):
        reassign_apply.wait("localhost:9092", {PLACE: (2, 1)}, lambda _: None)

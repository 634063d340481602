"""`--bootstrap-controller`: the active controller is found through any, and its absence waited out."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.broker.wire.apis import API_VERSIONS, BY_NAME
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.headers import read_request_header
from ottla.broker.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from ottla.broker.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.broker.wire.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from ottla.cli import active_controller, voter_change
from ottla.cli.failures import CommandError
from ottla.cli.features import features
from ottla.cli.where import Where
from ottla.runtime.errors import ErrorCode

CLUSTER, QUORUM = BY_NAME["DescribeCluster"].key, BY_NAME["DescribeQuorum"].key


class FakeController:
    """Answers ApiVersions, DescribeCluster with what it is given, and DescribeQuorum: whether it leads."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.place = self.listener.getsockname()[:2]
        self.described = DescribeClusterResponse(endpoint_type=2)
        self.leads_after = 0
        self.asked: list[int] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                frame = memoryview(stream.read(int.from_bytes(size, "big")))
                key, version, correlation_id, _, position = read_request_header(frame, 0)
                answer = b"".join(bytes(part) for part in self._answer(key, version, frame, position))
                tags = b"" if key == API_VERSIONS else b"\0"
                body = correlation_id.to_bytes(4, "big") + tags + answer
                connection.sendall(len(body).to_bytes(4, "big") + body)

    def _answer(self, key: int, version: int, frame: memoryview, position: int) -> Any:
        self.asked.append(key)
        if key == API_VERSIONS:
            keys = [ApiVersion(API_VERSIONS, 0, 3), ApiVersion(CLUSTER, 0, 2), ApiVersion(QUORUM, 0, 2)]
            return encoder(ApiVersionsResponse, version)(ApiVersionsResponse(api_keys=keys))
        if key == CLUSTER:
            body, _ = decoder(DescribeClusterRequest, version)(frame, position)
            assert body.endpoint_type == 2
            return encoder(DescribeClusterResponse, version)(self.described)
        self.leads_after -= 1
        code = ErrorCode.NONE if self.leads_after < 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return encoder(type(described(code)), version)(described(code, self.node_id))


def described(code: int, leader_id: int = -1) -> Any:
    from ottla.broker.wire.messages.describe_quorum_response import DescribeQuorumResponse, PartitionData, TopicData

    partition = PartitionData(error_code=code, error_message=None, leader_id=leader_id)
    return DescribeQuorumResponse(error_message=None, topics=[TopicData("__cluster_metadata", [partition])])


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FakeController, FakeController]]:
    """Of which the second is the active one, as both say."""
    monkeypatch.setattr(voter_change, "PAUSE_S", 0.0)
    both = FakeController(1), FakeController(2)
    nodes = [DescribeClusterBroker(each.node_id, *each.place) for each in both]
    for each in both:
        each.described = DescribeClusterResponse(endpoint_type=2, controller_id=2, brokers=nodes)
    yield both
    for each in both:
        each.listener.close()


def at(controller: FakeController) -> Where:
    return Where(f"127.0.0.1:{controller.place[1]}", are_controllers=True)


def leader(where: Where) -> int:
    number: int = voter_change.describe_quorum(where).topics[0].partitions[0].leader_id
    return number


def test_the_active_controller_is_asked_whichever_is_named(pair: tuple[FakeController, FakeController]) -> None:
    assert [leader(at(each)) for each in pair] == [2, 2]
    assert QUORUM not in pair[0].asked


def test_while_none_is_active_another_is_asked_again(pair: tuple[FakeController, FakeController]) -> None:
    first, _ = pair
    first.described = DescribeClusterResponse(endpoint_type=2, controller_id=-1)
    first.leads_after = 2
    assert leader(at(first)) == 1
    assert first.asked.count(QUORUM) == 3


def test_an_active_controller_that_is_not_reached_is_waited_for(pair: tuple[FakeController, FakeController]) -> None:
    first, _ = pair
    with socket.create_server(("127.0.0.1", 0)) as ended:
        gone = ended.getsockname()[1]
    first.described = DescribeClusterResponse(
        endpoint_type=2, controller_id=2, brokers=[DescribeClusterBroker(2, "127.0.0.1", gone)]
    )
    first.leads_after = 1
    assert leader(at(first)) == 1


def test_an_active_controller_that_is_stopped_is_waited_for(
    pair: tuple[FakeController, FakeController], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernel takes the connection, and nobody ever answers."""
    monkeypatch.setattr(active_controller, "GREETING_S", 0.05)
    first, _ = pair
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        there = stopped.getsockname()[1]
        first.described = DescribeClusterResponse(
            endpoint_type=2, controller_id=3, brokers=[DescribeClusterBroker(3, "127.0.0.1", there)]
        )
        first.leads_after = 1
        assert leader(at(first)) == 1
    assert first.asked.count(QUORUM) == 2


def test_a_broker_in_a_controllers_place_is_told_so(pair: tuple[FakeController, FakeController]) -> None:
    first, _ = pair
    first.described = DescribeClusterResponse(
        error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message="this is a BROKER"
    )
    with pytest.raises(CommandError, match="this is a BROKER"):
        at(first).connect()


def test_both_places_at_once_are_a_usage_error() -> None:
    done = CliRunner().invoke(features, ["describe", "-b", "a:1", "--bootstrap-controller", "b:2"])
    assert done.exit_code == 2
    assert "not both" in done.output

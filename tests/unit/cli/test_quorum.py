"""`ottla quorum add-controller` and `remove-controller`: what is asked of the broker, and what the person reads."""

import json
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result

from ottla.broker.wire.messages.add_raft_voter_response import AddRaftVoterResponse
from ottla.broker.wire.messages.describe_quorum_response import (
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from ottla.broker.wire.messages.remove_raft_voter_response import RemoveRaftVoterResponse
from ottla.cli import client as cli_client
from ottla.cli import quorum
from ottla.cli.failures import CommandError
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import ZERO_ID, id_to_text

NOW_MS = 1_800_000_000_000
DISK = bytes(range(16))
NEW = ["--controller-id", "4", "--controller-directory-id", id_to_text(DISK), "--controller-endpoint", "c4:9093"]
OLD = ["--controller-id", "4", "--controller-directory-id", id_to_text(DISK)]


class FakeClient:
    """Answers every call with ``answer``."""

    answer: Any
    asked: list[Any]
    finalized: ClassVar[dict[str, int]] = {}

    def __init__(self, bootstrap: str) -> None: ...

    def __enter__(self) -> "FakeClient":
        return self

    def __exit__(self, *_: object) -> None: ...

    def call(self, request: Any, response: Any) -> Any:
        type(self).asked.append(request)
        return type(self).answer


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[FakeClient]:
    FakeClient.asked = []
    FakeClient.answer = AddRaftVoterResponse()
    monkeypatch.setattr(cli_client, "Client", FakeClient)
    return FakeClient


def invoke(*words: str) -> Result:
    return CliRunner().invoke(quorum.quorum, words)


def test_a_controller_is_added_by_what_is_said_of_it(client: type[FakeClient]) -> None:
    done = invoke("add-controller", *NEW, "-o", "json")
    request = client.asked[0]

    assert json.loads(done.output) == [
        {"change": "added", "node": 4, "directory id": id_to_text(DISK), "endpoint": "c4:9093"}
    ]
    assert (request.voter_id, request.voter_directory_id) == (4, DISK)
    assert [(each.name, each.host, each.port) for each in request.listeners] == [("CONTROLLER", "c4", 9093)]


def test_a_refusal_is_one_line_with_kafkas_error(client: type[FakeClient]) -> None:
    client.answer = AddRaftVoterResponse(error_code=ErrorCode.DUPLICATE_VOTER, error_message="node 4 is one already")
    failure = invoke("add-controller", *NEW).exception

    assert isinstance(failure, CommandError)
    assert str(failure) == "controller 4 was not added: DUPLICATE_VOTER: node 4 is one already"


@pytest.mark.parametrize(
    "words",
    [
        ("add-controller",),
        ("add-controller", *NEW[:4]),
        ("add-controller", "-c", "server.properties", *NEW),
        ("add-controller", *NEW[:3], "not-an-id", *NEW[4:]),
        ("remove-controller", *OLD[:2]),
        ("remove-controller", *OLD[:3], "not-an-id"),
    ],
)
def test_half_a_description_is_a_usage_error(client: type[FakeClient], words: tuple[str, ...]) -> None:
    assert invoke(*words).exit_code == 2
    assert client.asked == []


def test_a_controller_is_removed_by_node_and_directory(client: type[FakeClient]) -> None:
    client.answer = RemoveRaftVoterResponse()
    done = invoke("remove-controller", *OLD, "-o", "json")
    invoke("remove-controller", *OLD[:3], "-")

    assert json.loads(done.output) == [{"change": "removed", "node": 4, "directory id": id_to_text(DISK)}]
    assert [(each.voter_id, each.voter_directory_id) for each in client.asked] == [(4, DISK), (4, ZERO_ID)]


@pytest.mark.parametrize(("caught_up_ms", "lag_ms"), [(NOW_MS - 40, 40), (-1, None)])
def test_a_voter_that_was_never_heard_of_is_behind_for_no_known_time(
    client: type[FakeClient], caught_up_ms: int, lag_ms: int | None
) -> None:
    voters = [
        ReplicaState(1, ZERO_ID, 90, NOW_MS, NOW_MS),
        ReplicaState(2, ZERO_ID, 90, NOW_MS, NOW_MS - 10),
        ReplicaState(3, ZERO_ID, -1, -1, caught_up_ms),
    ]
    partition = PartitionData(leader_id=1, leader_epoch=4, high_watermark=90, current_voters=voters)
    client.answer = DescribeQuorumResponse(topics=[TopicData("__cluster_metadata", [partition])])
    done = invoke("describe", "--status", "-o", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)[0]["max lag ms"] == lag_ms

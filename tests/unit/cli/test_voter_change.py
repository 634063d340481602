"""The command goes on asking while brokers and leaders come and go, and does not call a change refused that was made."""

from typing import Any

import msgspec
import pytest

from ottla.broker.wire.messages.add_raft_voter_request import AddRaftVoterRequest
from ottla.broker.wire.messages.add_raft_voter_response import AddRaftVoterResponse
from ottla.broker.wire.messages.describe_quorum_response import (
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from ottla.broker.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from ottla.broker.wire.messages.remove_raft_voter_response import RemoveRaftVoterResponse
from ottla.cli import client, voter_change
from ottla.cli.client import ConnectionLost
from ottla.cli.failures import CommandError
from ottla.cli.feature_requests import update_features
from ottla.cli.where import Where
from ottla.runtime.errors import ErrorCode

DISK = bytes([4]) * 16
BROKER = Where("b:1")
ADD = AddRaftVoterRequest(None, 1000, 4, DISK, [])
REMOVE = RemoveRaftVoterRequest(None, 4, DISK)


class Broker:
    """Answers in turn; None loses the connection. ``voters``: what it describes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: ErrorCode | None) -> None:
        self.answers = list(answers)
        self.voters: list[tuple[int, bytes]] = []
        monkeypatch.setattr(client, "Client", lambda bootstrap: self)
        monkeypatch.setattr(voter_change, "PAUSE_S", 0.0)

    def __enter__(self) -> "Broker":
        return self

    def __exit__(self, *_: object) -> None: ...

    def call(self, request: msgspec.Struct, response: type[Any]) -> Any:
        if response is DescribeQuorumResponse and not self.answers:
            state = PartitionData(current_voters=[ReplicaState(*voter) for voter in self.voters])
            return DescribeQuorumResponse(topics=[TopicData("__cluster_metadata", [state])])
        answer = self.answers.pop(0)
        if answer is None:
            raise ConnectionLost("the connection to the broker broke")
        return response(error_code=answer)


def test_an_election_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER, ErrorCode.NONE)

    assert voter_change.add_voter(BROKER, ADD, 5).error_code == ErrorCode.NONE
    assert broker.answers == []


def test_a_description_waits_for_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    Broker(monkeypatch, ErrorCode.BROKER_NOT_AVAILABLE).voters = [(4, DISK)]

    assert voter_change.describe_quorum(BROKER).topics[0].partitions[0].current_voters[0].replica_id == 4


def test_a_description_waits_as_long_as_any_answer_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """An election on a busy machine takes more than the ten seconds that it once had."""
    clock = iter(range(0, 1000, 5))
    monkeypatch.setattr("time.monotonic", clock.__next__)
    Broker(monkeypatch, *[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2).voters = [(4, DISK)]
    assert voter_change.describe_quorum(BROKER).topics[0].partitions[0].current_voters[0].replica_id == 4
    broker = Broker(monkeypatch, *[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 9)
    assert voter_change.describe_quorum(BROKER).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.answers != []


def test_features_wait_for_the_active_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    Broker(monkeypatch, ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER, ErrorCode.NONE)
    update_features(BROKER, {"kraft.version": 1}, 1, dry_run=False)

    Broker(monkeypatch, ErrorCode.NOT_CONTROLLER, ErrorCode.INVALID_UPDATE_VERSION)
    with pytest.raises(CommandError, match="INVALID_UPDATE_VERSION"):
        update_features(BROKER, {"kraft.version": 1}, 1, dry_run=False)


def test_what_was_added_before_the_connection_broke_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    for voters, code in [([(4, DISK)], ErrorCode.NONE), ([(4, bytes(16))], ErrorCode.DUPLICATE_VOTER)]:
        Broker(monkeypatch, None, ErrorCode.DUPLICATE_VOTER).voters = voters
        assert voter_change.add_voter(BROKER, ADD, 5) == AddRaftVoterResponse(error_code=code)


def test_who_was_a_voter_before_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    Broker(monkeypatch, ErrorCode.DUPLICATE_VOTER).voters = [(4, DISK)]

    assert voter_change.add_voter(BROKER, ADD, 5).error_code == ErrorCode.DUPLICATE_VOTER


def test_what_was_removed_before_the_connection_broke_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    for voters, code in [([(1, DISK)], ErrorCode.NONE), ([(4, bytes(16))], ErrorCode.VOTER_NOT_FOUND)]:
        Broker(monkeypatch, None, ErrorCode.VOTER_NOT_FOUND).voters = voters
        assert voter_change.remove_voter(BROKER, REMOVE, 5) == RemoveRaftVoterResponse(error_code=code)


def test_an_end_comes_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", iter(range(0, 100, 3)).__next__)
    Broker(monkeypatch, *[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 9)
    assert voter_change.remove_voter(BROKER, REMOVE, 5).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    Broker(monkeypatch, *[None] * 9)
    with pytest.raises(ConnectionLost):
        voter_change.remove_voter(BROKER, REMOVE, 5)

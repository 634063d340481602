"""Answers about groups, and their deletion, that are more than one turn of the loop should do."""

import asyncio
from typing import Any, cast

import msgspec
import pytest

from ottla.broker.coordinator.placement import partition_of
from ottla.broker.handlers import groups
from ottla.broker.handlers.find_coordinator import PIECE
from ottla.broker.handlers.groups import DESCRIBED_A_TURN
from ottla.broker.wire.messages import offset_commit_request as commit
from ottla.broker.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.broker.wire.messages.consumer_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from ottla.broker.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.broker.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.broker.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.broker.wire.messages.list_groups_request import ListGroupsRequest
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.group_bench import Bench
from tests.unit.broker.handlers.conftest import Site, partition_view
from tests.unit.broker.handlers.coordinators import coordinated


@pytest.fixture
def bench(site: Site) -> Bench:
    return coordinated(site)


@pytest.mark.parametrize("version", [4, 6])
def test_coordinators_of_many_keys_are_told_over_turns(site: Site, bench: Bench, version: int) -> None:
    leaders = [1, 2, -1]
    site.add_topic("__consumer_offsets", *(partition_view((1, 2), (1, 2), leader) for leader in leaders))
    keys = [f"{number}" for number in range(PIECE * 5 + 1)]
    assert asyncio.run(turns_of(site, FindCoordinatorRequest(coordinator_keys=keys), version)) == 5
    told = site.received("FindCoordinatorResponse", version).coordinators
    assert [each.key for each in told] == keys
    assert [each.node_id for each in told] == [leaders[partition_of(key, 3)] for key in keys]
    assert {each.host for each in told if each.node_id == 2} == {"host2.plaintext"}
    lost = sum(each.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE for each in told)
    assert site.connection.counters.errors[10, ErrorCode.COORDINATOR_NOT_AVAILABLE] == lost > PIECE
    assert site.connection._budget.used == 0


@pytest.mark.parametrize("version", range(7))
def test_all_groups_of_a_coordinator_are_described_over_turns(site: Site, bench: Bench, version: int) -> None:
    names = [f"group-{number}" for number in range(2 * DESCRIBED_A_TURN)]
    request = DescribeGroupsRequest([*names, "elsewhere"], include_authorized_operations=version >= 3)
    assert asyncio.run(turns_of(site, request, version)) == 2
    told = site.received("DescribeGroupsResponse", version).groups
    assert [each.group_id for each in told] == request.groups
    for one in (told[0], told[-1]):
        assert [one] == site.ask(msgspec.structs.replace(request, groups=[one.group_id]), version).groups
    assert site.connection.counters.errors[15, ErrorCode.NOT_COORDINATOR] == 2


@pytest.mark.parametrize("version", [0, 1])
def test_all_groups_of_the_newer_protocol_are_described_over_turns(site: Site, bench: Bench, version: int) -> None:
    names = [f"group-{number}" for number in range(2 * DESCRIBED_A_TURN + 1)]
    assert asyncio.run(turns_of(site, ConsumerGroupDescribeRequest(names), version)) == 2
    told = site.received("ConsumerGroupDescribeResponse", version).groups
    assert [each.group_id for each in told] == names
    assert [told[-1]] == site.ask(ConsumerGroupDescribeRequest(names[-1:]), version).groups


@pytest.mark.parametrize(("topics", "partitions", "turns"), [(250, 1, 3), (3, 5_000, 3), (3, 50, 0)])
def test_groups_that_read_many_topics_are_described_over_more_turns(
    site: Site, bench: Bench, monkeypatch: pytest.MonkeyPatch, topics: int, partitions: int, turns: int
) -> None:
    """A hundred groups with a thousand topics each were a second of one turn."""
    assigned = Assignment([TopicPartitions(topic_name="t", partitions=list(range(partitions)))] * topics)

    def described(group_id: str) -> DescribedGroup:
        return DescribedGroup(group_id=group_id, members=[Member("m", assignment=assigned)])

    monkeypatch.setattr(bench.shard, "described_consumers", described)
    assert asyncio.run(turns_of(site, ConsumerGroupDescribeRequest(["a", "b", "c", "d"]), 1)) == turns


@pytest.mark.parametrize(("states", "listed"), [([], 8), (["Empty"], 8), (["Stable"], 0)])
@pytest.mark.parametrize("version", [4, 5])
def test_all_groups_are_listed_and_deleted_over_turns(
    site: Site, bench: Bench, monkeypatch: pytest.MonkeyPatch, version: int, states: list[str], listed: int
) -> None:
    """Twenty thousand of a coordinator held everybody for as long as they took."""
    monkeypatch.setattr(groups, "LISTED_A_TURN", 2)
    monkeypatch.setattr(groups, "DELETED_A_TURN", 2)
    names = [f"group-{number}" for number in range(8)]
    topic = commit.OffsetCommitRequestTopic("t", partitions=[commit.OffsetCommitRequestPartition(3, 55)])
    for name in names:
        site.ask(commit.OffsetCommitRequest(name, topics=[topic]), 9)
    coordinators = cast(Any, site.broker.groups)
    coordinators.is_loading, coordinators.shards = True, lambda: iter((bench.shard,))  # another one is loading
    assert asyncio.run(turns_of(site, ListGroupsRequest(states_filter=states), version)) == 3
    told = site.received("ListGroupsResponse", version)
    assert told.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert [each.group_id for each in told.groups] == names[:listed]
    coordinators.is_loading = False
    assert asyncio.run(turns_of(site, DeleteGroupsRequest([*names, "elsewhere"]), 2)) == 4
    results = site.received("DeleteGroupsResponse", 2).results
    assert [(each.group_id, each.error_code) for each in results[-2:]] == [
        ("group-7", ErrorCode.NONE),
        ("elsewhere", ErrorCode.NOT_COORDINATOR),
    ]


class Name(str):
    """Counts how often it is written in lower case."""

    lowered = 0
    __slots__ = ()

    def lower(self) -> str:
        Name.lowered += 1
        return str.lower(self)


def test_the_states_that_are_asked_for_are_gone_through_once(
    site: Site, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million of them, 2 MiB, took 190 ms of each turn in which groups were listed."""
    monkeypatch.setattr(groups, "LISTED_A_TURN", 2)
    topic = commit.OffsetCommitRequestTopic("t", partitions=[commit.OffsetCommitRequestPartition(3, 55)])
    for number in range(8):
        site.ask(commit.OffsetCommitRequest(str(number), topics=[topic]), 9)
    list_groups = groups._list

    def count(broker: Any, request: Any, body: ListGroupsRequest, long_answers: Any) -> None:
        body.states_filter = [Name(each) for each in body.states_filter]
        list_groups(broker, request, body, long_answers)

    monkeypatch.setattr(groups, "_list", count)
    Name.lowered = 0
    assert asyncio.run(turns_of(site, ListGroupsRequest(states_filter=["EMPTY", "other"]), 5)) == 3
    assert len(site.received("ListGroupsResponse", 5).groups) == 8
    assert Name.lowered == 2


def test_a_crowd_that_deletes_groups_has_one_piece_a_turn(
    site: Site, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred requests of a few thousand names each had a hundred pieces a turn, and so had clients that asked and went."""
    monkeypatch.setattr(groups, "DELETED_A_TURN", 2)
    looked_at: list[str] = []
    coordinators, find = cast(Any, site.broker.groups), cast(Any, site.broker.groups).shard_of

    def note(name: str) -> Any:
        looked_at.append(name)
        return find(name)

    coordinators.shard_of = note

    async def scenario() -> None:
        for client in "abc":
            site.send(DeleteGroupsRequest([f"{client}-{number}" for number in range(6)]), 2)
        for turns in range(1, 7):
            await asyncio.sleep(0)
            assert len(looked_at) == 6 + 2 * turns
        assert not site.connection.in_flight

        site.send(DeleteGroupsRequest([f"d-{number}" for number in range(6)]), 2)
        site.connection.connection_lost(None)
        for _ in range(3):
            await asyncio.sleep(0)
        assert looked_at[18:] == ["d-0", "d-1"]

    asyncio.run(scenario())


def test_groups_whose_coordinator_changes_meanwhile_are_refused_and_the_others_deleted(
    site: Site, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "DELETED_A_TURN", 1)
    topic = commit.OffsetCommitRequestTopic("t", partitions=[commit.OffsetCommitRequestPartition(3, 55)])
    for name in "ab":
        site.ask(commit.OffsetCommitRequest(name, topics=[topic]), 9)

    async def scenario() -> None:
        site.send(DeleteGroupsRequest(["a", "b"]), 2)
        cast(Any, site.broker.groups).is_loading = True
        await asyncio.sleep(0)

    asyncio.run(scenario())
    assert [(each.group_id, each.error_code) for each in site.received("DeleteGroupsResponse", 2).results] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ]


async def turns_of(site: Site, request: msgspec.Struct, version: int) -> int:
    """Those of the loop until it is answered."""
    site.send(request, version)
    count = 0
    while not site.written:
        await asyncio.sleep(0)
        count += 1
    return count

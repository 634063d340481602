"""Requests about groups that nobody would send who means well: Kafka's error, bounded memory, and the others do not notice."""

import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.broker.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.broker.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.broker.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.broker.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.broker.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.broker.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.broker.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.broker.wire.messages.offset_delete_request import OffsetDeleteRequest
from ottla.broker.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.broker.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.runtime.errors import ErrorCode
from ottla.testing.processes import ProcessCluster, wait_for
from tests.integration.wire import Connection, frame, nobody_disturbed

TOPIC = "calm"
STORM = 25_000
"""Requests: more than the 10,000 members, or ids given and not used, that a group may have."""
SESSION_MS, REBALANCE_MS = 6_000, 1_000
LONG_SESSION_MS = 600_000
IN_FLIGHT = 50
"""Requests of one connection that wait for a rebalance: less than the node lets wait."""


@pytest.fixture(scope="module")
def single() -> Iterator[ProcessCluster]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}
    with ProcessCluster(nodes=1, settings=settings) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)
        connection = Connection(running.node(1).port)
        wait_for(lambda: found(connection) is ErrorCode.NONE, "the coordinator")
        wait_for(lambda: committed(connection) is ErrorCode.NONE, "its shard")
        connection.close()
        yield running


@pytest.fixture
def connection(single: ProcessCluster) -> Iterator[Connection]:
    opened = Connection(single.node(1).port)
    yield opened
    opened.close()


def commit(group: str, topic: str = TOPIC, partition: int = 0) -> OffsetCommitRequest:
    told = OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(partition, 1)])
    return OffsetCommitRequest(group, -1, "", None, -1, [told])


def committed(connection: Connection, group: str = "calm", **more: Any) -> ErrorCode:
    return ErrorCode(connection.ask(commit(group, **more), 8).topics[0].partitions[0].error_code)


def found(connection: Connection) -> ErrorCode:
    return ErrorCode(connection.ask(FindCoordinatorRequest("calm"), 3).error_code)


def join(group: str, member_id: str = "", metadata: bytes = b"m", session_ms: int = SESSION_MS) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol("range", metadata)]
    return JoinGroupRequest(group, session_ms, REBALANCE_MS, member_id, None, "consumer", protocols)


def storm(single: ProcessCluster, request: JoinGroupRequest, version: int) -> Counter[ErrorCode]:
    """Many of them, from many connections, and what they were answered."""
    connections = [Connection(single.node(1).port) for _ in range(STORM // IN_FLIGHT)]
    for each in connections:
        each.send(frame(request, version) * IN_FLIGHT)
    told = Counter(
        ErrorCode(each.answer(request, version).error_code) for each in connections for _ in range(IN_FLIGHT)
    )
    for each in connections:
        each.close()
    return told


def test_a_storm_of_clients_that_want_ids_is_bounded(single: ProcessCluster) -> None:
    with nobody_disturbed(single, found, committed):
        told = storm(single, join("ids", session_ms=LONG_SESSION_MS), 9)
    assert told == {ErrorCode.MEMBER_ID_REQUIRED: 10_000, ErrorCode.GROUP_MAX_SIZE_REACHED: STORM - 10_000}


def test_a_storm_of_members_is_bounded(single: ProcessCluster) -> None:
    """Old clients are members with their first request; each of these is a process that is never heard from again."""
    with nobody_disturbed(single, found, committed):
        told = storm(single, join("members"), 3)
    assert set(told) <= {ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED}, (
        "on a slow machine the first are gone before the last come"
    )


def test_metadata_of_many_megabytes_is_refused(single: ProcessCluster) -> None:
    with nobody_disturbed(single, found, committed):
        for _ in range(5):
            connection = Connection(single.node(1).port)
            given = connection.ask(join("metadata"), 9)
            refused = connection.ask(join("metadata", given.member_id, bytes(12 << 20)), 9)
            assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
            connection.close()


def test_a_generation_that_no_record_can_hold_is_refused_and_the_group_goes_on(
    single: ProcessCluster, connection: Connection
) -> None:
    group = "large"
    with nobody_disturbed(single, found, committed):
        large = join(group, connection.ask(join(group), 9).member_id, bytes(3 << 20))
        told = connection.ask(large, 9)
        assert told.error_code == ErrorCode.NONE
        sync = SyncGroupRequest(group, told.generation_id, told.member_id, None, "consumer", "range", [])
        sync.assignments = [SyncGroupRequestAssignment(told.member_id, b"a")]
        assert connection.ask(sync, 5).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        again = connection.ask(join(group, told.member_id, b"small"), 9)
        assert again.error_code == ErrorCode.NONE
        sync.generation_id = again.generation_id
        assert connection.ask(sync, 5).error_code == ErrorCode.NONE


@pytest.mark.parametrize(("topic", "partition"), [("nowhere", 0), (TOPIC, 1), (TOPIC, -1), (TOPIC, 2**31 - 1)])
def test_an_offset_of_a_partition_that_is_not_there_is_refused(
    connection: Connection, topic: str, partition: int
) -> None:
    assert committed(connection, topic=topic, partition=partition) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def requests(group: str) -> list[tuple[msgspec.Struct, int]]:
    """One of each, in a version whose strings may be of any length."""
    return [
        (join(group), 9),
        (SyncGroupRequest(group, 1, "m", None, "consumer", "range"), 5),
        (HeartbeatRequest(group, 1, "m"), 4),
        (LeaveGroupRequest(group, "", [MemberIdentity("m")]), 5),
        (commit(group), 9),
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group)]), 8),
        (DescribeGroupsRequest([group]), 5),
        (DeleteGroupsRequest([group]), 2),
    ]


def error_of(answer: Any) -> ErrorCode:
    """The first there is, of the request or of what it was about."""
    for each in (answer, *(item for name in ("topics", "groups", "results") for item in getattr(answer, name, ()))):
        for found in (each, *getattr(each, "partitions", ())):
            if getattr(found, "error_code", 0):
                return ErrorCode(found.error_code)
    return ErrorCode.NONE


def test_a_request_with_a_group_id_of_a_megabyte_ends_its_connection(single: ProcessCluster) -> None:
    """Compact strings could be as long; no client takes, and no record's key holds, more than 32 KB."""
    short, long = b"\x15" + b"g" * 20, b"\x81\x80\x40" + b"g" * (1 << 20)
    with nobody_disturbed(single, found, committed):
        for body, version in requests("g" * 20):
            connection = Connection(single.node(1).port)
            data = frame(body, version)[4:].replace(short, long)
            assert len(data) > 1 << 20
            connection.send(struct.pack(">i", len(data)) + data)
            assert connection.is_over(), type(body).__name__
            connection.close()


def test_a_group_id_of_32_kilobytes_is_a_name_like_others(connection: Connection) -> None:
    name = "g" * 32_767
    assert committed(connection, name) is ErrorCode.NONE
    for body, version in requests(name):
        expected = {
            "JoinGroupRequest": ErrorCode.MEMBER_ID_REQUIRED,
            "SyncGroupRequest": ErrorCode.UNKNOWN_MEMBER_ID,
            "HeartbeatRequest": ErrorCode.UNKNOWN_MEMBER_ID,
        }.get(type(body).__name__, ErrorCode.NONE)
        assert error_of(connection.ask(body, version)) is expected, type(body).__name__


def test_a_broker_that_does_not_coordinate_a_group_says_so(cluster: ProcessCluster) -> None:
    """To each of its requests."""
    group = "somewhere"
    asking = Connection(cluster.node(1).port)

    def coordinator() -> int:
        found = asking.ask(FindCoordinatorRequest(group), 3)
        return -1 if found.error_code else int(found.node_id)

    wait_for(lambda: coordinator() > 0, "a coordinator")
    elsewhere = Connection(cluster.node(coordinator() % 3 + 1).port)
    for body, version in [*requests(group), (OffsetDeleteRequest(group), 0)]:
        assert error_of(elsewhere.ask(body, version)) is ErrorCode.NOT_COORDINATOR, body
    asking.close()
    elsewhere.close()

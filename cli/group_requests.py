"""What `ottla groups` asks of brokers: of each, of a group's coordinator, of partitions' leaders. All raise CommandError."""

from collections.abc import Collection, Iterable, Mapping
from struct import Struct
from typing import NamedTuple

from ottla.broker.wire.codec import decoder
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.broker.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.broker.wire.messages.delete_groups_response import DeleteGroupsResponse
from ottla.broker.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.broker.wire.messages.describe_groups_response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from ottla.broker.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.broker.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.broker.wire.messages.list_groups_request import ListGroupsRequest
from ottla.broker.wire.messages.list_groups_response import ListGroupsResponse
from ottla.broker.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.broker.wire.messages.list_offsets_response import ListOffsetsResponse
from ottla.broker.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.broker.wire.messages.metadata_response import MetadataResponse
from ottla.broker.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.broker.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.broker.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.broker.wire.messages.offset_fetch_response import OffsetFetchResponse
from ottla.cli.client import Client
from ottla.cli.failures import CommandError, refuse
from ottla.cli.output import Row
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import ZERO_ID

EARLIEST, LATEST = -2, -1
WITHOUT_MEMBERS = ("Empty", "Dead")
_NUMBER = Struct(">h")
_ASSIGNMENT_VERSION = 0
"""Later ones have the same fields."""


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int


class Target(NamedTuple):
    """Where a group is to go on; one of them is said."""

    to_earliest: bool = False
    to_latest: bool = False
    to_offset: int | None = None
    shift_by: int | None = None

    def offset(self, committed: int | None, earliest: int, latest: int) -> int:
        """Within what the partition has."""
        if self.to_earliest:
            return earliest
        if self.to_latest:
            return latest
        if self.to_offset is not None:
            return min(max(self.to_offset, earliest), latest)
        return min(max((earliest if committed is None else committed) + (self.shift_by or 0), earliest), latest)


# --- rows -------------------------------------------------------------------------------------------------------------


def group_rows(bootstrap: str) -> list[Row]:
    """A row a group, of all brokers."""
    found: dict[str, Row] = {}
    for broker in _metadata(bootstrap, ()).brokers:
        with Client(f"{broker.host}:{broker.port}") as client:
            answer = client.call(ListGroupsRequest(), ListGroupsResponse)
        refuse(answer.error_code, f"broker {broker.node_id}")
        for each in answer.groups:
            found[each.group_id] = {
                "group": each.group_id,
                "state": each.group_state,
                "protocol type": each.protocol_type,
                "type": each.group_type,
                "coordinator": broker.node_id,
            }
    return [found[name] for name in sorted(found)]


def offset_rows(bootstrap: str, name: str) -> list[Row]:
    """A row a partition that the group has read or that a member has, and one for each member that has none."""
    with Client(_coordinator(bootstrap, name)) as client:
        group, committed = _described(client, name), _committed(client, bootstrap, name)
    owners = {place: member for member in group.members for place in _assigned(member)}
    ends = _offsets(bootstrap, {*committed, *owners}, LATEST)
    rows = []
    for place in sorted({*committed, *owners}):
        offset, end = committed.get(place), ends.get(place)
        lag = max(end - offset, 0) if offset is not None and end is not None else None
        told = {"topic": place.topic, "partition": place.partition, "committed": offset, "end": end, "lag": lag}
        rows.append({"group": name, "state": group.group_state, **told, **_who(owners.get(place))})
    busy = {member.member_id for member in owners.values()}
    idle = [each for each in group.members if each.member_id not in busy]
    return rows + [{"group": name, "state": group.group_state, **_who(each)} for each in idle]


def _who(member: DescribedGroupMember | None) -> Row:
    if member is None:
        return {}
    return {"member": member.member_id, "client": member.client_id, "host": member.client_host.removeprefix("/")}


def delete_group(bootstrap: str, name: str) -> None:
    """It must have no members."""
    with Client(_coordinator(bootstrap, name)) as client:
        (result,) = client.call(DeleteGroupsRequest([name]), DeleteGroupsResponse).results
    refuse(result.error_code, name)


def reset_rows(bootstrap: str, name: str, topics: Collection[str], target: Target, *, dry_run: bool) -> list[Row]:
    """A row a partition, with what was committed and what is now."""
    with Client(_coordinator(bootstrap, name)) as client:
        group, committed = _described(client, name), _committed(client, bootstrap, name)
        if group.group_state not in WITHOUT_MEMBERS:
            raise CommandError(f"{name} is {group.group_state}, with {len(group.members)} members: stop them first")
        places = _places(bootstrap, topics) if topics else sorted(committed)
        if not places:
            raise CommandError(f"{name} has committed nothing: say which with --topic")
        earliest, latest = _offsets(bootstrap, places, EARLIEST), _offsets(bootstrap, places, LATEST)
        new = {each: target.offset(committed.get(each), earliest[each], latest[each]) for each in places}
        if not dry_run:
            _commit(client, bootstrap, name, new)
    return [
        {"group": name, "topic": each.topic, "partition": each.partition, "committed": committed.get(each), "new": at}
        for each, at in new.items()
    ]


# --- requests ---------------------------------------------------------------------------------------------------------


def _coordinator(bootstrap: str, name: str) -> str:
    with Client(bootstrap) as client:
        (found,) = client.call(
            FindCoordinatorRequest(key_type=0, coordinator_keys=[name]), FindCoordinatorResponse
        ).coordinators
    refuse(found.error_code, name, found.error_message)
    return f"{found.host}:{found.port}"


def _described(client: Client, name: str) -> DescribedGroup:
    (group,) = client.call(DescribeGroupsRequest([name]), DescribeGroupsResponse).groups
    if group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        refuse(group.error_code, name, group.error_message)
    return group


def _assigned(member: DescribedGroupMember) -> list[Place]:
    """None of a member whose client says it in its own way."""
    data = member.member_assignment
    if len(data) < _NUMBER.size:
        return []
    try:
        read = decoder(ConsumerProtocolAssignment, _ASSIGNMENT_VERSION)
        assignment, _ = read(memoryview(data), _NUMBER.size)
    except (WireError, ValueError):
        return []
    return [Place(each.topic, index) for each in assignment.assigned_partitions for index in each.partitions]


def _committed(client: Client, bootstrap: str, name: str) -> dict[Place, int]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name, None, -1, None)])
    (told,) = client.call(request, OffsetFetchResponse).groups
    refuse(told.error_code, name)
    names = {}
    if any(not topic.name for topic in told.topics):
        names = {topic.topic_id: topic.name for topic in _metadata(bootstrap, None).topics}
    return {
        Place(topic.name or names.get(topic.topic_id) or "", each.partition_index): each.committed_offset
        for topic in told.topics
        for each in topic.partitions
        if each.committed_offset >= 0
    }


def _commit(client: Client, bootstrap: str, name: str, offsets: Mapping[Place, int]) -> None:
    ids = {topic.name: topic.topic_id for topic in _metadata(bootstrap, {each.topic for each in offsets}).topics}
    topics = [
        OffsetCommitRequestTopic(
            topic,
            ids.get(topic, ZERO_ID),
            [OffsetCommitRequestPartition(each.partition, at) for each, at in offsets.items() if each.topic == topic],
        )
        for topic in dict.fromkeys(each.topic for each in offsets)
    ]
    for told in client.call(OffsetCommitRequest(name, topics=topics), OffsetCommitResponse).topics:
        for each in told.partitions:
            refuse(each.error_code, f"{name}, {told.name}-{each.partition_index}")


def _places(bootstrap: str, topics: Collection[str]) -> list[Place]:
    found = _metadata(bootstrap, topics).topics
    for topic in found:
        refuse(topic.error_code, topic.name or "")
    return sorted(Place(topic.name or "", each.partition_index) for topic in found for each in topic.partitions)


def _offsets(bootstrap: str, places: Collection[Place], time_ms: int) -> dict[Place, int]:
    """Asked of each leader; of topics that are gone nothing is told."""
    if not places:
        return {}
    metadata = _metadata(bootstrap, {each.topic for each in places})
    addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in metadata.brokers}
    by_leader: dict[int, list[Place]] = {}
    for topic in metadata.topics:
        for each in topic.partitions:
            place = Place(topic.name or "", each.partition_index)
            if place in places:
                by_leader.setdefault(each.leader_id, []).append(place)
    found: dict[Place, int] = {}
    for leader, mine in by_leader.items():
        if leader not in addresses:
            raise CommandError(f"{mine[0].topic}-{mine[0].partition} has no leader")
        asked = [
            ListOffsetsTopic(
                topic, [ListOffsetsPartition(each.partition, -1, time_ms) for each in mine if each.topic == topic]
            )
            for topic in dict.fromkeys(each.topic for each in mine)
        ]
        with Client(addresses[leader]) as client:
            answer = client.call(
                ListOffsetsRequest(replica_id=-1, topics=asked, timeout_ms=30_000), ListOffsetsResponse
            )
        for told in answer.topics:
            for partition in told.partitions:
                refuse(partition.error_code, f"{told.name}-{partition.partition_index}")
                found[Place(told.name, partition.partition_index)] = partition.offset
    return found


def _metadata(bootstrap: str, names: Iterable[str] | None) -> MetadataResponse:
    """``names``: None for all topics."""
    wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    with Client(bootstrap) as client:
        return client.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), MetadataResponse)

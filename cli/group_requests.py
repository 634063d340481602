"""What `ottla groups` asks of brokers about groups: of each broker, of a group's coordinator. All raise CommandError."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

from ottla.broker.coordinator.decisions.groups.assignments import assigned_places
from ottla.broker.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.broker.wire.messages.consumer_group_describe_response import Assignment, ConsumerGroupDescribeResponse
from ottla.broker.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.broker.wire.messages.delete_groups_response import DeleteGroupsResponse
from ottla.broker.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.broker.wire.messages.describe_groups_response import DescribeGroupsResponse
from ottla.broker.wire.messages.list_groups_request import ListGroupsRequest
from ottla.broker.wire.messages.list_groups_response import ListGroupsResponse
from ottla.broker.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.broker.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.broker.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.broker.wire.messages.offset_delete_response import OffsetDeleteResponse
from ottla.broker.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.broker.wire.messages.offset_fetch_response import OffsetFetchResponse
from ottla.cli.client import Client, ConnectionLost, NobodyAnswers
from ottla.cli.coordinators import PASSING, PATIENCE_S, PAUSE_S, ask_coordinator
from ottla.cli.failures import CommandError, Refused, refuse
from ottla.cli.leader_requests import Place, at_once, by_topic, metadata
from ottla.cli.output import Row
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import ZERO_ID

WITHOUT_MEMBERS = ("Empty", "Dead")
OFFSETS_A_REQUEST = 1_000
T = TypeVar("T")


class Member(NamedTuple):
    """One process of a group, of either protocol."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    places: list[Place]


class Group(NamedTuple):
    """A group as its coordinator describes it."""

    name: str
    state: str
    kind: str
    """classic, consumer."""
    protocol: str
    """How partitions are assigned, while it is stable."""
    members: list[Member]

    @property
    def has_members(self) -> bool:
        return self.state not in WITHOUT_MEMBERS


class NoSuchGroup(CommandError):
    """Nobody has heard of it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no group {name!r}: ottla groups list shows those that there are")


# --- every broker -----------------------------------------------------------------------------------------------------


def group_rows(bootstrap: str, states: Collection[str] = ()) -> list[Row]:
    """A row a group, of all brokers."""

    def ask(client: Client) -> ListGroupsResponse:
        answer = client.call(ListGroupsRequest(), ListGroupsResponse)
        refuse(answer.error_code, "groups")
        return answer

    wanted = {each.lower() for each in states}
    found = {
        each.group_id: {
            "group": each.group_id,
            "state": each.group_state,
            "protocol type": each.protocol_type,
            "type": each.group_type,
            "coordinator": node,
        }
        for node, answer in ask_brokers(bootstrap, ask).items()
        for each in answer.groups
        if not wanted or each.group_state.lower() in wanted
    }
    return [found[name] for name in sorted(found)]


def ask_brokers(bootstrap: str, ask: Callable[[Client], T]) -> dict[int, T]:
    """All brokers at once; one that dies, or is taking something over, is asked again. Raises CommandError."""
    until = time.monotonic() + PATIENCE_S
    while True:
        told, failures = _ask_all(bootstrap, ask)
        if not failures:
            return told
        node, error = min(failures.items(), key=lambda each: each[0])
        passes = (
            error.code in PASSING if isinstance(error, Refused) else isinstance(error, ConnectionLost | NobodyAnswers)
        )
        if not passes or time.monotonic() > until:
            raise CommandError(f"broker {node}: {error}") from error
        time.sleep(PAUSE_S)


def _ask_all(bootstrap: str, ask: Callable[[Client], T]) -> tuple[dict[int, T], dict[int, CommandError]]:
    told: dict[int, T] = {}
    failures: dict[int, CommandError] = {}

    def ask_one(node: int, address: str) -> None:
        try:
            with Client(address) as client:
                told[node] = ask(client)
        except CommandError as error:
            failures[node] = error

    brokers = metadata(bootstrap, ()).brokers
    at_once([partial(ask_one, each.node_id, f"{each.host}:{each.port}") for each in brokers])
    return told, failures


# --- the coordinator --------------------------------------------------------------------------------------------------


def described(client: Client, name: str) -> Group | None:
    """None of a group that nobody has heard of."""
    if client.offers("ConsumerGroupDescribe"):
        request = ConsumerGroupDescribeRequest([name])
        (newer,) = client.call(request, ConsumerGroupDescribeResponse).groups
        if newer.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            refuse(newer.error_code, name, newer.error_message)
            members = [
                Member(
                    each.member_id, each.instance_id, each.client_id, _host(each.client_host), _places(each.assignment)
                )
                for each in newer.members
            ]
            return Group(name, newer.group_state, "consumer", newer.assignor_name, members)
    (group,) = client.call(DescribeGroupsRequest([name]), DescribeGroupsResponse).groups
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    refuse(group.error_code, name, group.error_message)
    if group.group_state == "Dead":
        return None
    members = [
        Member(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            _host(each.client_host),
            [Place(*place) for place in assigned_places(each.member_assignment)],
        )
        for each in group.members
    ]
    return Group(name, group.group_state, "classic", group.protocol_data, members)


def _host(text: str) -> str:
    return text.removeprefix("/")


def _places(assignment: Assignment) -> list[Place]:
    return [Place(each.topic_name, index) for each in assignment.topic_partitions for index in each.partitions]


def committed(client: Client, bootstrap: str, name: str) -> dict[Place, int]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name, None, -1, None)])
    (told,) = client.call(request, OffsetFetchResponse).groups
    if told.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    refuse(told.error_code, name)
    names = {}
    if any(not topic.name for topic in told.topics):
        names = {topic.topic_id: topic.name for topic in metadata(bootstrap, None).topics}
    return {
        Place(topic.name or names.get(topic.topic_id) or "", each.partition_index): each.committed_offset
        for topic in told.topics
        for each in topic.partitions
        if each.committed_offset >= 0
    }


def commit(client: Client, bootstrap: str, name: str, offsets: Mapping[Place, int]) -> None:
    """In pieces: what is committed twice is the same."""
    ids = {topic.name: topic.topic_id for topic in metadata(bootstrap, {each.topic for each in offsets}).topics}
    for piece in _pieces(sorted(offsets)):
        topics = [
            OffsetCommitRequestTopic(
                topic,
                ids.get(topic, ZERO_ID),
                [OffsetCommitRequestPartition(each.partition, offsets[each]) for each in mine],
            )
            for topic, mine in by_topic(piece).items()
        ]
        named = {each.topic_id: each.name for each in topics}
        for told in client.call(OffsetCommitRequest(name, topics=topics), OffsetCommitResponse).topics:
            for part in told.partitions:
                refuse(part.error_code, f"{name}, {told.name or named.get(told.topic_id)}-{part.partition_index}")


def _pieces(places: list[Place]) -> Iterable[list[Place]]:
    return (places[at : at + OFFSETS_A_REQUEST] for at in range(0, len(places), OFFSETS_A_REQUEST))


# --- what ends --------------------------------------------------------------------------------------------------------


def delete_group(bootstrap: str, name: str, *, dry_run: bool = False) -> int:
    """It must have no members. Returns how many offsets went with it."""
    was_asked = False

    def ask(client: Client) -> int:
        nonlocal was_asked
        group = described(client, name)
        if group is None and was_asked:
            return 0  # the answer to the first request was lost
        require_no_members(group, name)
        count = len(committed(client, bootstrap, name))
        if not dry_run:
            was_asked = True
            (result,) = client.call(DeleteGroupsRequest([name]), DeleteGroupsResponse).results
            refuse(result.error_code, name)
        return count

    return ask_coordinator(bootstrap, name, ask)


def require_no_members(group: Group | None, name: str) -> None:
    if group is None:
        raise NoSuchGroup(name)
    if group.has_members:
        raise CommandError(
            f"{name} is {group.state}, with {len(group.members)} member{'s' * (len(group.members) != 1)}: stop them first"
        )


def delete_offsets(bootstrap: str, name: str, places: Collection[Place], *, dry_run: bool) -> list[Row]:
    """A row a partition, with what was committed. Members may go on with other topics."""

    def ask(client: Client) -> list[Row]:
        if described(client, name) is None:
            raise NoSuchGroup(name)
        known = committed(client, bootstrap, name)
        if not dry_run:
            for piece in _pieces(sorted(places)):
                _delete_offsets(client, name, piece)
        return [
            {"group": name, "topic": each.topic, "partition": each.partition, "committed": known.get(each)}
            for each in sorted(places)
        ]

    return ask_coordinator(bootstrap, name, ask)


def _delete_offsets(client: Client, name: str, places: list[Place]) -> None:
    topics = [
        OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(each.partition) for each in mine])
        for topic, mine in by_topic(places).items()
    ]
    answer = client.call(OffsetDeleteRequest(name, topics), OffsetDeleteResponse)
    refuse(answer.error_code, name)
    for topic in answer.topics:
        for each in topic.partitions:
            if each.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
                raise CommandError(f"{name} reads {topic.name}: stop its members first")
            refuse(each.error_code, f"{name}, {topic.name}-{each.partition_index}")

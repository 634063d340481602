"""Groups' requests: JoinGroup (11), SyncGroup (14), Heartbeat (12), LeaveGroup (13), and what administrators ask: DescribeGroups (15),
ListGroups (16), DeleteGroups (42). What is decided stands in `broker/coordinator`.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from ottla.broker.context import BrokerContext
from ottla.broker.coordinator.decisions.groups.describing import GroupFilter, described
from ottla.broker.coordinator.decisions.groups.memberships import refused_heartbeat, refused_sync
from ottla.broker.coordinator.decisions.groups.rebalance import join_refused
from ottla.broker.coordinator.decisions.groups.shard import GroupShard
from ottla.broker.handlers.common import operations, route
from ottla.broker.handlers.long_answers import LongAnswers, Pieces, batches, list_in_pieces
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.broker.wire.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from ottla.broker.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.broker.wire.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from ottla.broker.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.broker.wire.messages.join_group_request import JoinGroupRequest
from ottla.broker.wire.messages.leave_group_request import LeaveGroupRequest
from ottla.broker.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.broker.wire.messages.list_groups_request import ListGroupsRequest
from ottla.broker.wire.messages.list_groups_response import ListGroupsResponse
from ottla.broker.wire.messages.sync_group_request import SyncGroupRequest
from ottla.runtime.errors import ErrorCode, KafkaError

GROUP_OPERATIONS = sum(1 << code for code in (3, 6, 8, 10, 11))  # read, delete, describe, describe and alter settings

DESCRIBED_A_TURN = 250
"""Groups and members that one turn of the loop describes and writes down: a millisecond or two. Tools ask for all groups of a coordinator at once."""

LISTED_A_TURN = 1_000
"""Groups that are listed in one turn: two milliseconds."""
DELETED_A_TURN = 500
"""Names of groups that are gone through in one: each may be a record, or a few."""

Body = TypeVar("Body", JoinGroupRequest, SyncGroupRequest, HeartbeatRequest, LeaveGroupRequest)


class Asking:
    """Who sent a request of a group, as deciders know him (`Asker`)."""

    __slots__ = ("_request", "version")

    def __init__(self, request: RequestContext) -> None:
        self._request = request
        self.version = request.version

    @property
    def client_id(self) -> str:
        return self._request.client_id or ""

    @property
    def client_host(self) -> str:
        return "/" + self._request.connection.peer.rpartition(":")[0]

    def answer(self, response: msgspec.Struct) -> None:
        self._request.respond_message(response)


def routes(broker: BrokerContext) -> list[Route]:
    def of_group(
        ask: Callable[[GroupShard, Asking, Body], None], refuse: Callable[[Asking, Body, ErrorCode], msgspec.Struct]
    ) -> Callable[[RequestContext, Body], None]:
        def answer(request: RequestContext, body: Body) -> None:
            asking = Asking(request)
            try:
                shard = broker.groups.shard_of(valid(body.group_id))
            except KafkaError as error:
                asking.answer(refuse(asking, body, error.code))
            else:
                ask(shard, asking, body)

        return answer

    join = of_group(lambda shard, asking, body: shard.joins.join(asking, body), _join_refused)
    sync = of_group(lambda shard, asking, body: shard.members.sync(asking, body), _sync_refused)
    beat = of_group(lambda shard, asking, body: shard.members.heartbeat(asking, body), _heartbeat_refused)
    leave = of_group(lambda shard, asking, body: shard.members.leave(asking, body), _leave_refused)

    long_answers = LongAnswers()

    def describe(request: RequestContext, body: DescribeGroupsRequest) -> None:
        allowed = operations(body.include_authorized_operations, GROUP_OPERATIONS)
        told = (_described(broker, each, request.version, allowed) for each in dict.fromkeys(body.groups))
        in_turn = batches(told, DESCRIBED_A_TURN, lambda each: 1 + len(each.members))
        long_answers.give(request, list_in_pieces(request, _descriptions, in_turn))

    def delete(request: RequestContext, body: DeleteGroupsRequest) -> None:
        long_answers.give(request, Deletion(broker, request, list(dict.fromkeys(body.groups_names))).pieces())

    return [
        route("JoinGroup", JoinGroupRequest, join),
        route("SyncGroup", SyncGroupRequest, sync),
        route("Heartbeat", HeartbeatRequest, beat),
        route("LeaveGroup", LeaveGroupRequest, leave),
        route("DescribeGroups", DescribeGroupsRequest, describe),
        route("ListGroups", ListGroupsRequest, lambda request, body: _list(broker, request, body, long_answers)),
        route("DeleteGroups", DeleteGroupsRequest, delete),
    ]


def valid(group_id: str) -> str:
    """Raises KafkaError (INVALID_GROUP_ID)."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group has a name")
    return group_id


def _join_refused(asking: Asking, body: JoinGroupRequest, error: ErrorCode) -> msgspec.Struct:
    return join_refused(asking, body.member_id, error)


def _sync_refused(asking: Asking, body: SyncGroupRequest, error: ErrorCode) -> msgspec.Struct:
    return refused_sync(error)


def _heartbeat_refused(asking: Asking, body: HeartbeatRequest, error: ErrorCode) -> msgspec.Struct:
    return refused_heartbeat(error)


def _leave_refused(asking: Asking, body: LeaveGroupRequest, error: ErrorCode) -> msgspec.Struct:
    return LeaveGroupResponse(error_code=error)


def _list(broker: BrokerContext, request: RequestContext, body: ListGroupsRequest, long_answers: LongAnswers) -> None:
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if broker.groups.is_loading else ErrorCode.NONE
    groups = [each for shard in broker.groups.shards() for each in shard.all()]
    wanted = GroupFilter(body.states_filter, body.types_filter)  # once: a request may name a million states
    found = map(wanted.among, batches(groups, LISTED_A_TURN, lambda _: 1))
    pieces = list_in_pieces(request, lambda told: ListGroupsResponse(error_code=error, groups=told), found)
    long_answers.give(request, pieces)


def _descriptions(told: list[DescribedGroup]) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=told)


def _described(broker: BrokerContext, group_id: str, version: int, allowed: int) -> DescribedGroup:
    try:
        shard = broker.groups.shard_of(group_id)  # of no name: offsets may have none
    except KafkaError as error:
        return DescribedGroup(error.code, None, group_id)
    is_newer = shard.consumers.find(group_id) is not None
    told = described(group_id, shard.find(group_id), version, is_newer=is_newer)
    if told.error_code == ErrorCode.NONE:
        told.authorized_operations = allowed
    return told


class Deletion:
    """DeleteGroups of several shards: answered when the last of them has told."""

    def __init__(self, broker: BrokerContext, request: RequestContext, group_ids: list[str]) -> None:
        self._request = request
        self._group_ids = group_ids
        self._told: dict[str, ErrorCode] = {}
        self._broker = broker

    def pieces(self) -> Pieces:
        """A turn's work each, among those of all who wait. Of a client that goes meanwhile no more are begun."""
        for begun in range(0, len(self._group_ids) or 1, DELETED_A_TURN):
            if begun:
                yield
            self._begin(self._group_ids[begun : begun + DELETED_A_TURN])
        return None

    def _begin(self, some: list[str]) -> None:
        by_shard: dict[GroupShard, list[str]] = {}
        refused: dict[str, ErrorCode] = {}
        for group_id in some:
            try:
                shard = self._broker.groups.shard_of(group_id)  # of no name: offsets may have none
                by_shard.setdefault(shard, []).append(group_id)
            except KafkaError as error:
                refused[group_id] = error.code
        for shard, mine in by_shard.items():
            shard.delete(mine, self._tell)
        if refused or not some:
            self._tell(refused)

    def _tell(self, told: dict[str, ErrorCode]) -> None:
        self._told.update(told)
        if len(self._told) == len(self._group_ids):
            results = [DeletableGroupResult(each, self._told[each]) for each in self._group_ids]
            self._request.respond_message(DeleteGroupsResponse(results=results))

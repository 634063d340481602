"""OffsetCommit (8), OffsetFetch (9), OffsetDelete (47): how far groups have read. What is decided stands in `broker/coordinator`."""

from functools import partial

from ottla.broker.context import BrokerContext
from ottla.broker.coordinator.decisions.groups.offsets import refused_commit
from ottla.broker.handlers.common import route
from ottla.broker.handlers.groups import Asking, valid
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.offset_commit_request import OffsetCommitRequest
from ottla.broker.wire.messages.offset_delete_request import OffsetDeleteRequest
from ottla.broker.wire.messages.offset_delete_response import OffsetDeleteResponse
from ottla.broker.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.broker.wire.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.runtime.errors import ErrorCode, KafkaError

_ERROR_OF_ALL_FROM = 2
_MANY_GROUPS_FROM = 8
_BY_TOPIC_ID_FROM = 10
NO_OFFSET = -1


def routes(broker: BrokerContext) -> list[Route]:
    def commit(request: RequestContext, body: OffsetCommitRequest) -> None:
        asking = Asking(request)
        try:
            shard = broker.groups.shard_of(body.group_id)  # offsets may have no group's name
        except KafkaError as error:
            asking.answer(refused_commit(body, error.code))
        else:
            shard.commits.commit(asking, body)

    def fetch(request: RequestContext, body: OffsetFetchRequest) -> None:
        Reading(broker, request, body)

    def delete(request: RequestContext, body: OffsetDeleteRequest) -> None:
        asking = Asking(request)
        try:
            shard = broker.groups.shard_of(valid(body.group_id))
        except KafkaError as error:
            asking.answer(OffsetDeleteResponse(error_code=error.code))
        else:
            shard.commits.delete(asking, body)

    return [
        route("OffsetCommit", OffsetCommitRequest, commit),
        route("OffsetFetch", OffsetFetchRequest, fetch),
        route("OffsetDelete", OffsetDeleteRequest, delete),
    ]


class Reading:
    """OffsetFetch of several groups: answered when the last of them has told."""

    def __init__(self, broker: BrokerContext, request: RequestContext, body: OffsetFetchRequest) -> None:
        self._request = request
        self._groups = _each_once(body.groups) if request.version >= _MANY_GROUPS_FROM else [_only(body)]
        self._told: dict[int, OffsetFetchResponseGroup] = {}
        by_id = request.version >= _BY_TOPIC_ID_FROM
        for place, group in enumerate(self._groups):
            try:
                shard = broker.groups.shard_of(group.group_id)
            except KafkaError as error:
                self._tell(place, OffsetFetchResponseGroup(group.group_id, [], error.code))
            else:
                told = partial(self._tell, place)
                shard.commits.fetch(group, is_stable=body.require_stable, by_id=by_id, told=told)
        if not self._groups:
            request.respond_message(OffsetFetchResponse())

    def _tell(self, place: int, group: OffsetFetchResponseGroup) -> None:
        self._told[place] = group
        if len(self._told) < len(self._groups):
            return
        request = self._request
        if request.version >= _MANY_GROUPS_FROM:
            groups = [self._told[each] for each in range(len(self._groups))]
            request.respond_message(OffsetFetchResponse(groups=groups))
        else:
            request.respond_with(partial(_single, group, self._groups[0], request.version))


def _each_once(groups: list[OffsetFetchRequestGroup]) -> list[OffsetFetchRequestGroup]:
    """Offsets of a group are asked for in a few bytes, and may be many: they are told once."""
    found: dict[object, OffsetFetchRequestGroup] = {}
    for group in groups:
        key = (group.group_id, group.member_id, group.member_epoch, group.topics is None)
        first = found.setdefault(key, group)
        if first is not group and first.topics is not None and group.topics is not None:
            first.topics += group.topics
    return list(found.values())


def _only(body: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if body.topics is not None:
        topics = [OffsetFetchRequestTopics(each.name, partition_indexes=each.partition_indexes) for each in body.topics]
    return OffsetFetchRequestGroup(body.group_id, None, -1, topics)


def _single(told: OffsetFetchResponseGroup, asked: OffsetFetchRequestGroup, version: int) -> OffsetFetchResponse:
    """In the words of versions that know one group: the first of them has errors only of partitions."""
    error = ErrorCode(told.error_code)
    if error and version < _ERROR_OF_ALL_FROM:
        refused = [
            OffsetFetchResponseTopic(
                topic.name,
                [OffsetFetchResponsePartition(each, NO_OFFSET, -1, "", error) for each in topic.partition_indexes],
            )
            for topic in asked.topics or ()
        ]
        return OffsetFetchResponse(topics=refused)
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(
                    each.partition_index,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.metadata,
                    each.error_code,
                )
                for each in topic.partitions
            ],
        )
        for topic in told.topics
    ]
    return OffsetFetchResponse(error_code=error, topics=topics)

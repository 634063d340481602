"""A cluster of one broker that answers what `ottla groups` asks, from values of the test."""

import json
from collections.abc import Callable
from typing import Any

import msgspec

from ottla.broker.wire.messages import consumer_group_describe_response as newer
from ottla.broker.wire.messages import describe_configs_response as configs
from ottla.broker.wire.messages import fetch_response as fetch
from ottla.broker.wire.messages import list_offsets_response as listed
from ottla.broker.wire.messages import metadata_response as metadata
from ottla.broker.wire.messages import offset_commit_response as committed
from ottla.broker.wire.messages import offset_delete_response as deleted
from ottla.broker.wire.messages import offset_fetch_response as fetched
from ottla.broker.wire.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from ottla.broker.wire.messages.describe_groups_response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from ottla.broker.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from ottla.broker.wire.messages.list_groups_response import ListedGroup, ListGroupsResponse
from ottla.cli.client import ConnectionLost, NobodyAnswers
from ottla.cli.leader_requests import Place
from ottla.log.records import Record, encode_batch
from ottla.runtime.errors import ErrorCode

NOW_MS = 1_800_000_000_000


class PassingTime:
    """Stands for the module `time`: it passes only while somebody sleeps, so that no test depends on how busy the machine is."""

    def __init__(self) -> None:
        self._passed_s = 0.0

    def sleep(self, seconds: float) -> None:
        self._passed_s += seconds

    def monotonic(self) -> float:
        return self._passed_s

    def time(self) -> float:
        return NOW_MS / 1000


class FakeCluster:
    """``clients``: made as the commands make theirs."""

    def __init__(self) -> None:
        self.ends: dict[Place, tuple[int, int]] = {}
        """First and next offset of each partition; its records are a second apart, the last was written now."""
        self.leaderless: set[Place] = set()
        self.state = "Empty"
        self.members: list[DescribedGroupMember] = []
        self.newer: list[newer.Member] | None = None
        self.committed: dict[Place, int] = {}
        self.history: dict[str, list[Any]] = {}
        self.errors: dict[str, list[int]] = {}
        """By request: errors that are answered first, 0 for a connection that breaks after it was carried out."""
        self.asked: list[msgspec.Struct] = []
        self.groups: list[ListedGroup] = []
        self.is_down: dict[str, int] = {}
        """How often nobody answers, by address."""

    def client(self, address: str, timeout_s: float = 0) -> "FakeClient":
        if self.is_down.get(address, 0):
            self.is_down[address] -= 1
            raise NobodyAnswers(f"no broker answers ({address})")
        return FakeClient(self, address)

    def names(self, kind: str) -> int:
        return sum(type(each).__name__ == kind for each in self.asked)

    def error(self, kind: str) -> int:
        waiting = self.errors.get(kind, [])
        return waiting.pop(0) if waiting else -1

    # --- answers ------------------------------------------------------------------------------------------------------

    def metadata(self, request: Any) -> msgspec.Struct:
        topics: dict[str, list[metadata.MetadataResponsePartition]] = {}
        for place in self.ends:
            leader = -1 if place in self.leaderless else 1
            topics.setdefault(place.topic, []).append(metadata.MetadataResponsePartition(0, place.partition, leader))
        known = [metadata.MetadataResponseTopic(0, name, id_of(name), partitions=each) for name, each in topics.items()]
        wanted = None if request.topics is None else {each.name for each in request.topics}
        missing = [metadata.MetadataResponseTopic(3, name) for name in sorted((wanted or set()) - topics.keys())]
        found = [each for each in known if wanted is None or each.name in wanted]
        return metadata.MetadataResponse(brokers=[metadata.MetadataResponseBroker(1, "b", 1)], topics=found + missing)

    def find_coordinator(self, request: Any) -> msgspec.Struct:
        return FindCoordinatorResponse(
            coordinators=[Coordinator(each, 1, "coordinator", 1) for each in request.coordinator_keys]
        )

    def list_groups(self, request: Any) -> msgspec.Struct:
        return ListGroupsResponse(error_code=max(self.error("list_groups"), 0), groups=self.groups)

    def consumer_group_describe(self, request: Any) -> msgspec.Struct:
        group = newer.DescribedGroup(0, None, request.group_ids[0], self.state, assignor_name="uniform")
        if self.newer is None:
            group.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        else:
            group.members = self.newer
        return newer.ConsumerGroupDescribeResponse(groups=[group])

    def describe_groups(self, request: Any) -> msgspec.Struct:
        error = max(self.error("describe_groups"), 0)
        if self.state == "Dead":
            error = ErrorCode.GROUP_ID_NOT_FOUND
        group = DescribedGroup(error, None, request.groups[0], self.state, "consumer", "range", self.members)
        return DescribeGroupsResponse(groups=[group])

    def offset_fetch(self, request: Any) -> msgspec.Struct:
        topics: dict[str, list[fetched.OffsetFetchResponsePartitions]] = {}
        for place, at in self.committed.items():
            topics.setdefault(place.topic, []).append(fetched.OffsetFetchResponsePartitions(place.partition, at))
        told = [fetched.OffsetFetchResponseTopics(name, id_of(name), each) for name, each in topics.items()]
        return fetched.OffsetFetchResponse(groups=[fetched.OffsetFetchResponseGroup("g", told)])

    def offset_commit(self, request: Any) -> msgspec.Struct:
        for topic in request.topics:
            for each in topic.partitions:
                self.committed[Place(topic.name, each.partition_index)] = each.committed_offset
        self._lose("offset_commit")
        return committed.OffsetCommitResponse(topics=[])

    def offset_delete(self, request: Any) -> msgspec.Struct:
        error = max(self.error("offset_delete"), 0)
        parts = [
            deleted.OffsetDeleteResponsePartition(each.partition_index, error) for each in request.topics[0].partitions
        ]
        return deleted.OffsetDeleteResponse(topics=[deleted.OffsetDeleteResponseTopic(request.topics[0].name, parts)])

    def delete_groups(self, request: Any) -> msgspec.Struct:
        self.state = "Dead"
        self._lose("delete_groups")
        return DeleteGroupsResponse(results=[DeletableGroupResult(request.groups_names[0], 0)])

    def _lose(self, kind: str) -> None:
        if self.error(kind) == 0:
            raise ConnectionLost("the broker is gone")

    def describe_configs(self, request: Any) -> msgspec.Struct:
        resource = request.resources[0]
        found = [
            configs.DescribeConfigsResourceResult(key, json.dumps(each))
            for key in resource.configuration_keys
            for each in self.history.get(key, [])
        ]
        return configs.DescribeConfigsResponse(results=[configs.DescribeConfigsResult(configs=found)])

    def list_offsets(self, request: Any) -> msgspec.Struct:
        topics = []
        error = max(self.error("list_offsets"), 0)
        for topic in request.topics:
            parts = []
            for each in topic.partitions:
                at = self._offset(Place(topic.name, each.partition_index), each.timestamp)
                parts.append(listed.ListOffsetsPartitionResponse(each.partition_index, error, offset=at))
            topics.append(listed.ListOffsetsTopicResponse(topic.name, parts))
        return listed.ListOffsetsResponse(topics=topics)

    def _offset(self, place: Place, time_ms: int) -> int:
        start, end = self.ends[place]
        if time_ms in (-1, -2):
            return end if time_ms == -1 else start
        at = end - 1 - (NOW_MS - time_ms) // 1_000
        return -1 if at >= end else max(at, start)

    def fetch(self, request: Any) -> msgspec.Struct:
        answer = fetch.FetchResponse(responses=[])
        for topic in request.topics:
            for each in topic.partitions:
                place = Place(topic.topic, each.partition)
                records = self._batch(place) if not answer.responses else b""  # no room but for the first
                if each.fetch_offset < self.ends[place][1]:
                    part = fetch.PartitionData(each.partition, records=records)
                    answer.responses.append(fetch.FetchableTopicResponse("", id_of(topic.topic), [part]))
        return answer

    def _batch(self, place: Place) -> bytes:
        start, end = self.ends[place]
        told = [Record(at, NOW_MS - 1_000 * (end - 1 - at), None, b"") for at in range(start, end)]
        return bytes(encode_batch(told, base_offset=start))


class FakeClient:
    """Asks the cluster under the name of the request."""

    def __init__(self, cluster: FakeCluster, address: str) -> None:
        self._cluster, self.address = cluster, address

    def __enter__(self) -> "FakeClient":
        return self

    def __exit__(self, *_: object) -> None: ...

    def offers(self, api: str) -> bool:
        return True

    def call(self, request: Any, response: Any) -> Any:
        self._cluster.asked.append(request)
        name = "".join("_" + each.lower() if each.isupper() else each for each in type(request).__name__)[1:]
        answer: Callable[[Any], Any] = getattr(self._cluster, name.removesuffix("_request"))
        return answer(request)


def id_of(topic: str) -> bytes:
    return topic.encode().ljust(16, b".")[:16]

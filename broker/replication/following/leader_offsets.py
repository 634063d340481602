"""Asks a leader where a partition's log begins and ends: what a follower out of its range needs to know."""

from collections.abc import Callable

from ottla.broker.replication.following.leader_link import LeaderLink
from ottla.broker.wire.apis import BY_NAME
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.broker.wire.messages.list_offsets_response import ListOffsetsResponse

LIST_OFFSETS = BY_NAME["ListOffsets"].key
VERSION = 7
LATEST, EARLIEST = -1, -2


def find_offsets(
    link: LeaderLink,
    replica_id: int,
    topic: str,
    index: int,
    leader_epoch: int,
    on_found: Callable[[tuple[int, int] | None], None],
) -> None:
    """Calls back with (log start, log end) on the leader, or None if it does not say. Never, if the link breaks.

    Two requests, as in Kafka: one may name a partition only once.
    """
    found: list[int | None] = []

    def take(frame: memoryview, position: int) -> None:
        response, _ = decoder(ListOffsetsResponse, VERSION)(frame, position)
        found.append(_offset(response))
        if len(found) == 2:
            start, end = found
            on_found(None if start is None or end is None else (start, end))

    for timestamp in (EARLIEST, LATEST):
        asked = ListOffsetsPartition(partition_index=index, current_leader_epoch=leader_epoch, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=replica_id, topics=[ListOffsetsTopic(topic, [asked])])
        link.request(LIST_OFFSETS, VERSION, b"".join(encoder(ListOffsetsRequest, VERSION)(request)), take)


def _offset(response: ListOffsetsResponse) -> int | None:
    for topic in response.topics:
        for partition in topic.partitions:
            return None if partition.error_code else partition.offset
    return None

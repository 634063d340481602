"""When the first record was written that a group has not read: a Fetch of one batch from each partition."""

from collections.abc import Mapping

from ottla.broker.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.broker.wire.messages.fetch_response import FetchResponse
from ottla.cli.client import Client
from ottla.cli.leader_requests import Place, by_topic
from ottla.log.batch import LOG_APPEND_TIME, BatchHeader, headers
from ottla.log.records import read_varint, records_block
from ottla.runtime.errors import KafkaError

FIRST_BYTES = 16 << 10
NEXT_BYTES = 1 << 20
"""A batch that does not fit is given whole, but to the first partition of an answer only: the others are asked for again."""
ROUNDS_MAX = 50
ANSWER_BYTES_MAX = 8 << 20


def first_times(client: Client, wanted: Mapping[Place, int], ids: Mapping[str, bytes]) -> dict[Place, int]:
    """Times of day in milliseconds by partition; of some there may be none. All are led by the one that is asked."""
    names = {topic_id: name for name, topic_id in ids.items()}
    found: dict[Place, int] = {}
    at, size = dict(wanted), FIRST_BYTES
    for _ in range(ROUNDS_MAX):
        if not at:
            break
        answer = client.call(_request(at, ids, size), FetchResponse)
        size = NEXT_BYTES
        before = dict(at)
        for topic in answer.responses:
            for each in topic.partitions:
                place = Place(topic.topic or names.get(topic.topic_id, ""), each.partition_index)
                if place in at and (each.error_code or each.records):
                    _take(place, bytes(each.records or b""), at, found)
        if at == before:
            break
    return found


def _take(place: Place, data: bytes, at: dict[Place, int], found: dict[Place, int]) -> None:
    """The time, or where to go on: a batch of markers has nothing to read."""
    offset = at.pop(place)
    for position, header in headers(data):
        if header.last_offset < offset:
            continue
        if header.is_control or not header.records_count:
            at[place] = offset = header.next_offset
            continue
        at.pop(place, None)
        try:
            found[place] = time_at(data, header, position, offset)
        except KafkaError:
            found[place] = header.base_timestamp  # what cannot be decompressed was still written then
        return


def time_at(data: bytes, header: BatchHeader, position: int, offset: int) -> int:
    """When the first record of the batch that is not before ``offset`` was written. Raises KafkaError."""
    if header.attributes & LOG_APPEND_TIME:
        return header.max_timestamp
    if offset <= header.base_offset:
        return header.base_timestamp
    block = bytes(records_block(data, header, position=position))
    at = 0
    for _ in range(header.records_count):
        length, at = read_varint(block, at)
        following = at + length
        time_delta, at = read_varint(block, at + 1)
        offset_delta, _ = read_varint(block, at)
        if header.base_offset + offset_delta >= offset:
            return header.base_timestamp + time_delta
        at = following
    return header.max_timestamp


def _request(at: Mapping[Place, int], ids: Mapping[str, bytes], size: int) -> FetchRequest:
    topics = [
        FetchTopic(
            topic,
            ids[topic],
            [FetchPartition(each.partition, fetch_offset=at[each], partition_max_bytes=size) for each in mine],
        )
        for topic, mine in by_topic(at).items()
    ]
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=ANSWER_BYTES_MAX, topics=topics)

"""The `Leader` of fetchers, over a link: their requests as Kafka's Fetch and ListOffsets."""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from ottla.broker.links.broker_link import BrokerLink, LinkSettings
from ottla.broker.replication.following.leader import FetchRequest, Leader, OnFetched, OnFound, OnLost, OpenLeader
from ottla.broker.wire.apis import BY_NAME, FETCH
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.fetch_client_fast import encode_fetch_request, walk_fetch_response
from ottla.broker.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.broker.wire.messages.list_offsets_response import ListOffsetsResponse
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.timers import LoopTimers

FETCH_VERSIONS = (13, 17)
"""By topic id; none of the newer ones tells a follower more."""

LIST_OFFSETS = BY_NAME["ListOffsets"].key
LIST_OFFSETS_VERSIONS = (4, 7)
"""With leader epochs."""

LATEST, EARLIEST = -1, -2

_Question = tuple[str, int, int, OnFound]

FETCHES_MAX = 2
"""For so many there is always room."""

STALL_MS = 5_000
"""A leader is silent for longer only where it may keep a fetch for longer; and as long as it may, whatever ``replica.socket.timeout.ms`` says."""


def leaders(config: ServerConfig, timers: LoopTimers) -> OpenLeader:
    """Opens links to leaders, as the settings say."""
    longest_ms = config.integer("replica.fetch.wait.max.ms")
    settings = LinkSettings(
        client_id=f"broker-{config.node_id}-fetcher",
        backoff_ms_max=config.integer("replica.fetch.backoff.ms"),
        stall_ms=max(min(config.integer("replica.socket.timeout.ms"), STALL_MS), 2 * longest_ms),
        detours=config.detours,
    )

    def open_leader(leader_id: int, on_up: Callable[[], None], on_lost: OnLost) -> Leader:
        return LinkedLeader(leader_id, config.node_id, settings, timers, on_up, on_lost)

    return open_leader


class LinkedLeader:
    """See `Leader`."""

    def __init__(
        self,
        leader_id: int,
        replica_id: int,
        settings: LinkSettings,
        timers: LoopTimers,
        on_up: Callable[[], None],
        on_lost: OnLost,
    ) -> None:
        self._replica_id = replica_id
        self._on_up = on_up
        self._on_lost = on_lost
        self._link = link = BrokerLink(leader_id, settings, timers, self._up, self._lost)
        self._finding: deque[_Question] = deque()
        self._fetch_version = self._offsets_version = -1
        self.connect, self.worked = link.connect, link.worked
        self.break_off, self.close, self.has_ended = link.break_off, link.close, link.has_ended

    @property
    def is_up(self) -> bool:
        return self._link.is_up

    def _up(self) -> None:
        self._fetch_version = self._link.version(FETCH, *FETCH_VERSIONS)
        self._offsets_version = self._link.version(LIST_OFFSETS, *LIST_OFFSETS_VERSIONS)
        if self._fetch_version < 0 or self._offsets_version < 0:
            self._link.break_off("it speaks no Fetch or ListOffsets that followers do")
        else:
            self._on_up()

    def _lost(self, by_leader: bool) -> None:
        self._finding.clear()
        self._on_lost(by_leader)

    def move(self, address: tuple[str, int] | None) -> bool:
        moved = self._link.move(address)
        if moved:
            self._finding.clear()
        return moved

    def fetch(self, asked: FetchRequest, on_fetched: OnFetched) -> None:
        version = self._fetch_version
        body = encode_fetch_request(
            version,
            asked.partitions,
            replica_id=self._replica_id,
            replica_epoch=asked.broker_epoch,
            max_wait_ms=asked.max_wait_ms,
            min_bytes=asked.min_bytes,
            max_bytes=asked.max_bytes,
            session_id=asked.session_id,
            session_epoch=asked.session_epoch,
            forgotten=asked.forgotten,
        )
        self._link.request(FETCH, version, body, partial(self._fetched, version, on_fetched))

    @staticmethod
    def _fetched(version: int, on_fetched: OnFetched, frame: memoryview, position: int) -> Iterator[int]:
        _, error, session_id, topics, _ = walk_fetch_response(frame, position, version)
        return on_fetched(error, session_id, topics)

    def find_offsets(self, topic: str, index: int, leader_epoch: int, on_found: OnFound) -> None:
        """Beside the fetches so many are asked for at a time, the others when those were answered."""
        self._finding.append((topic, index, leader_epoch, on_found))
        self._find_more()

    def _find_more(self) -> None:
        while self._finding and self._link.room >= FETCHES_MAX + len((EARLIEST, LATEST)):
            self._find(*self._finding.popleft())

    def _find(self, topic: str, index: int, leader_epoch: int, on_found: OnFound) -> None:
        """Two requests, as in Kafka: one may name a partition only once."""
        version = self._offsets_version
        found: list[int | None] = []

        def take(frame: memoryview, position: int) -> None:
            response, _ = decoder(ListOffsetsResponse, version)(frame, position)
            found.append(_offset(response))
            if len(found) == 2:
                start, end = found
                on_found(None if start is None or end is None else (start, end))
                self._find_more()

        for timestamp in (EARLIEST, LATEST):
            asked = ListOffsetsPartition(partition_index=index, current_leader_epoch=leader_epoch, timestamp=timestamp)
            request = ListOffsetsRequest(replica_id=self._replica_id, topics=[ListOffsetsTopic(topic, [asked])])
            body = b"".join(encoder(ListOffsetsRequest, version)(request))
            self._link.request(LIST_OFFSETS, version, body, take)


def _offset(response: ListOffsetsResponse) -> int | None:
    for topic in response.topics:
        for partition in topic.partitions:
            return None if partition.error_code else partition.offset
    return None

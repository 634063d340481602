"""Asking the leaders of many partitions, all leaders at once."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from ottla.broker.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.broker.wire.messages.list_offsets_response import ListOffsetsResponse
from ottla.broker.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.broker.wire.messages.metadata_response import MetadataResponse
from ottla.cli.client import Client, ConnectionLost, NobodyAnswers
from ottla.cli.failures import CommandError
from ottla.runtime.errors import ErrorCode

EARLIEST, LATEST = -2, -1
PATIENCE_S = 3.0
"""For partitions whose leader is just changing."""
PAUSE_S = 0.1
PASSING = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH,
)
DELETED = "the topic is gone"
LEADERLESS = "no leader"

T = TypeVar("T")


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int


class Told(NamedTuple, Generic[T]):
    """What leaders said of each partition, and of which there is nothing, and why."""

    found: dict[Place, T]
    trouble: dict[Place, str]

    def note(self, place: Place, error: int, found: T) -> None:
        """What a leader said of a partition; ``found`` counts where there is no error."""
        if error:
            self.trouble[place] = ErrorCode(error).name
        else:
            self.found[place] = found

    def require(self) -> dict[Place, T]:
        """Raises CommandError where there is trouble."""
        for place, why in sorted(self.trouble.items()):
            raise CommandError(f"{place.topic}-{place.partition}: {why}")
        return self.found


Ask = Callable[[Client, list[Place], Mapping[str, bytes]], Told[T]]
"""Asks one leader for some partitions. The mapping has the topics' ids."""


def metadata(bootstrap: str, names: Iterable[str] | None) -> MetadataResponse:
    """``names``: None for all topics."""
    wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    with Client(bootstrap) as client:
        return client.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), MetadataResponse)


def ask_leaders(bootstrap: str, places: Collection[Place], ask: Ask[T]) -> Told[T]:
    """Asks again where that may help. Raises CommandError when nobody can be asked at all."""
    told: Told[T] = Told({}, {})
    left, until = list(places), time.monotonic() + PATIENCE_S
    while left:
        found, trouble = _ask_once(bootstrap, left, ask)
        told.found.update(found)
        told.trouble.update(trouble)
        left = [place for place, why in trouble.items() if why != DELETED and _passes(why)]
        if not left or time.monotonic() > until:
            break
        for place in left:
            del told.trouble[place]
        time.sleep(PAUSE_S)
    return told


def _passes(why: str) -> bool:
    return why == LEADERLESS or why in _PASSING_NAMES or why.startswith(_UNREACHED)


_PASSING_NAMES = {code.name for code in PASSING}
_UNREACHED = "its leader: "


def _ask_once(bootstrap: str, places: Collection[Place], ask: Ask[T]) -> Told[T]:
    known = metadata(bootstrap, sorted({each.topic for each in places}))
    addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in known.brokers}
    ids = {topic.name or "": topic.topic_id for topic in known.topics}
    leaders = {
        Place(topic.name or "", each.partition_index): each.leader_id
        for topic in known.topics
        for each in topic.partitions
    }
    told: Told[T] = Told({}, {})
    by_leader: dict[int, list[Place]] = {}
    for place in places:
        if place not in leaders:
            told.trouble[place] = DELETED
        elif leaders[place] not in addresses:
            told.trouble[place] = LEADERLESS
        else:
            by_leader.setdefault(leaders[place], []).append(place)

    def ask_one(address: str, mine: list[Place]) -> None:
        try:
            with Client(address) as client:
                found, trouble = ask(client, mine, ids)
        except (ConnectionLost, NobodyAnswers) as error:
            told.trouble.update(dict.fromkeys(mine, f"{_UNREACHED}{error}"))
        except CommandError as error:
            told.trouble.update(dict.fromkeys(mine, str(error)))
        else:
            told.found.update(found)
            told.trouble.update(trouble)

    at_once([partial(ask_one, addresses[leader], mine) for leader, mine in by_leader.items()])
    return told


def by_topic(places: Iterable[Place]) -> dict[str, list[Place]]:
    found: dict[str, list[Place]] = {}
    for each in places:
        found.setdefault(each.topic, []).append(each)
    return found


def at_once(calls: Collection[Callable[[], None]]) -> None:
    """Each on a thread of its own; a call must not raise."""
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# --- offsets ----------------------------------------------------------------------------------------------------------


def offsets_at(client: Client, places: Collection[Place], time_ms: int) -> Told[int]:
    """The first offset that is no older, or `EARLIEST`, or `LATEST`; -1 where all are older."""
    asked = [
        ListOffsetsTopic(topic, [ListOffsetsPartition(each.partition, -1, time_ms) for each in mine])
        for topic, mine in by_topic(places).items()
    ]
    request = ListOffsetsRequest(replica_id=-1, topics=asked, timeout_ms=30_000)
    told: Told[int] = Told({}, {})
    for topic in client.call(request, ListOffsetsResponse).topics:
        for each in topic.partitions:
            told.note(Place(topic.name, each.partition_index), each.error_code, each.offset)
    return told


def offsets(bootstrap: str, places: Collection[Place], *times_ms: int) -> Told[tuple[int, ...]]:
    """Of each partition one for each time."""

    def ask(client: Client, mine: list[Place], _ids: Mapping[str, bytes]) -> Told[tuple[int, ...]]:
        return together([offsets_at(client, mine, time_ms) for time_ms in times_ms])

    return ask_leaders(bootstrap, places, ask)


def together(each: list[Told[int]]) -> Told[tuple[int, ...]]:
    trouble = {place: why for told in each for place, why in told.trouble.items()}
    places = each[0].found.keys() - trouble.keys()
    return Told({place: tuple(told.found[place] for told in each) for place in places}, trouble)

"""What is kept of one rebalance of a group, for people who ask why it happened."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from ottla.broker.coordinator.decisions.groups.offset_store import Place

TEXT_CHARACTERS_MAX = 200
NAMES_MAX = 10
MOVES_MAX = 50
RECORD_BYTES_MAX = 16 << 10
"""As text; Kafka's protocol carries 32 KB at most."""


class Kind(StrEnum):
    """Why a rebalance was asked for."""

    JOIN = "join"
    LEAVE = "leave"
    SESSION = "session timeout"
    SUBSCRIPTION = "subscription change"
    METADATA = "metadata change"
    """The leader joins again as it was: what it assigns has changed, such as the partitions of a topic."""
    HANDED_BACK = "partitions given up"
    """The second round of a cooperative rebalance."""
    REPLACED = "static member back"
    TOPICS = "topics changed"
    ASSIGNOR = "assignor change"
    UNREVOKED = "partitions not given up"
    SILENT = "step not taken"
    """A member that speaks the classic protocol in it. The last four are of consumer groups (KIP-848)."""
    UNSYNCED = "assignment not asked for"
    UNWRITTEN = "assignment not written"
    SIZE = "group too large"
    PROTOCOL = "protocol change"
    """Between the classic and the consumer protocol, or one that could not be written."""


class Cause(NamedTuple):
    """Who asked, and why."""

    kind: Kind
    member_id: str = ""
    client_id: str = ""
    client_host: str = ""
    words: str = ""
    """What its client said, or what there is to add."""

    def cut(self) -> "Cause":
        """Bounded, whatever clients call themselves."""
        return Cause(self.kind, *map(cut, self[1:]))


class Move(NamedTuple):
    """A partition that changed hands; an empty name is nobody."""

    topic: str
    partition: int
    before: str
    after: str


class RebalanceRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Times of day and durations are in milliseconds."""

    number: int
    begun_ms: int
    cause: Cause
    also: list[Cause] = []
    """What else happened before all had joined."""
    also_count: int = 0
    is_newer: bool = False
    """Of a consumer group (KIP-848)."""
    joining_ms: int | None = None
    """Until the members had joined, or the time for it was up; in a consumer group until there was a target."""
    last_joined: str = ""
    last_joined_ms: int | None = None
    """Who came last, and when after the beginning: the others waited."""
    absent: list[str] = []
    """Who did not come in time, and is no member any more."""
    absent_count: int = 0
    assigning_ms: int | None = None
    """From then until the leader's assignment was committed, or all had come to the target."""
    outcome: str = ""
    """Empty while it goes on."""
    generation: int = 0
    protocol: str = ""
    leader: str = ""
    members: int = 0
    moved: list[Move] = []
    moved_count: int | None = None
    """None where it cannot be known: another kind of group, or too much to compare."""
    kept_count: int = 0

    def note(self, cause: Cause) -> None:
        """Something else happened before it was over."""
        self.also_count += 1
        if len(self.also) < NAMES_MAX:
            self.also = [*self.also, cause.cut()]

    def compare(self, had: Mapping[Place, str], has: Mapping[Place, str]) -> None:
        """What moved, by who had and who has each partition."""
        moves = [
            Move(cut(place.topic), place.partition, cut(had.get(place, "")), cut(has.get(place, "")))
            for place in sorted(had.keys() | has.keys())
            if had.get(place) != has.get(place)
        ]
        self.moved, self.moved_count = moves[:MOVES_MAX], len(moves)
        self.kept_count = sum(had.get(place) == member for place, member in has.items())


def encoded(record: RebalanceRecord) -> bytes:
    """As JSON; what is left out of the lists is still counted."""
    while len(data := msgspec.json.encode(record)) > RECORD_BYTES_MAX:
        record.moved = record.moved[: len(record.moved) // 2]
        record.also = record.also[: len(record.also) // 2]
        record.absent = record.absent[: len(record.absent) // 2]
    return data


def cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARACTERS_MAX else text[: TEXT_CHARACTERS_MAX - 1] + "…"


def cut_all(texts: Sequence[str]) -> list[str]:
    return [cut(each) for each in texts[:NAMES_MAX]]

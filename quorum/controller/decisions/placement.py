"""Where new replicas go: striped over racks and brokers (Kafka's StripedReplicaPlacer; kraft.md 2.7).

Each partition takes its leader from the next rack and walks the racks from there, so that leaders and replicas spread
evenly; the starting points are random, so that many small topics spread too.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.runtime.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from random import Random  # given, never made here


class UsableBroker(NamedTuple):
    """A broker that may get replicas; one that is fenced, but no leaders."""

    id: int
    rack: str
    fenced: bool


def place(rng: "Random", brokers: Iterable[UsableBroker], partitions: int, replication_factor: int) -> list[list[int]]:
    """Replicas of each partition, leader first. Raises KafkaError (INVALID_REPLICATION_FACTOR) when it cannot be."""
    usable = list(brokers)
    if replication_factor > len(usable):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} needs as many brokers, {len(usable)} can take replicas",
        )
    if all(each.fenced for each in usable):
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "no broker is running that could lead")
    stripes = _Racks(rng, usable)
    return [stripes.next(replication_factor) for _ in range(partitions)]


class _Ring:
    """Brokers in a circle; where it starts moves on from time to time."""

    def __init__(self, rng: "Random", ids: list[int]) -> None:
        self._rng = rng
        self._ids = sorted(ids)
        self._start = rng.randrange(len(ids)) if ids else 0
        self._taken = 0

    def next(self) -> int | None:
        """The next broker of this partition; None when all of them are in it."""
        if self._taken == len(self._ids):
            return None
        broker_id = self._ids[(self._start + self._taken) % len(self._ids)]
        self._taken += 1
        return broker_id

    def begin(self) -> None:
        self._taken = 0

    def advance(self) -> None:
        if self._ids:
            self._start = (self._start + 1) % len(self._ids)

    def shuffle(self) -> None:
        self._rng.shuffle(self._ids)


class _Rack:
    def __init__(self, rng: "Random", brokers: list[UsableBroker]) -> None:
        self._unfenced = _Ring(rng, [each.id for each in brokers if not each.fenced])
        self._fenced = _Ring(rng, [each.id for each in brokers if each.fenced])

    def next_unfenced(self) -> int | None:
        return self._unfenced.next()

    def next(self) -> int | None:
        broker_id = self._unfenced.next()
        return broker_id if broker_id is not None else self._fenced.next()

    def begin(self) -> None:
        """Goes on to another partition."""
        self._unfenced.begin()
        self._fenced.begin()

    def advance(self) -> None:
        self._unfenced.advance()
        self._fenced.advance()

    def shuffle(self) -> None:
        self._unfenced.shuffle()
        self._fenced.shuffle()


class _Racks:
    def __init__(self, rng: "Random", brokers: list[UsableBroker]) -> None:
        self._rng = rng
        by_name: dict[str, list[UsableBroker]] = {}
        for broker in brokers:
            by_name.setdefault(broker.rack, []).append(broker)
        self._racks = [_Rack(rng, by_name[name]) for name in sorted(by_name)]
        self._start = rng.randrange(len(self._racks))
        self._unfenced_count = sum(not each.fenced for each in brokers)
        self._placed = 0

    def next(self, replication_factor: int) -> list[int]:
        """The replicas of one partition."""
        leader, leader_rack = self._leader()
        replicas = [leader]
        position = self._start
        skip: int | None = leader_rack  # once: the leader's rack has had its turn
        while len(replicas) < replication_factor:
            if position == skip:
                skip = None
            else:
                follower = self._racks[position].next()
                if follower is not None:
                    replicas.append(follower)
            position = (position + 1) % len(self._racks)
        self._advance()
        return replicas

    def _leader(self) -> tuple[int, int]:
        position = self._start
        while (leader := self._racks[position].next_unfenced()) is None:
            position = (position + 1) % len(self._racks)
        return leader, position

    def _advance(self) -> None:
        self._start = (self._start + 1) % len(self._racks)
        self._placed += 1
        if self._placed % len(self._racks) == 0:
            # Kafka moves the brokers on with every partition; then two racks of two would lead with one broker each.
            for rack in self._racks:
                rack.advance()
        if self._placed == self._unfenced_count:
            self._placed = 0
            self._rng.shuffle(self._racks)
            for rack in self._racks:
                rack.shuffle()
        for rack in self._racks:
            rack.begin()

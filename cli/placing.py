"""Which replicas move where: pure, so that what a plan comes to can be said before anything is done.

As little moves as may: a replica that may stay does. What must move goes to the broker with the fewest replicas, in a rack that the
partition has none in yet if there is one; brokers with more than their share then give to those with less.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

Place = tuple[str, int]
"""A partition: topic and index."""
Assignment = dict[Place, tuple[int, ...]]


class NotEnoughBrokers(ValueError):
    """There are fewer brokers than replicas."""


class Target(NamedTuple):
    """Where replicas may lie: the broker's rack ("": none) by its id; and how many a partition is to have (None: as it has).
    ``closed``: those of them that keep what they have and take nothing more, for they are not in service."""

    racks: Mapping[int, str]
    replication_factor: int | None = None
    closed: frozenset[int] = frozenset()


def spread(before: Mapping[Place, Sequence[int]], target: Target, *, even: bool = True) -> Assignment:
    """The new replicas of every partition, preferred leader first. ``even``: also those that may stay move, so that each broker has its
    share; else only what must. Raises NotEnoughBrokers."""
    placing = _Placing(target, before)
    for place in sorted(before):
        placing.keep_and_fill(place, before[place])
    if even:
        placing.even_out()
    return placing.in_order(before)


class _Placing:
    def __init__(self, target: Target, before: Mapping[Place, Sequence[int]]) -> None:
        self._racks = target.racks
        self._factor = target.replication_factor
        self._closed = target.closed
        self._has: dict[Place, list[int]] = {}
        self._load = dict.fromkeys(target.racks, 0)
        for replicas in before.values():
            for each in replicas:
                if each in self._load:
                    self._load[each] += 1

    def keep_and_fill(self, place: Place, replicas: Sequence[int]) -> None:
        wanted = len(replicas) if self._factor is None else self._factor
        kept = [each for each in replicas if each in self._racks]
        while len(kept) > wanted:  # the preferred leader stays
            dropped = max(kept[1:], key=lambda each: (self._is_beside(each, kept), self._load[each], each))
            kept.remove(dropped)
            self._load[dropped] -= 1
        while len(kept) < wanted:
            added = self._best(kept)
            if added is None:
                raise NotEnoughBrokers(f"{place[0]}-{place[1]} has {wanted} replicas, for {len(kept)} brokers")
            kept.append(added)
            self._load[added] += 1
        self._has[place] = kept

    def _best(self, kept: Sequence[int]) -> int | None:
        free = [each for each in self._racks if each not in kept and each not in self._closed]
        return min(free, key=lambda each: (self._is_beside(each, kept), self._load[each], each), default=None)

    def _is_beside(self, broker: int, others: Iterable[int]) -> bool:
        """Whether another replica is in its rack; brokers without one are each a rack of their own."""
        rack = self._racks[broker]
        return bool(rack) and any(self._racks[each] == rack for each in others if each != broker)

    def even_out(self) -> None:
        """From the fullest to the emptiest, as long as that makes them more alike and nobody worse spread over racks."""
        held: dict[int, dict[Place, None]] = {each: {} for each in self._racks}
        for place, replicas in self._has.items():
            for each in replicas:
                held[each][place] = None
        gave = True
        while gave:
            gave, in_vain = False, set[tuple[int, int]]()
            while self._give_one(held, in_vain):
                gave = True

    def _give_one(self, held: dict[int, dict[Place, None]], in_vain: set[tuple[int, int]]) -> bool:
        """``in_vain``: givers and takers that found nothing this time round; each look costs all that the giver has."""
        by_load = sorted(
            (each for each in self._load if each not in self._closed), key=lambda each: (self._load[each], each)
        )
        for giver in reversed(by_load):
            for taker in by_load:
                if self._load[giver] - self._load[taker] < 2:
                    break
                if (giver, taker) in in_vain:
                    continue
                place = self._that_may_go(held[giver], giver, taker)
                if place is not None:
                    held[taker][place] = held[giver].pop(place)
                    self._has[place] = [taker if each == giver else each for each in self._has[place]]
                    self._load[giver] -= 1
                    self._load[taker] += 1
                    return True
                in_vain.add((giver, taker))
        return False

    def _that_may_go(self, held: Iterable[Place], giver: int, taker: int) -> Place | None:
        for place in held:
            replicas = self._has[place]
            if taker not in replicas:
                others = [each for each in replicas if each != giver]
                if not self._is_beside(taker, others) or self._is_beside(giver, others):
                    return place
        return None

    def in_order(self, before: Mapping[Place, Sequence[int]]) -> Assignment:
        """The first replica is the preferred leader: it stays where it can, else whoever leads the fewest is first."""
        first = dict.fromkeys(self._racks, 0)
        planned: Assignment = {}
        left = []
        for place, replicas in self._has.items():
            leader = next(iter(before[place]), -1)
            if leader in replicas:
                first[leader] += 1
                planned[place] = (leader, *(each for each in replicas if each != leader))
            else:
                left.append(place)
        for place in left:
            replicas = self._has[place]
            leader = min(replicas, key=lambda each: (first[each], replicas.index(each)))
            first[leader] += 1
            planned[place] = (leader, *(each for each in replicas if each != leader))
        return {place: planned[place] for place in self._has}


class Partition(NamedTuple):
    """What there is of one now. ``size``: bytes of a replica. ``min_in_sync``: its topic's min.insync.replicas."""

    replicas: tuple[int, ...]
    in_sync: tuple[int, ...] = ()
    leader: int = -1
    size: int = 0
    min_in_sync: int = 1


class Cost(NamedTuple):
    """What a plan comes to. ``reordered``: only the preferred leader changes. Bytes that a broker sends or takes, by its id.
    ``below_min_in_sync``: partitions with fewer live replicas at the end than acks=all needs, and what those need."""

    moved: int
    reordered: int
    bytes_in: dict[int, int]
    bytes_out: dict[int, int]
    below_min_in_sync: dict[Place, tuple[int, int]]

    @property
    def bytes_moved(self) -> int:
        return sum(self.bytes_in.values())

    def seconds_at(self, bytes_per_second: int) -> float:
        """A throttle is one broker's: whoever has the most to send or to take says when it ends."""
        return max([*self.bytes_in.values(), *self.bytes_out.values()], default=0) / bytes_per_second


def cost_of(plan: Mapping[Place, Sequence[int]], now: Mapping[Place, Partition], alive: Iterable[int]) -> Cost:
    """Of the partitions of ``plan``, which all are in ``now``. ``alive``: brokers in service."""
    serving = frozenset(alive)
    moved = reordered = 0
    bytes_in: dict[int, int] = {}
    bytes_out: dict[int, int] = {}
    below = {}
    for place, replicas in plan.items():
        partition = now[place]
        coming = [each for each in replicas if each not in partition.in_sync]
        moved += set(replicas) != set(partition.replicas)
        reordered += set(replicas) == set(partition.replicas) and tuple(replicas) != partition.replicas
        for each in coming:
            bytes_in[each] = bytes_in.get(each, 0) + partition.size
            if partition.leader >= 0:
                bytes_out[partition.leader] = bytes_out.get(partition.leader, 0) + partition.size
        live = sum(each in serving for each in replicas)
        if live < partition.min_in_sync:
            below[place] = (live, partition.min_in_sync)
    return Cost(moved, reordered, bytes_in, bytes_out, below)


def changed(plan: Mapping[Place, Sequence[int]], now: Mapping[Place, Partition]) -> Assignment:
    """What of it is not so yet."""
    return {place: tuple(replicas) for place, replicas in plan.items() if tuple(replicas) != now[place].replicas}

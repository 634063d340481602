"""The assignor `uniform`: every member gets as many partitions as the others, and keeps what it had where it can."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from ottla.broker.coordinator.decisions.groups.assignors.members import Assignment, MemberSpec
from ottla.broker.coordinator.decisions.groups.assignors.pieces import InPieces, Pace

_UNEVEN = 2
"""A partition moves to a member that has so many fewer than its owner: then both have nearer the same."""

_SUBSCRIBER, _TOPIC, _KEPT, _GIVEN, _MOVED = 0.1, 0.5, 0.02, 1.0, 3.0
"""Steps of one."""


def assign_uniformly(
    members: Mapping[str, MemberSpec], partitions: Mapping[bytes, int], pace: Pace
) -> InPieces[dict[str, Assignment]]:
    """Nobody has two partitions more than another who could take one of them. Where all subscribe to the same topics that means: as many
    as everybody, or one more; and then no partition moves that need not.

    One member more beside 1,000 members of 10 topics with 100 partitions each takes 4 ms, a thousand new ones 6 ms.
    """
    shares = _Shares(members, partitions, pace)
    for part in (shares.subscribe, shares.keep, shares.give_out, shares.even_out):
        yield from part()
    return (yield from shares.assignments())


class _Shares:
    """Members are numbered in the order of their ids, so that the same members get the same whoever was known first."""

    def __init__(self, members: Mapping[str, MemberSpec], partitions: Mapping[bytes, int], pace: Pace) -> None:
        self._pace = pace
        self._ids = sorted(members)
        self._members = [members[each] for each in self._ids]
        self._partitions = partitions
        self._owned: list[dict[bytes, frozenset[int] | list[int]]] = [{} for _ in self._ids]
        """By member and topic; a frozenset is what the member had, and is not changed."""
        self._loads = [0] * len(self._ids)
        self._free: dict[bytes, set[int]] = {}
        self._subscribers: dict[bytes, list[int]] = {}

    def subscribe(self) -> InPieces[None]:
        for number, member in enumerate(self._members):
            for topic in member.topics:
                if topic in self._partitions:
                    self._subscribers.setdefault(topic, []).append(number)
            if self._pace.is_over(_SUBSCRIBER * len(member.topics)):
                yield

    def keep(self) -> InPieces[None]:
        """What a member had and still may have stays its own for now; the rest is free."""
        self._free = {topic: set(range(self._partitions[topic])) for topic in self._subscribers}
        for number, member in enumerate(self._members):
            for topic, had in member.target.items():
                free = self._free.get(topic)
                if free is None or topic not in member.topics:
                    continue
                kept = had if had <= free else had & free
                if kept:
                    free -= kept
                    self._owned[number][topic] = kept
                    self._loads[number] += len(kept)
                if self._pace.is_over(_TOPIC + _KEPT * len(had)):
                    yield

    def give_out(self) -> InPieces[None]:
        """To those that have the fewest. Topics that few may read come first: the others have a choice."""
        for topic in self._by_choice(topic for topic, free in self._free.items() if free):
            fewest = [(self._loads[each], each) for each in self._subscribers[topic]]
            heapify(fewest)
            for partition in sorted(self._free[topic]):
                load, number = fewest[0]
                heapreplace(fewest, (load + 1, number))
                self._give(number, topic, partition)
                if self._pace.is_over(_GIVEN):
                    yield
            if self._pace.is_over(_SUBSCRIBER * len(fewest)):
                yield

    def even_out(self) -> InPieces[None]:
        """Moves partitions until nobody has too many. Topics with the same subscribers are evened out as one: of whoever has most, whichever
        topic it is of. A member that gave or got some makes others uneven, in all topics of its."""
        if max(self._loads, default=0) - min(self._loads, default=0) < _UNEVEN:
            return
        alike: dict[tuple[int, ...], list[bytes]] = {}
        for topic in self._by_choice(self._subscribers):
            alike.setdefault(tuple(self._subscribers[topic]), []).append(topic)
            if self._pace.is_over(_KEPT * len(self._subscribers[topic])):
                yield
        place = {topic: at for at, topics in enumerate(alike.values()) for topic in topics}
        waiting = deque(alike.values())
        known = set(range(len(waiting)))
        order = list(alike.values())
        while waiting:
            topics = waiting.popleft()
            at = place[topics[0]]
            known.discard(at)
            touched = set[int]()
            for number in (yield from self._even_out(topics)):
                touched.update(place[each] for each in self._members[number].topics if each in place)
                if self._pace.is_over(_SUBSCRIBER * len(self._members[number].topics)):
                    yield
            for each in sorted(touched - known - {at}):
                waiting.append(order[each])
                known.add(each)

    def _even_out(self, topics: Sequence[bytes]) -> InPieces[Collection[int]]:
        """Those that gave or got some of them. Of a member only its last entry in a heap says how many it has."""
        loads = self._loads
        subscribers = self._subscribers[topics[0]]
        most = []
        for each in subscribers:
            if self._owns(each, topics):
                most.append((-loads[each], each))
            if self._pace.is_over(_TOPIC + _KEPT * len(topics)):
                yield
        fewest = [(loads[each], each) for each in subscribers]
        heapify(most)
        heapify(fewest)
        touched: set[int] = set()
        while most:
            if self._pace.is_over(_MOVED + _KEPT * len(topics)):
                yield
            load, giver = most[0]
            topic = self._owns(giver, topics)
            if -load != loads[giver] or topic is None:
                heappop(most)
                continue
            fewest_load, taker = fewest[0]
            if fewest_load != loads[taker]:
                heappop(fewest)
                continue
            if -load - fewest_load < _UNEVEN:
                break
            self._give(taker, topic, self._take(giver, topic))
            for each in (giver, taker):
                heappush(most, (-loads[each], each))
                heappush(fewest, (loads[each], each))
                touched.add(each)
        return touched

    def _owns(self, number: int, topics: Iterable[bytes]) -> bytes | None:
        """One of the topics that it has a partition of."""
        owned = self._owned[number]
        return next((each for each in topics if owned.get(each)), None)

    def _by_choice(self, topics: Iterable[bytes]) -> list[bytes]:
        return sorted(topics, key=lambda each: (len(self._subscribers[each]), each))

    def _give(self, number: int, topic: bytes, partition: int) -> None:
        self._own(number, topic).append(partition)
        self._loads[number] += 1

    def _take(self, number: int, topic: bytes) -> int:
        self._loads[number] -= 1
        return self._own(number, topic).pop()

    def _own(self, number: int, topic: bytes) -> list[int]:
        own = self._owned[number].get(topic, frozenset())
        if isinstance(own, list):
            return own
        changed = self._owned[number][topic] = sorted(own)
        return changed

    def assignments(self) -> InPieces[dict[str, Assignment]]:
        found: dict[str, Assignment] = {}
        for member_id, owned, load in zip(self._ids, self._owned, self._loads, strict=True):
            found[member_id] = {topic: frozenset(partitions) for topic, partitions in owned.items() if partitions}
            if self._pace.is_over(_TOPIC * (1 + len(owned)) + _KEPT * load):
                yield
        return found

"""The committed offsets of a shard's groups: the state alone, changed by replaying records."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from ottla.broker.coordinator.decisions.effects import Undo
from ottla.broker.coordinator.decisions.groups.committed_offset import CommittedOffset


class Place(msgspec.Struct, frozen=True, order=True, gc=False):
    """A partition that a group reads. Collections of garbage do not look at it, nor at what is kept for it: of a hundred thousand
    that would hold the loop, again and again."""

    topic: str
    partition: int

    def __iter__(self) -> Iterator[Any]:
        """Topic and partition."""
        yield self.topic
        yield self.partition


class _Kept(msgspec.Struct, frozen=True, gc=False):
    committed: CommittedOffset
    record_offset: int
    """Of the record that says it: of two commits the later record counts, whenever their transactions end."""


class OffsetStore:
    """By group and place. What a transaction commits waits apart until its marker is read (KIP-447)."""

    def __init__(self) -> None:
        self._of_group: dict[str, dict[Place, _Kept]] = {}
        self._open: dict[int, dict[str, dict[Place, _Kept]]] = {}
        """By producer id, group and place."""
        self._producers: dict[str, set[int]] = {}
        """Of each group: those that have offsets of it in ``_open``."""

    # --- what is known ------------------------------------------------------------------------------------------------

    def get(self, group_id: str, place: Place) -> CommittedOffset | None:
        kept = self._of_group.get(group_id, {}).get(place)
        return kept.committed if kept is not None else None

    def of_group(self, group_id: str) -> Iterator[tuple[Place, CommittedOffset]]:
        for place, kept in self._of_group.get(group_id, {}).items():
            yield place, kept.committed

    def count_of(self, group_id: str) -> int:
        return len(self._of_group.get(group_id, ()))

    def group_ids(self) -> Iterator[str]:
        """Groups with offsets, also with those that no transaction has committed yet."""
        yield from self._of_group
        for groups in self._open.values():
            yield from groups

    def is_open(self, group_id: str) -> bool:
        """Whether a transaction that is not decided has offsets of it."""
        return any(True for _ in self._undecided(group_id))

    def is_pending(self, group_id: str, place: Place) -> bool:
        """Whether an open transaction may change it."""
        return any(True for _ in self.pending(group_id, place))

    def pending(self, group_id: str, place: Place) -> Iterator[CommittedOffset]:
        """What open transactions may make of it."""
        if group_id in self._producers:
            yield from (places[place].committed for places in self._undecided(group_id) if place in places)

    def has(self, group_id: str, place: Place) -> bool:
        """Whether any record is about it, also of a transaction that is not decided."""
        return self.get(group_id, place) is not None or self.is_pending(group_id, place)

    def places_of(self, group_id: str) -> list[Place]:
        """Of all its offsets, also those that no transaction has committed yet."""
        places = dict.fromkeys(self._of_group.get(group_id, ()))
        for undecided in self._undecided(group_id):
            places.update(dict.fromkeys(undecided))
        return list(places)

    def _undecided(self, group_id: str) -> Iterator[dict[Place, _Kept]]:
        for producer_id in self._producers.get(group_id, ()):
            places = self._open.get(producer_id, {}).get(group_id)
            if places is not None:
                yield places

    def __len__(self) -> int:
        return sum(map(len, self._of_group.values()))

    def contents(self) -> tuple[object, ...]:
        """All of it, to compare with another's, whose records need not have had the same places: compaction takes some away."""
        undecided = {producer_id: _committed(groups) for producer_id, groups in self._open.items() if groups}
        return _committed(self._of_group), undecided

    # --- replay -------------------------------------------------------------------------------------------------------

    def put(self, group_id: str, place: Place, committed: CommittedOffset, record_offset: int) -> Undo:
        places = self._of_group.get(group_id)
        if places is None:
            places = self._of_group[group_id] = {}
        before = places.get(place)
        places[place] = _Kept(committed, record_offset)
        return partial(_put_back, self._of_group, group_id, place, before)

    def put_pending(
        self, producer_id: int, group_id: str, place: Place, committed: CommittedOffset, record_offset: int
    ) -> Undo:
        """Part of a transaction that is not decided."""
        groups = self._open.setdefault(producer_id, {})
        self._producers.setdefault(group_id, set()).add(producer_id)
        places = groups.setdefault(group_id, {})
        before = places.get(place)
        places[place] = _Kept(committed, record_offset)
        return partial(_put_back, groups, group_id, place, before)

    def remove(self, group_id: str, place: Place) -> Undo:
        """Also from transactions that are not decided: a deleted group's offset does not come back with their markers."""
        undoes: list[Undo] = []
        producers = self._producers.get(group_id, set())
        for offsets in (self._of_group, *(self._open.get(each, {}) for each in producers)):
            before = offsets.get(group_id, {}).get(place)
            if before is not None:
                _put_back(offsets, group_id, place, None)
                undoes.append(partial(_put_back, offsets, group_id, place, before))
        if producers:
            left = {each for each in producers if group_id in self._open.get(each, {})}
            self._note_producers(group_id, left)  # their markers will not find the group any more
            undoes.append(partial(self._note_producers, group_id, producers))
        return partial(_all, undoes)

    def _note_producers(self, group_id: str, producers: set[int]) -> None:
        if producers:
            self._producers[group_id] = producers
        else:
            self._producers.pop(group_id, None)

    def forget(self, group_id: str) -> None:
        """The store is not needed any more; a little of it goes."""
        self._of_group.pop(group_id, None)

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        """Its marker was read."""
        groups = self._open.pop(producer_id, {})
        for group_id in groups:
            self._forget_producer(group_id, producer_id)
        for group_id, places in groups.items() if is_commit else ():
            known = self._of_group.setdefault(group_id, {})
            for place, kept in places.items():
                before = known.get(place)
                if before is None or before.record_offset < kept.record_offset:
                    known[place] = kept

    def _forget_producer(self, group_id: str, producer_id: int) -> None:
        self._note_producers(group_id, self._producers.get(group_id, set()) - {producer_id})


def _put_back(offsets: dict[str, dict[Place, _Kept]], group_id: str, place: Place, kept: _Kept | None) -> None:
    if kept is not None:
        offsets.setdefault(group_id, {})[place] = kept
        return
    places = offsets.get(group_id, {})
    places.pop(place, None)
    if not places:
        offsets.pop(group_id, None)


def _committed(offsets: dict[str, dict[Place, _Kept]]) -> dict[str, dict[Place, CommittedOffset]]:
    return {group: {place: kept.committed for place, kept in places.items()} for group, places in offsets.items()}


def _all(undoes: list[Undo]) -> None:
    for undo in undoes:
        undo()

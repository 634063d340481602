"""Groups come to their end: DeleteGroups (42), and those that nobody needs any more, with offsets that expire (KIP-211).

What is to be removed may be more than a batch holds: it is written in pieces, of which the last says that the group is gone.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Protocol

from ottla.broker.coordinator.decisions.effects import Done, Effects, Record
from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup
from ottla.broker.coordinator.decisions.groups.describing import delete_error
from ottla.broker.coordinator.decisions.groups.kinds import AnyGroup, has_ended, tombstones
from ottla.broker.coordinator.decisions.groups.offset_store import OffsetStore
from ottla.broker.coordinator.decisions.groups.offsets import Offsets
from ottla.runtime.errors import ErrorCode

PIECE_RECORDS_MAX = 1_000
PIECE_BYTES_MAX = 64 << 10
GROUPS_A_TURN = 50
"""So many are looked at at once: everybody's requests wait meanwhile."""
OFFSETS_A_TURN = 2_000
"""Or those that have so many offsets together: a millisecond or two."""


class Groups(Protocol):
    """The groups of the shard."""

    def any(self, group_id: str) -> AnyGroup | None: ...

    def all(self) -> Iterator[AnyGroup]: ...

    def forget(self, group_id: str) -> bool:
        """One of which no record says anything; False for others."""
        ...


class Endings:
    """For all groups of a shard."""

    def __init__(self, effects: Effects, groups: Groups, commits: Offsets, offsets: OffsetStore) -> None:
        self._effects = effects
        self._groups = groups
        self._commits = commits
        self._offsets = offsets
        self._round: Iterator[AnyGroup] | None = None
        self._again = False
        self.expired_count = 0

    def delete(self, group_ids: Iterable[str], told: Callable[[dict[str, ErrorCode]], None]) -> None:
        """Groups without members, with their offsets; told once that is committed."""
        found = {group_id: self._groups.any(group_id) for group_id in group_ids}
        errors = {group_id: delete_error(group) for group_id, group in found.items()}
        gone = [group for group in found.values() if group is not None and not errors[group.id]]
        waiting = len(gone)

        def ended(group_id: str, error: ErrorCode) -> None:
            nonlocal waiting
            errors[group_id] = error
            waiting -= 1
            if not waiting:
                told(errors)

        for group in gone:
            records = [*self._commits.tombstones(group.id), *tombstones(group)]
            self._write(records, partial(ended, group.id))
        if not gone:
            told(errors)

    # --- expiry -------------------------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Begins a round through all groups; one that is going on is followed by another."""
        if self._round is not None:
            self._again = True
            return
        self._round = iter(list(self._groups.all()))
        self._effects.soon(self._go_on)

    def _go_on(self) -> None:
        assert self._round is not None
        looked = offsets = 0
        for group in islice(self._round, GROUPS_A_TURN):
            looked += 1
            if self._groups.any(group.id) is group:
                offsets += self._look_at(group)
            if offsets >= OFFSETS_A_TURN:
                break
        if looked == GROUPS_A_TURN or offsets >= OFFSETS_A_TURN:
            self._effects.soon(self._go_on)
            return
        self._round, again, self._again = None, self._again, False
        if again:
            self.expire()

    def _look_at(self, group: AnyGroup) -> int:
        """Removes what has expired of it, and the group itself if it has neither offsets nor members. How many offsets it had."""
        count, gone = self._offsets.count_of(group.id), self._commits.expired(group)
        self.expired_count += len(gone)
        is_awaited = isinstance(group, ClassicGroup) and bool(group.pending)
        is_over = has_ended(group) and count == len(gone) and not is_awaited
        if is_over and not self._offsets.is_open(group.id) and not self._groups.forget(group.id):
            gone += tombstones(group)
        if gone:
            self._write(gone, lambda _: None)
        return count

    # --- in pieces ----------------------------------------------------------------------------------------------------

    def _write(self, records: list[Record], done: Done) -> None:
        """``done`` is told of the first failure. What follows a piece that cannot be written is not written either."""
        pieces = list(_pieces(records))
        outcomes: list[ErrorCode] = []

        def ended(error: ErrorCode) -> None:
            outcomes.append(error)
            if len(outcomes) == len(pieces):
                done(next(filter(None, outcomes), ErrorCode.NONE))

        for piece in pieces:
            self._effects.write(piece, ended)


def _pieces(records: list[Record]) -> Iterator[list[Record]]:
    piece: list[Record] = []
    size = 0
    for record in records:
        if piece and (len(piece) == PIECE_RECORDS_MAX or size + len(record.key) > PIECE_BYTES_MAX):
            yield piece
            piece, size = [], 0
        piece.append(record)
        size += len(record.key)
    if piece:
        yield piece

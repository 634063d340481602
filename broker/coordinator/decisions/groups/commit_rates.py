"""How fast groups read: an earlier commit of each partition is remembered, in memory only, to be compared with the last.

Of two marks the older one is between half a minute and a minute old once commits have gone on for that long.
"""

from typing import NamedTuple

from ottla.broker.coordinator.decisions.groups.committed_offset import CommittedOffset
from ottla.broker.coordinator.decisions.groups.offset_store import Place

MARK_MS = 30_000
PLACES_MAX = 10_000
"""Of a shard; of what comes beyond that no rate is known until groups are forgotten."""


class _Marks(NamedTuple):
    older_offset: int
    older_ms: int
    newer_offset: int
    newer_ms: int


class CommitRates:
    """For the groups of one shard, since it was loaded."""

    def __init__(self) -> None:
        self._marks: dict[str, dict[Place, _Marks]] = {}
        self._count = 0

    def note(self, group_id: str, place: Place, committed: CommittedOffset) -> None:
        places = self._marks.get(group_id)
        marks = places.get(place) if places is not None else None
        if marks is None:
            self._begin(group_id, place, committed)
        elif places is not None and committed.offset < marks.newer_offset:
            places[place] = _begun(committed)  # somebody set it back
        elif places is not None and committed.commit_time_ms - marks.newer_ms >= MARK_MS:
            places[place] = _Marks(marks.newer_offset, marks.newer_ms, committed.offset, committed.commit_time_ms)

    def _begin(self, group_id: str, place: Place, committed: CommittedOffset) -> None:
        if self._count < PLACES_MAX:
            self._count += 1
            self._marks.setdefault(group_id, {})[place] = _begun(committed)

    def since(self, group_id: str, place: Place) -> tuple[int, int] | None:
        """An earlier offset and when it was committed; None when none is known."""
        marks = self._marks.get(group_id, {}).get(place)
        return (marks.older_offset, marks.older_ms) if marks is not None else None

    def forget(self, group_id: str) -> None:
        self._count -= len(self._marks.pop(group_id, ()))


def _begun(committed: CommittedOffset) -> _Marks:
    return _Marks(committed.offset, committed.commit_time_ms, committed.offset, committed.commit_time_ms)

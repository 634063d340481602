"""Cuts many logs over several turns of the loop, with one sync for many.

After a change of leaders one fetch answer may tell a follower to cut every partition that it has. A cut is some system calls and
a sync, milliseconds each. A few are made at once, as they come. When many wait, their recovery points go down together; then
they are cut without a sync, some in a turn, and a thread syncs the file system. Until that is done a log takes nothing
(`Log.finish_cut`) and its partition is not fetched: what a power cut leaves is the old end or the new one, and never new records
before old ones. Nothing is told to anybody meanwhile, and what the leader knows of us stays true: below the cut we have all.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ottla.broker.replication.durability import Durability
from ottla.log.directories.directory import DirectoryState
from ottla.log.log import Log
from ottla.log.names import TopicIdPartition
from ottla.runtime.errors import KafkaError
from ottla.runtime.timers import LoopTimers

SYNCED_PER_TURN = 4
CUT_PER_TURN = 50
MANY = 16
"""From so many on, one sync of the file system costs less than one of each."""

OnCut = Callable[[Exception | None], None]
"""With what came of it. Whatever fails for one log fails for that one only."""


class _Cut(NamedTuple):
    """``restart``: nothing stays, and the log begins at the offset. That is several syncs, which are not put off."""

    log: Log
    offset: int
    restart: bool
    is_wanted: Callable[[], bool]
    on_done: OnCut

    @property
    def is_heavy(self) -> bool:
        return self.restart or self.offset <= self.log.log_start_offset


class Truncations:
    """The cuts that wait, and those that wait for their sync."""

    def __init__(self, timers: LoopTimers, durability: Durability) -> None:
        self._timers = timers
        self._durability = durability
        self._waiting: dict[Log, _Cut] = {}
        self._turn_left = SYNCED_PER_TURN
        self._planned = False

    def cut(self, log: Log, offset: int, is_wanted: Callable[[], bool], on_done: OnCut) -> None:
        """As `Log.truncate_to`, now or soon, unless it is not wanted any more by then. Of one log the last one counts."""
        self._add(_Cut(log, offset, False, is_wanted, on_done))

    def restart(self, log: Log, offset: int, is_wanted: Callable[[], bool], on_done: OnCut) -> None:
        """As `Log.truncate_fully_and_start_at`; otherwise as `cut`."""
        self._add(_Cut(log, offset, True, is_wanted, on_done))

    def moved(self, old: Log, new: Log) -> None:
        """Another log took the place of one that may wait: nothing is left of that to be cut."""
        cut = self._waiting.pop(old, None)
        if cut is not None:
            self._waiting[new] = cut._replace(log=new)

    def _add(self, cut: _Cut) -> None:
        if self._turn_left > 0 and not self._waiting:
            self._cut_synced(cut)
        else:
            self._waiting.pop(cut.log, None)
            self._waiting[cut.log] = cut
        self._plan()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._timers.call_later_ms(0, self._take_turn)

    def _take_turn(self) -> None:
        self._planned = False
        self._turn_left = SYNCED_PER_TURN
        if len(self._waiting) >= MANY:
            self._cut_many()
        while 0 < len(self._waiting) < MANY and self._turn_left > 0:
            self._cut_synced(self._take())
        if self._waiting:
            self._plan()

    def _take(self) -> _Cut:
        return self._waiting.pop(next(iter(self._waiting)))

    def _cut_synced(self, cut: _Cut) -> None:
        self._turn_left -= SYNCED_PER_TURN if cut.is_heavy else 1
        if not cut.is_wanted():
            return
        try:
            _truncate(cut, sync=True)
        except Exception as error:  # noqa: BLE001 - told to who asked for the cut
            cut.on_done(error)
        else:
            cut.on_done(None)

    def _cut_many(self) -> None:
        self._turn_left = 0
        cuts: list[_Cut] = []
        while self._waiting and len(cuts) < CUT_PER_TURN:
            cut = self._take()
            if cut.is_wanted():
                cuts.append(cut)
                if cut.is_heavy:
                    break
        refused = _lower_recovery_points(cuts)
        for cut in cuts:
            error: Exception | None = refused.get(cut.log.root)
            try:
                if error is None:
                    _truncate(cut, sync=False)
            except Exception as failure:  # noqa: BLE001 - as above
                error = failure
            if error is not None:
                cut.on_done(error)
            else:
                self._durability.finish_cut(cut.log, partial(_finished, cut))


def _finished(cut: _Cut, error: Exception | None) -> None:
    if cut.is_wanted():
        cut.on_done(error)


def _truncate(cut: _Cut, *, sync: bool) -> None:
    if cut.restart:
        cut.log.truncate_fully_and_start_at(cut.offset)
        return
    cut.log.truncate_to(cut.offset, sync=sync)
    # Even if no record goes: as a leader we may have begun an epoch here and written nothing in it.
    cut.log.epochs.truncate_from_end(cut.offset)


def _lower_recovery_points(cuts: list[_Cut]) -> dict[DirectoryState, KafkaError]:
    """With one write a directory, before the first cut. Returns the directories that could not."""
    by_root: dict[DirectoryState, dict[TopicIdPartition, int]] = {}
    for cut in cuts:
        by_root.setdefault(cut.log.root, {})[cut.log.key] = cut.log.floor_of(cut.offset)
    refused: dict[DirectoryState, KafkaError] = {}
    for root, offsets in by_root.items():
        try:
            root.before_truncation(offsets)
        except OSError as error:
            refused[root] = root.failed(error)
    return refused

"""What only happens and leaves no trace: counted and timed where it happens, for the metrics. Times are ms, given."""

from collections import deque
from typing import NamedTuple

from ottla.quorum.raft.roles.candidate import Candidate
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.roles.prospective import Prospective
from ottla.quorum.raft.state import Role

HALF_WINDOW_MS = 30_000
PENDING_MAX = 1_000
"""Appends that are timed at once; beyond it some go untimed."""


class _Half(NamedTuple):
    """What half a window had. ``largest_ms``: 0 also when there was nothing."""

    times: int = 0
    sum_ms: int = 0
    largest_ms: int = 0


class RecentTimes:
    """Average and maximum of what took how long, over the last half to whole minute."""

    def __init__(self) -> None:
        self._began_ms = 0
        self._now, self._before = _Half(), _Half()  # this half window and the one before

    def add(self, took_ms: int, now_ms: int) -> None:
        self._turn(now_ms)
        count, sum_ms, largest_ms = self._now
        self._now = _Half(count + 1, sum_ms + took_ms, max(largest_ms, took_ms))

    def average(self, now_ms: int) -> float | None:
        """The average of these times; None when there was nothing."""
        self._turn(now_ms)
        count = self._now.times + self._before.times
        return (self._now.sum_ms + self._before.sum_ms) / count if count else None

    def maximum(self, now_ms: int) -> int | None:
        self._turn(now_ms)
        count = self._now.times + self._before.times
        return max(self._now.largest_ms, self._before.largest_ms) if count else None

    def _turn(self, now_ms: int) -> None:
        passed = (now_ms - self._began_ms) // HALF_WINDOW_MS
        if passed <= 0:
            return
        self._now, self._before = _Half(), self._now if passed == 1 else _Half()
        self._began_ms += passed * HALF_WINDOW_MS


class QuorumMeters:
    """The meters of one node. They cost an addition and a look at the clock for each append, which shares an fsync."""

    def __init__(self) -> None:
        self.appended_records = self.fetched_records = self.elections = 0
        self.commit_times = RecentTimes()
        self.election_times = RecentTimes()
        self._pending: deque[tuple[int, int]] = deque()  # end offset of an append as leader, and when it was made
        self._campaign_ms: int | None = None

    def appended(self, base_offset: int, end_offset: int, *, leads: bool, now_ms: int) -> None:
        """Records were written to the log, which ends there now."""
        count = end_offset - base_offset
        if not leads:
            self.fetched_records += count
            return
        self.appended_records += count
        if len(self._pending) < PENDING_MAX:
            self._pending.append((end_offset, now_ms))

    def committed(self, high_watermark: int, now_ms: int) -> None:
        pending = self._pending
        while pending and pending[0][0] <= high_watermark:
            self.commit_times.add(now_ms - pending.popleft()[1], now_ms)

    def role_is(self, role: Role, now_ms: int) -> None:
        """Told after every event: a campaign begins when this node wants to lead, and ends when somebody does."""
        if not isinstance(role, Leader):
            self._pending.clear()
        if isinstance(role, Prospective | Candidate):
            if self._campaign_ms is None:
                self._campaign_ms = now_ms
                self.elections += 1
        elif self._campaign_ms is not None and role.leader_id is not None:
            self.election_times.add(now_ms - self._campaign_ms, now_ms)
            self._campaign_ms = None

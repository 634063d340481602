"""Fetch sessions that wait for news of a partition: each is told once and then forgotten, so that a session nobody uses costs
one touch."""

from ottla.broker.replication.decisions.fetch_session import SessionPartition
from ottla.broker.replication.purgatory import WakeQueue


class Watches:
    """The sessions that wait for news of one partition. Dictionaries are sets that keep their order."""

    __slots__ = ("_wakes", "commits", "end", "news")

    def __init__(self, wakes: WakeQueue) -> None:
        self._wakes = wakes
        self.end: dict[SessionPartition, None] = {}  # followers, waiting for records
        self.commits: dict[SessionPartition, None] = {}  # consumers, waiting for committed records
        self.news: dict[SessionPartition, None] = {}  # followers to be told the high watermark in passing

    def watch(self, entry: SessionPartition, *, follower: bool) -> None:
        """Tells ``entry``'s session, once, when there is more for it."""
        entry.watches = self
        if follower:
            self.end[entry] = None
            self.news[entry] = None
        else:
            self.commits[entry] = None

    def unwatch(self, entry: SessionPartition) -> None:
        self.end.pop(entry, None)
        self.commits.pop(entry, None)
        self.news.pop(entry, None)

    def touch(self, watches: dict[SessionPartition, None]) -> None:
        """There is more for these: one of this object's dictionaries."""
        for entry in watches:
            session = entry.session
            session.dirty[entry] = None
            if session.parked is not None:
                self._wakes.wake(session)
        watches.clear()

    def touch_all(self) -> None:
        """Everything may be different."""
        self.touch(self.end)
        self.touch(self.commits)
        self.news.clear()

    def tell_in_passing(self) -> None:
        """The high watermark has moved: an answer that goes anyway says so."""
        for entry in self.news:
            entry.session.dirty[entry] = None
        self.news.clear()

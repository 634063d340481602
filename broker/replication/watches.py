"""Fetch sessions that wait for news of a partition: each is told once and then forgotten, so that a session nobody uses costs
one touch."""

from ottla.broker.replication.decisions.fetch_session import SessionPartition
from ottla.broker.replication.purgatory import WakeQueue

_Watching = dict[SessionPartition, None]

_NOBODY: _Watching = {}
"""Stays empty: what most partitions have, of which most never have anybody."""


class Watches:
    """The sessions that wait for news of one partition. Dictionaries are sets that keep their order."""

    __slots__ = ("_wakes", "commits", "end", "news")

    def __init__(self, wakes: WakeQueue) -> None:
        self._wakes = wakes
        self.end = self.commits = self.news = _NOBODY
        """Followers, waiting for records; consumers, waiting for committed records; followers to be told the high watermark in passing."""

    def watch(self, entry: SessionPartition, *, follower: bool) -> None:
        """Tells ``entry``'s session, once, when there is more for it."""
        entry.watches = self
        if follower:
            self.end = _with(self.end, entry)
            self.news = _with(self.news, entry)
        else:
            self.commits = _with(self.commits, entry)

    def unwatch(self, entry: SessionPartition) -> None:
        self.end.pop(entry, None)
        self.commits.pop(entry, None)
        self.news.pop(entry, None)

    def touch(self, watches: _Watching) -> None:
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


def _with(watching: _Watching, entry: SessionPartition) -> _Watching:
    if watching is _NOBODY:
        return {entry: None}
    watching[entry] = None
    return watching

"""The follower's end of an incremental fetch session: what the next request must say (KIP-227, FetchSessionHandler).

Only partitions whose position changed since the last request are named, and those to forget; an idle partition costs
nothing on either side.
"""

from typing import NamedTuple

from ottla.broker.fetch_tuples import FetchPartition
from ottla.broker.replication.decisions.fetch_session import FIRST_EPOCH, NO_SESSION, next_epoch
from ottla.runtime.errors import ErrorCode

Key = tuple[bytes, int]
"""(topic id, partition index)."""

SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)

SHORT_WAIT_MS = 10
"""As long a request may wait at a leader without room for a session, while a partition that it does not name is about to be asked for: no
other can follow it before it is answered."""


class FetchPlan(NamedTuple):
    """What a Fetch request carries."""

    session_id: int
    epoch: int
    partitions: dict[Key, FetchPartition]
    forgotten: list[Key]


class FollowerSession:
    """What the leader was told, and what it must be told next.

    Within a session a request may follow another that is still unanswered: the leader then answers the first at once. So
    answers are matched to requests by number, and speak only of partitions that no later request named.
    """

    __slots__ = (
        "_changed",
        "_epoch",
        "_forgotten",
        "_named_in",
        "_postponed",
        "_refused",
        "_session_id",
        "number",
        "partitions",
    )

    def __init__(self) -> None:
        self.partitions: dict[Key, FetchPartition] = {}
        self.number = 0  # of the last request
        self._changed: dict[Key, None] = {}
        self._forgotten: dict[Key, None] = {}
        self._named_in: dict[Key, int] = {}
        self._postponed: set[Key] = set()
        self._session_id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._refused = False

    @property
    def is_incremental(self) -> bool:
        return self._session_id != NO_SESSION

    def wait_ms(self, longest_ms: int) -> int:
        """How long the leader may keep the next request until there are records.

        Not one that is to open a session: until its answer is here no other request can be sent. But where the leader has no
        room for sessions, not to wait would be to ask for everything without a pause.
        """
        if self.is_incremental:
            return longest_ms
        if not self._refused:
            return 0
        return min(longest_ms, SHORT_WAIT_MS) if self._postponed else longest_ms

    @property
    def has_changes(self) -> bool:
        """Whether the next request would say anything new."""
        return bool(self._changed or self._forgotten)

    def put(self, key: Key, wanted: FetchPartition) -> None:
        """Fetch ``key`` with these from the next request on; one that moved goes to the tail, so that all get their turn."""
        if self.partitions.get(key) != wanted:
            self.partitions.pop(key, None)
            self.partitions[key] = wanted
            self._changed[key] = None
        self._postponed.discard(key)
        # Named again, a partition is replaced in the session; forgetting it too would remove it.
        self._forgotten.pop(key, None)

    def postpone(self, key: Key) -> None:
        """Do not fetch ``key`` until it is put again, which will be soon: once what came of it is stable, or the throttle lets it."""
        self.remove(key)
        self._postponed.add(key)

    def remove(self, key: Key) -> None:
        self._postponed.discard(key)
        if self.partitions.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._named_in.pop(key, None)
            self._forgotten[key] = None

    def next_request(self) -> FetchPlan:
        """The request to send now. Without a session it names everything and asks for one."""
        self.number += 1
        if self.is_incremental:
            named = {key: self.partitions[key] for key in self._changed}
            plan = FetchPlan(self._session_id, self._epoch, named, list(self._forgotten))
            self._epoch = next_epoch(self._epoch)
        else:
            named = dict(self.partitions)
            plan = FetchPlan(NO_SESSION, FIRST_EPOCH, named, [])
        for key in named:
            self._named_in[key] = self.number
        self._changed.clear()
        self._forgotten.clear()
        return plan

    def asked(self, key: Key, number: int) -> FetchPartition | None:
        """What request ``number`` asked of ``key``; None if that is outdated by now."""
        if key in self._changed or self._named_in.get(key, number + 1) > number:
            return None
        return self.partitions.get(key)

    def answered(self, error: int, session_id: int) -> bool:
        """Takes in the head of an answer; False if the session is gone and everything must be named anew."""
        if error in SESSION_ERRORS:
            self.reset()
            return False
        if session_id == NO_SESSION:
            # No room on the leader, or the session became empty: go on naming everything.
            self.reset()
            self._refused = True
        elif not self.is_incremental:
            self._session_id = session_id
            self._epoch = next_epoch(FIRST_EPOCH)
            self._refused = False
        return True

    def reset(self) -> None:
        """The connection broke, or the leader forgot us: the next request starts a session and names everything."""
        self._session_id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._refused = False
        self._forgotten.clear()

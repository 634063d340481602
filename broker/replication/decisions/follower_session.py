"""The follower's end of an incremental fetch session: what the next request must say (KIP-227, FetchSessionHandler).

Only partitions whose position changed since the last request are named, and those to forget; an idle partition costs
nothing on either side. A request and its answer alternate strictly: `next_request`, then `answered` or `lost`.
"""

from typing import NamedTuple

from ottla.broker.replication.decisions.fetch_session import FINAL_EPOCH, FIRST_EPOCH, NO_SESSION, Wanted, next_epoch
from ottla.runtime.errors import ErrorCode

Key = tuple[bytes, int]
"""(topic id, partition index)."""

SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class FetchPlan(NamedTuple):
    """What a Fetch request carries."""

    session_id: int
    epoch: int
    partitions: dict[Key, Wanted]
    forgotten: list[Key]


class FollowerSession:
    """What the leader was told, and what it must be told next."""

    __slots__ = ("_changed", "_epoch", "_forgotten", "_session_id", "partitions")

    def __init__(self) -> None:
        self.partitions: dict[Key, Wanted] = {}
        self._changed: dict[Key, None] = {}
        self._forgotten: dict[Key, None] = {}
        self._session_id = NO_SESSION
        self._epoch = FIRST_EPOCH

    @property
    def is_incremental(self) -> bool:
        return self._session_id != NO_SESSION

    def put(self, key: Key, wanted: Wanted) -> None:
        """Fetch ``key`` with these from the next request on."""
        if self.partitions.get(key) != wanted:
            self.partitions[key] = wanted
            self._changed[key] = None
        # Named again, a partition is replaced in the session; forgetting it too would remove it.
        self._forgotten.pop(key, None)

    def remove(self, key: Key) -> None:
        if self.partitions.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._forgotten[key] = None

    def next_request(self) -> FetchPlan:
        """The request to send now. Without a session it names everything and asks for one."""
        if not self.is_incremental:
            plan = FetchPlan(NO_SESSION, self._epoch, dict(self.partitions), [])
        else:
            changed = {key: self.partitions[key] for key in self._changed}
            plan = FetchPlan(self._session_id, self._epoch, changed, list(self._forgotten))
        self._changed.clear()
        self._forgotten.clear()
        return plan

    def answered(self, error: int, session_id: int) -> bool:
        """Takes in the head of the answer; False if the session is gone and the request must be made anew, in full."""
        if error in SESSION_ERRORS:
            self.reset()
            return False
        if session_id == NO_SESSION:
            # No room on the leader, or the session became empty: go on naming everything.
            self.reset()
        else:
            self._session_id = session_id
            self._epoch = next_epoch(self._epoch)
        return True

    def reset(self) -> None:
        """The connection broke, or the leader forgot us: the next request starts a session."""
        self._session_id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._changed.clear()
        self._forgotten.clear()


__all__ = ["FINAL_EPOCH", "FetchPlan", "FollowerSession"]

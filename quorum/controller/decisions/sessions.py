"""Broker sessions: who was heard from, and how far it has read. Soft state of the active controller, never logged."""

from dataclasses import dataclass
from math import inf

NEVER = -1


@dataclass(slots=True)
class Session:
    """One registered incarnation. ``shutdown_offset``: every active broker must have read up to it before this one may
    leave; -1 unless it is shutting down."""

    epoch: int
    expires_ms: float
    contacts: int = 0
    metadata_offset: int = NEVER
    shutdown_offset: int = NEVER


class BrokerSessions:
    """Sessions by broker id. Times are milliseconds of the controller's monotonic clock."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._sessions: dict[int, Session] = {}

    def contact(self, broker_id: int, epoch: int, metadata_offset: int, now_ms: int) -> None:
        """It was heard from (also when its request is refused or late)."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            session = self._sessions[broker_id] = Session(epoch, 0)
        session.expires_ms = now_ms + self._timeout_ms
        session.contacts += 1
        session.metadata_offset = metadata_offset

    def expect(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """A new controller gives everybody it does not know a whole session's time."""
        if broker_id not in self._sessions:
            self._sessions[broker_id] = Session(epoch, now_ms + self._timeout_ms)

    def gone(self, broker_id: int, epoch: int) -> None:
        """There is proof that the process is dead: its session ends now."""
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == epoch:
            session.expires_ms = -inf

    def postpone(self, by_ms: int) -> None:
        """Lets every session last longer."""
        for session in self._sessions.values():
            session.expires_ms += by_ms

    def remove(self, broker_id: int) -> None:
        self._sessions.pop(broker_id, None)

    def is_alive(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """Whether that incarnation's session has not expired."""
        session = self._sessions.get(broker_id)
        return session is not None and session.epoch == epoch and now_ms < session.expires_ms

    def why_over(self, broker_id: int) -> str:
        """What ended the session, for the cause of its records."""
        session = self._sessions.get(broker_id)
        if session is not None and session.expires_ms == -inf:
            return "its connection ended and it did not come back"
        return f"no heartbeat within {self._timeout_ms} ms"

    def was_heard(self, broker_id: int) -> bool:
        return self.contacts(broker_id) > 0

    def contacts(self, broker_id: int) -> int:
        """How often this incarnation was heard from by this controller: another number than before says that it was since."""
        session = self._sessions.get(broker_id)
        return session.contacts if session is not None else 0

    def metadata_offset(self, broker_id: int) -> int:
        """How far it said it has read; -1 when it has not said."""
        session = self._sessions.get(broker_id)
        return session.metadata_offset if session is not None else NEVER

    def shutdown_offset(self, broker_id: int) -> int:
        session = self._sessions.get(broker_id)
        return session.shutdown_offset if session is not None else NEVER

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        """Remembers the end of the records that took its leaderships away; the first time counts."""
        session = self._sessions.get(broker_id)
        if session is not None and session.shutdown_offset == NEVER:
            session.shutdown_offset = offset

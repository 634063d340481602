"""The last events of a run, put into words only when somebody asks."""

from collections import deque

from ottla.quorum.raft.events import Event, Ticked
from ottla.quorum.raft.state import RaftState
from ottla.testing.raft.words import describe_event

KEPT = 400


class History:
    """Cheap to write: a run that goes well is never read."""

    def __init__(self, kept: int = KEPT) -> None:
        self._entries: deque[tuple[int, str] | tuple[int, int, str, int, int, int, int, Event]] = deque(maxlen=kept)

    def note(self, now_us: int, text: str) -> None:
        self._entries.append((now_us, text))

    def event(self, now_us: int, node: int, state: RaftState, event: Event) -> None:
        if type(event) is not Ticked:
            log, role = state.log, state.role
            name = type(role).__name__
            self._entries.append(
                (now_us, node, name, role.epoch, log.end, log.durable_end, state.high_watermark, event)
            )

    def lines(self) -> list[str]:
        """In order of time, milliseconds first."""
        return [f"{entry[0] / 1000:10.3f} {self._words(*entry[1:])}" for entry in self._entries]

    @staticmethod
    def _words(*entry: object) -> str:
        if len(entry) == 1:
            return str(entry[0])
        node, role, epoch, end, durable_end, high_watermark, event = entry
        told = describe_event(event)  # type: ignore[arg-type]  # the last of a longer entry is an event
        return f"n{node} {role}({epoch}) end={end}/{durable_end} hw={high_watermark} <- {told}"

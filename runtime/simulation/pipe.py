"""One direction of a connection, as the two kernels see it: what is sent, on its way, and not yet read."""

from enum import Enum
from typing import TYPE_CHECKING

from ottla.runtime.simulation.link import Link

if TYPE_CHECKING:
    from ottla.runtime.simulation.loop import SimulationLoop
    from ottla.runtime.simulation.transport import SimulatedTransport

WINDOW_BYTES = 256 * 1024


class End(Enum):
    """How a direction ends."""

    FIN = "fin"  # after everything sent before
    RESET = "reset"  # what was not read is lost


Segment = list[bytes] | End


class Pipe:
    """Keeps the order of what is sent, and at most `WINDOW_BYTES` between the sender's kernel and the reader."""

    def __init__(self, loop: "SimulationLoop", link: Link, back: Link) -> None:
        self._loop = loop
        self._link = link
        self._back = back
        self.source: SimulatedTransport
        self.target: SimulatedTransport
        self.unread_bytes = 0
        self._acknowledgements_held = 0
        self._held: list[tuple[int, Segment]] = []
        self._segments = 0
        self._last_arrival_ns = 0
        self._growing: list[bytes] | None = None  # the segment that writes of this very instant join
        self._growing_ns = -1

    def connect(self, source: "SimulatedTransport", target: "SimulatedTransport") -> None:
        self.source = source
        self.target = target

    def room(self) -> int:
        return WINDOW_BYTES - self.unread_bytes

    # --- the sender's side

    def send(self, data: bytes) -> None:
        self.unread_bytes += len(data)
        now_ns = self._loop.now_ns
        if self._growing is not None and self._growing_ns == now_ns:
            self._growing.append(data)
            return
        segment = [data]
        self._growing, self._growing_ns = segment, now_ns
        self._dispatch(segment)

    def end(self, end: End) -> None:
        self._growing = None
        self._dispatch(end)

    def _dispatch(self, segment: Segment) -> None:
        self._segments += 1
        if self._link.cut:
            self._hold(self._segments, segment)
        elif self.target.process.dead:
            if segment is not End.RESET:  # a reset is never answered: two dead ends would go on for ever
                self._knock()
        else:
            self._schedule(self._segments, segment, self._link.draw_delay_ns())

    def _schedule(self, number: int, segment: Segment, delay_ns: int) -> None:
        loop, target = self._loop, self.target
        arrival_ns = loop.now_ns + delay_ns
        if arrival_ns <= self._last_arrival_ns:
            arrival_ns = self._last_arrival_ns + 1
        self._last_arrival_ns = arrival_ns
        loop.at_ns(arrival_ns, target.process, self._arrive, number, segment, context=target.context)

    def _knock(self) -> None:
        """Sent to a process that is gone: its machine says so, if it is there."""
        if self._link.target.up:
            self.target.out.end(End.RESET)

    def machine_is_back(self) -> None:
        """The target's machine has lost this connection; a retransmission, if there is any, tells the source."""
        if self.unread_bytes:
            self._loop.at_ns(
                self._loop.now_ns + self._link.draw_retransmission_ns(), self._loop.harness, self._knock_unless_cut
            )

    def _knock_unless_cut(self) -> None:
        if self._link.cut:
            self._link.hold(self)
        else:
            self._knock()

    # --- the receiver's side

    def _arrive(self, number: int, segment: Segment) -> None:
        if self._link.cut:
            self._hold(number, segment)
            return
        if segment is self._growing:
            self._growing = None
        if isinstance(segment, End):
            self.target.ended(segment)
        else:
            self.target.arrived(segment[0] if len(segment) == 1 else b"".join(segment))

    def consumed(self, count: int) -> None:
        """The reader took ``count`` bytes: the sender's window opens when it hears of it."""
        if self._back.cut:
            self._acknowledgements_held += count
            self._back.hold(self)
            return
        self.unread_bytes -= count
        if self.source.waits_for_room:
            self.source.waits_for_room = False
            self._loop.at_ns(
                self._loop.now_ns + self._back.draw_delay_ns(),
                self.source.process,
                self.source.pump,
                context=self.source.context,
            )

    # --- a cut link

    def _hold(self, number: int, segment: Segment) -> None:
        self._held.append((number, segment))
        self._link.hold(self)

    def release(self) -> None:
        """One of the two links is whole again."""
        if not self._link.cut:
            # What was on its way when the link was cut is held when it would arrive, after what was sent later.
            held, self._held = sorted(self._held, key=lambda numbered: numbered[0]), []
            delay_ns = self._link.draw_retransmission_ns()
            if self.target.process.dead and (held or self.unread_bytes):
                self.machine_is_back()
                return
            for number, segment in held:
                self._schedule(number, segment, delay_ns)
        if not self._back.cut and self._acknowledgements_held:
            count, self._acknowledgements_held = self._acknowledgements_held, 0
            self.consumed(count)

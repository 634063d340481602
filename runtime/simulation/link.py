"""The cable between two machines, one direction of it."""

from random import Random
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.runtime.simulation.node import SimulatedNode

_RETRANSMISSION_NS = (
    1_000_000,
    400_000_000,
)  # after a cut link is whole again, the sender's timer is anywhere in its backoff
_LOST_SEGMENT_NS = (200_000_000, 400_000_000)  # Linux's smallest retransmission timeout, and a second try


class Holder(Protocol):
    """Something that waits for the link to be whole again."""

    def release(self) -> None: ...


class Link:
    """From ``source`` to ``target``. TCP hides loss behind delay, so a lossy link is a slow one and a cut link holds.

    ``delay_ns``: the least and the most a segment takes. ``loss``: the share of segments that must be sent again.
    """

    def __init__(
        self, source: "SimulatedNode", target: "SimulatedNode", rng: Random, delay_ns: tuple[int, int]
    ) -> None:
        self.source = source
        self.target = target
        self.delay_ns = delay_ns
        self.loss = 0.0
        self.cut = False
        self._cuts = 0
        self._rng = rng
        self._holding: dict[Holder, None] = {}

    def draw_delay_ns(self) -> int:
        low, high = self.delay_ns
        delay_ns = low + int(self._rng.random() * (high - low))
        if self.loss and self._rng.random() < self.loss:
            delay_ns += self._rng.randint(*_LOST_SEGMENT_NS)
        return delay_ns

    def draw_retransmission_ns(self) -> int:
        return self._rng.randint(*_RETRANSMISSION_NS)

    def hold(self, holder: Holder) -> None:
        """``holder.release()`` is called when the link is mended. Once, however often it is held."""
        self._holding[holder] = None

    def sever(self) -> None:
        """Nothing gets through until it was mended as often as it was severed."""
        self._cuts += 1
        self.cut = True

    def mend(self) -> None:
        self._cuts = max(0, self._cuts - 1)
        if self._cuts:
            return
        self.cut = False
        holding, self._holding = self._holding, {}
        for holder in holding:
            holder.release()

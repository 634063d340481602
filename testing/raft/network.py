"""The weather, and who reaches whom."""

from collections.abc import Iterable
from random import Random

import msgspec

from ottla.testing.raft.faults import FaultEvent, FaultKind


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """How bad the network and the disks are; probabilities in [0, 1], times in microseconds. Messages overtake one another
    as their latencies fall."""

    latency_us: tuple[int, int] = (100, 1500)
    straggle: float = 0.02  # a message takes straggle_us
    straggle_us: tuple[int, int] = (5_000, 300_000)
    loss: float = 0.01
    duplication: float = 0.02
    sync_us: tuple[int, int] = (50, 2000)
    slow_sync_us: tuple[int, int] = (20_000, 800_000)
    clock_rate: tuple[float, float] = (0.9, 1.1)
    request_timeout_ms: int = 2000


FAIR = Weather(straggle=0.0, loss=0.0, duplication=0.0, clock_rate=(1.0, 1.0))


class Network:
    """Cuts are one way; a cut link loses what is under way on it too."""

    def __init__(self, rng: Random, weather: Weather, nodes: Iterable[int]) -> None:
        self.rng = rng
        self.weather = weather
        self._nodes = tuple(nodes)
        self._cuts: list[tuple[int, frozenset[tuple[int, int]]]] = []
        self._lost: frozenset[tuple[int, int]] = frozenset()

    def latency_us(self) -> int:
        weather, rng = self.weather, self.rng
        low, high = weather.straggle_us if rng.random() < weather.straggle else weather.latency_us
        return low + int(rng.random() * (high - low))

    def copies(self) -> int:
        """0: the message is lost. 2: it comes twice."""
        if self.rng.random() < self.weather.loss:
            return 0
        return 2 if self.rng.random() < self.weather.duplication else 1

    def passes(self, source: int, target: int) -> bool:
        return (source, target) not in self._lost

    def cut(self, fault: FaultEvent) -> None:
        """ISOLATE, MUTE, DEAFEN or CUT, until the node is healed."""
        outward = {(fault.node, other) for other in self._nodes if other != fault.node}
        inward = {(other, node) for node, other in outward}
        links = {
            FaultKind.ISOLATE: outward | inward,
            FaultKind.MUTE: outward,
            FaultKind.DEAFEN: inward,
            FaultKind.CUT: {(fault.node, fault.other)},
        }[fault.kind]
        self._cuts.append((fault.node, frozenset(links)))
        self._count()

    def heal(self, node: int = 0) -> None:
        """What was cut for ``node``; 0: everything."""
        self._cuts = [cut for cut in self._cuts if node not in (0, cut[0])]
        self._count()

    def _count(self) -> None:
        self._lost = frozenset().union(*(links for _, links in self._cuts))

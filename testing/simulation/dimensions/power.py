"""The power of several machines is cut in the same moment.

With `ottla.flush.before.ack` nothing that was acknowledged is lost, whoever goes, again and again, while everything else happens. Without
it, once all else is checked, all go while there are producers: what none of those that may lead has on stable storage may be gone then,
from the leader's end on, and nothing else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

from ottla.runtime.simulation.faults import KINDS, Fault
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.testing.simulation.dimension import Dimension, beside
from ottla.testing.simulation.plan import FaultKind
from ottla.testing.simulation.roles import leader_of
from ottla.testing.simulation.wagering import WageringProducer
from ottla.testing.simulation.workload import History, SimulatedProducer, check_history, read_partition

BLACKOUT = "blackout"
CANDLES = "candles"
BACK_S = 20.0
CALM_ONCE_IN = 3


class Power(Dimension):
    name = "power"
    one_in = 6

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._is_promised = rng.randrange(3) > 0
        self.calm = self._is_promised and not beside(rng).randrange(CALM_ONCE_IN)
        self.settings: Mapping[str, str] = {"ottla.flush.before.ack": "true"} if self._is_promised else {}
        self.cuts = self.lost = 0

    def faults(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        if self.calm:
            yield from self._leaders_last(nodes, until_ms)
            return
        rng, time_ms = self.rng, self.rng.randrange(200, 1_500)
        for _ in range(rng.choice((1, 2, 3)) if self._is_promised else 0):
            who = rng.sample(list(nodes), rng.choice((2, len(nodes), len(nodes))))
            yield Fault(time_ms, BLACKOUT, tuple(who), rng.randrange(20, 300))
            time_ms += rng.randrange(600, 2_000)

    def _leaders_last(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        """All go, and a leader whose disk was slow comes back last: who had not stopped in order leaves the ISR while somebody else is in
        it, so that the leader is the last in sync, whatever it has."""
        rng = self.rng
        for begin_ms in (650, until_ms // 2):
            leader = leader_of("flights", rng.randrange(self.length.partitions))
            at_ms = begin_ms + rng.randrange(600)
            yield Fault(at_ms - 600, "slow-disk", (leader, 300), 1_200)
            yield Fault(at_ms, "kill", (leader,), rng.randrange(700, 1_200))
            yield Fault(at_ms + 1, BLACKOUT, tuple(nodes), rng.randrange(20, 100))

    def kinds(self) -> Mapping[str, FaultKind]:
        return {BLACKOUT: FaultKind(self._cut, stops=True)}

    def _cut(self, loop: SimulationLoop, *names: str) -> Callable[[], None]:
        self._note_chosen(names)
        ends = [KINDS["crash"](loop, name) for name in names]
        self.cuts += 1

        def end() -> None:
            for each in ends:
                each()

        return end

    def _note_chosen(self, names: Sequence[str]) -> None:
        """What was never stable goes for good with an unclean election, also where it goes a moment later."""
        losses = self.run.invariants.partitions.losses
        for topic in self.run.invariants.metadata.topics_by_id.values():
            for index, view in topic.partitions.items():
                if losses.is_alone_since((topic.id, index), view) and f"node-{view.isr[0]}" in names:
                    held = self.run.partition(view.isr[0], topic.name, index)
                    if held is not None:
                        losses.power_was_cut((topic.id, index), {view.isr[0]: held.log.recovery_point})

    # --- without the setting

    async def epilogue(self) -> None:
        if self._is_promised or not self.run.invariants.violations.measures:
            return
        run = self.run
        await run.create_topic(CANDLES, 1, retention_ms="-1")
        for node in run.cluster.nodes.values():
            node.platter.sync_everything()
        producer = WageringProducer(run.client(), History(CANDLES, 0), 0.01)
        producer.on_acknowledged = run.note_acknowledged
        run.employ(producer.run())
        await run.until(self._acknowledged(producer, self.rng.randrange(5, 60)), "records are taken", BACK_S)
        self._cut_all()
        await run.until(run.all_in_sync, "every replica is in sync after a power cut of all", BACK_S)
        await run.until(
            self._acknowledged(producer, len(producer.history.acknowledged) + 3), "records are taken again", BACK_S
        )
        run.dismiss()
        found = await read_partition(run.client(), CANDLES, 0)
        self.lost = check_history(producer.history, found, run.invariants.committed(CANDLES, 0).may_lack)

    @staticmethod
    def _acknowledged(producer: SimulatedProducer, count: int) -> Callable[[], str]:
        return lambda: "" if len(producer.history.acknowledged) >= count else "more records"

    def _cut_all(self) -> None:
        losses, metadata = self.run.invariants.partitions.losses, self.run.invariants.metadata
        for topic in metadata.topics_by_id.values():
            for index, view in topic.partitions.items():
                held = {number: self.run.partition(number, topic.name, index) for number in view.isr}
                stable = {number: each.log.recovery_point for number, each in held.items() if each is not None}
                losses.power_was_cut((topic.id, index), stable)
        self._cut(self.run.loop, *(node.name for node in self.run.cluster.nodes.values()))()

    def counts(self) -> Mapping[str, int]:
        return {"power cuts of several": self.cuts, "records lost with all power": self.lost}


DIMENSION = Power

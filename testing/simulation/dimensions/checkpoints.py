"""A file that only saves work is lost: a node is killed, and has one of its checkpoints no more, or an empty one, or half of one, when it
starts again, as a repair of the file system may leave it.

Without recovery points all of a log is recovered, and without high watermarks a leader finds its own; without the cleaner's offsets a
log is cleaned from its start on. Nothing may be lost, and each run loses one of the two that tell a cleaning's gaps from what a power cut
took (`log.compaction.offsets`): with both a start drops what follows and fetches it anew.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.log.directories.checkpoints import CLEANER_OFFSETS, CLEANING_OFFSETS, HIGH_WATERMARKS, RECOVERY_POINTS
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.faults import KINDS, Fault
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.testing.simulation.cluster import DATA
from ottla.testing.simulation.dimension import Dimension, beside
from ottla.testing.simulation.plan import FaultKind

LOST = "checkpoint-is-lost"
FILES = (RECOVERY_POINTS, HIGH_WATERMARKS)
OF_GAPS = (CLEANER_OFFSETS, CLEANING_OFFSETS)
GONE, EMPTY, TORN = STATES = "gone", "empty", "torn"


class Checkpoints(Dimension):
    name = "checkpoints"
    one_in = 6
    lost = 0

    def faults(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        rng = self.rng
        files = (*FILES, beside(rng).choice(OF_GAPS))
        for _ in range(rng.randint(1, 3)):
            duration_ms = rng.randrange(50, 900)
            node, file, how = rng.choice(nodes), rng.choice(files), rng.choice(STATES)
            yield Fault(rng.randrange(until_ms // 4, until_ms - duration_ms), LOST, (node, file, how), duration_ms)
        if rng.randrange(2):
            yield from self._of_the_last(nodes, until_ms)

    def _of_the_last(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        """Who is alone in sync has nobody to fetch from what a start dropped."""
        *others, last = self.rng.sample(nodes, len(nodes))
        away_ms = until_ms // 2
        at_ms = self.rng.randrange(until_ms // 4, until_ms - away_ms)
        for other in others:
            yield Fault(at_ms, "kill", (other,), away_ms)
        lost = (last, self.rng.choice((RECOVERY_POINTS, HIGH_WATERMARKS)), self.rng.choice(STATES))
        yield Fault(at_ms + away_ms * 4 // 5, LOST, lost, away_ms // 10)

    def kinds(self) -> Mapping[str, FaultKind]:
        return {LOST: FaultKind(self._lose, stops=True)}

    def _lose(self, loop: SimulationLoop, name: str, file: str, how: str) -> Callable[[], None]:
        """kill -9, and a restart at the end without that file."""
        end = KINDS["kill"](loop, name)
        platter, path = loop.nodes[name].platter, f"{DATA}/{file}"
        disk = SimulatedDisk(platter)
        with platter.sound():  # no operation of the node's
            if disk.exists(path):
                self.lost += 1
                content = disk.read_bytes(path)
                disk.unlink(path)
                if how != GONE:
                    damaged = disk.open(path, create=True)
                    if how == TORN:
                        damaged.write_at([content[: len(content) // 2]], 0)
                    damaged.sync()
                    damaged.close()
                disk.sync_directory(DATA)
        return end

    def counts(self) -> Mapping[str, int]:
        return {"checkpoints lost": self.lost}


DIMENSION = Checkpoints

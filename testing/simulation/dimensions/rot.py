"""A disk that lies: bits of a node's segments and indexes flip while it is down.

That happens while all nodes are up and in sync, and as with power cuts nobody else is stopped until no ISR names the machine
for what it had: two others have what was there.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random

from ottla.log.batch import LOG_OVERHEAD, MAGIC_AT, read_header
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.faults import KINDS, Fault
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.platter import Platter
from ottla.testing.simulation.cluster import DATA
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.plan import FaultKind
from ottla.testing.simulation.soundness import is_sound

ROT = "rot"
SUFFIXES = (".log", ".index", ".timeindex")


class Rot(Dimension):
    name = ROT
    settings: Mapping[str, str] = {
        "ottla.log.scrub.interval.ms": "500",
        "ottla.log.scrub.bytes.per.second": "1000000000",
    }

    def faults(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        return [draw_rot(self.rng, nodes, until_ms)]

    def kinds(self) -> Mapping[str, FaultKind]:
        return {ROT: FaultKind(rot, stops=True, loses=True)}

    async def prepare(self) -> None:
        self.run.invariants.partitions.bits_flip = True

    def missing(self) -> str:
        for number, server in self.run.servers.items():
            for (topic, index), log in server.storage.manager.logs.items():
                if not is_sound(log):
                    return f"{topic}-{index} on {number} is damaged"
        return ""


DIMENSION = Rot


def draw_rot(rng: Random, nodes: Sequence[str], until_ms: int) -> Fault:
    """A bit of some log of some node, once there are logs."""
    begin_ms = rng.randrange(until_ms // 4, until_ms - 1_000)
    return Fault(begin_ms, ROT, (rng.choice(nodes), rng.random(), rng.randrange(8)), rng.randrange(50, 900))


def rot(loop: SimulationLoop, name: str, share: float, bit: int) -> Callable[[], None]:
    """kill -9; the byte that lies at ``share`` of all that the node's partitions hold gets another bit; a restart at the end."""
    end = KINDS["kill"](loop, name)
    platter = loop.nodes[name].platter
    with platter.sound():
        sizes = list(_files(platter))
        at = int(share * sum(size for _, size in sizes))
        for path, size in sizes:
            if at < size:
                platter.flip(path, _with_a_witness(SimulatedDisk(platter).read_bytes(path), path, at), bit)
                break
            at -= size
    return end


def _files(platter: Platter) -> Iterator[tuple[str, int]]:
    disk = SimulatedDisk(platter)
    for partition in disk.list_directory(DATA):
        path = f"{DATA}/{partition}"
        if disk.is_directory(path) and partition.rpartition("-")[2].isdecimal() and not partition.startswith("__"):
            for name in disk.list_directory(path):
                if name.endswith(SUFFIXES):
                    yield f"{path}/{name}", len(disk.read_bytes(f"{path}/{name}"))


def _with_a_witness(data: bytes, path: str, position: int) -> int:
    """``position``, or where the CRC or the magic begins: what a batch has before them nothing tells of in a compacted log."""
    at = 0
    while path.endswith(".log") and at + LOG_OVERHEAD < len(data):
        following = at + read_header(data, at).size_bytes
        if position < following:
            return max(position, at + MAGIC_AT)
        at = following
    return position

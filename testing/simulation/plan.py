"""Which faults a run has, and which of them may be applied at a given moment.

Kafka's design, and so ours, does not sync records before acknowledging them: replication is what makes them durable. A power
cut takes the unsynced tail of its machine with it; when every in-sync replica has its power cut, what was acknowledged may
be lost, as in Kafka. So power is cut only while all nodes are up, in sync and able to hear each other, and no leader asks to take one
out of an ISR; and until that machine left the ISRs that it was in (or is back in all of them), nobody else is stopped or parted
from the others: who is alone in sync then would be the one that lost its tail. Bits rot under the same condition: two others have
what was there. What finds no such moment at its time waits for one. kill -9 loses nothing that was written, so kills overlap freely.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple

from ottla.broker.replication.decisions.isr import PendingShrink
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import NO_LEADER
from ottla.runtime.simulation.faults import KINDS, Begin, Fault, generate, last_end_ms
from ottla.testing.simulation.cluster import SimulatedCluster
from ottla.testing.simulation.roles import CONTROLLER


class FaultKind(NamedTuple):
    """How a fault begins and what it may take: ``stops`` a node; ``parts`` nodes that run, long enough to cost them their places in ISRs;
    ``loses`` part of what its disk had for sure, or, as ``empties`` says, all of it, which its broker tells when it is back, so that whoever
    else is in sync is enough. ``may`` is asked, with the node's name, whether it may begin now."""

    begin: Begin
    stops: bool = False
    loses: bool = False
    empties: bool = False
    parts: bool = False
    may: Callable[[str], bool] = lambda _: True


WAIT_NS = 30_000_000
"""What takes from a disk what it had is rarely survived at its own time. It comes at the first after that which is found so."""
HEARD_NS = 1_000_000_000
"""By then a node that was parted from others is heard of by the controller, also over a slow link."""
CLIENTS = "harness"
"""Where the clients are."""
POWER_CUTS = ("crash", "crash-in-disk-operation")
STOPS = ("kill", "wipe", *POWER_CUTS)
PARTINGS = ("pause", "isolate", "cut")
USUAL = {
    name: FaultKind(begin, name in STOPS, name in POWER_CUTS, parts=name in PARTINGS) for name, begin in KINDS.items()
}
# Stops and cuts are what leads change hands by; the rest makes their timing odd.
WEIGHTED_KINDS = (
    *("kill", "kill", "kill", "crash", "crash", "crash-in-disk-operation", "pause", "pause"),
    *("isolate", "isolate", "isolate", "cut", "cut", "reset", "slow-link", "lossy-link"),
    *("clock-rate", "clock-jump", "slow-disk"),
)


def draw(rng: Random, nodes: Sequence[str], until_ms: int, most: int) -> list[Fault]:
    """Two faults or more, all over by ``until_ms``."""
    return generate(rng, nodes, count=rng.randint(2, most), until_ms=until_ms, kinds=WEIGHTED_KINDS)


class _Suspect(NamedTuple):
    """Whose power was cut, and as what it ran then."""

    node: int
    broker_epoch: int
    life: int


class Faults:
    """Applies faults at their times, except stops that no replication could survive."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        metadata: Callable[[], MetadataImage],
        on_wipe: Callable[[int], None],
        kinds: Mapping[str, FaultKind],
        resolve: Callable[[str], str] = str,
    ) -> None:
        """``metadata`` answers the newest committed image; ``on_wipe`` is told whose metadata is gone. ``kinds``: besides the
        usual ones. ``resolve`` says who is meant by a name (roles.py); "": nobody."""
        self._cluster = cluster
        self._kinds = {**USUAL, **kinds}
        self._resolve = resolve
        self._metadata = metadata
        self._on_wipe = on_wipe
        self._loop = cluster.loop
        self._suspect: _Suspect | None = None
        self._armed: int | None = None  # will lose power in a disk operation
        self._parted = Counter[str]()
        """By how many faults each node is parted from others now."""
        self._parted_ns: dict[str, int] = {}
        """When the last of them ended, by node."""
        self._over_ns = 0
        """When the last fault is to be over."""
        self._ends = 0
        """And how many that end one later, or when they are over: it runs until then."""

    def schedule(self, faults: Sequence[Fault]) -> None:
        """Each at its time from now, or soon after."""
        self._over_ns = self._loop.now_ns + last_end_ms(faults) * 1_000_000
        for fault in faults:
            self._loop.at_ns(self._loop.now_ns + fault.time_ms * 1_000_000, self._loop.harness, self._begin, fault)

    def _begin(self, drawn: Fault) -> None:
        args = tuple(self._resolve(each) if isinstance(each, str) else each for each in drawn.args)
        fault = replace(drawn, args=args)
        if "" in args or not self._may_begin(fault):
            later_ns = self._loop.now_ns + WAIT_NS
            if self._kinds[fault.kind].loses and later_ns + fault.duration_ms * 1_000_000 <= self._over_ns:
                self._loop.at_ns(later_ns, self._loop.harness, self._begin, drawn)
                return
            self._loop.trace.event(self._loop.now_ns, "faults", f"skip-{fault.kind}", *fault.args)
            return
        self._loop.trace.event(self._loop.now_ns, "faults", fault.kind, *fault.args)
        if fault.kind == "wipe":
            self._on_wipe(int(str(fault.args[0]).removeprefix("node-")))
        self._parted.update(self._parts(fault))
        self._ends += self._ends_later(fault)
        end = self._kinds[fault.kind].begin(self._loop, *fault.args)
        self._loop.at_ns(self._loop.now_ns + fault.duration_ms * 1_000_000, self._loop.harness, self._end, fault, end)

    def _end(self, fault: Fault, end: Callable[[], None]) -> None:
        self._loop.trace.event(self._loop.now_ns, "faults", f"end-{fault.kind}", *fault.args)
        if fault.kind == "crash-in-disk-operation":
            self._disarm()
        parts = self._parts(fault)
        self._parted.subtract(parts)
        self._parted_ns.update(dict.fromkeys(parts, self._loop.now_ns))
        self._ends -= self._ends_later(fault)
        end()

    def _may_begin(self, fault: Fault) -> bool:
        if self._parts(fault) and not self._is_cleared():
            return False
        kind = self._kinds[fault.kind]
        return kind.may(str(fault.args[0])) and (not kind.stops or self._may_stop(fault))

    def _ends_later(self, fault: Fault) -> bool:
        return self._kinds[fault.kind].stops and fault.kind not in STOPS

    def _parts(self, fault: Fault) -> Sequence[str]:
        """The nodes that it parts from others; from its clients alone is none."""
        if not self._kinds[fault.kind].parts or CLIENTS in fault.args:
            return ()
        return [each for each in map(str, fault.args) if each.startswith("node-")]

    def _may_stop(self, fault: Fault) -> bool:
        node = int(str(fault.args[0]).removeprefix("node-"))
        if not self._is_cleared():
            return False
        self._suspect = None
        kind = self._kinds[fault.kind]
        if not kind.loses:
            return True
        if self._ends or not (
            self._others_have_all(node) if kind.empties else not self._parted.total() and self._all_in_sync()
        ):
            return False
        self._suspect = _Suspect(node, self._metadata().brokers[node].epoch, self._cluster.lives[node])
        self._armed = node if fault.kind == "crash-in-disk-operation" else None
        return True

    def _is_heard(self, name: str) -> bool:
        """Whether that node is parted from nobody, and has not been for so long that others have heard of it since. Else a session may end,
        of one who has everything, before it is noticed that the machine that had everything too is gone."""
        return not self._parted[name] and self._loop.now_ns - self._parted_ns.get(name, -HEARD_NS) >= HEARD_NS

    def metadata_changed(self) -> None:
        """Somebody fell out of an ISR: a machine that waits for its power cut may be the last that has everything."""
        if self._armed is not None and not self._all_in_sync():
            self._disarm()

    def _disarm(self) -> None:
        if self._armed is not None:
            node, self._armed = self._cluster.nodes[self._armed], None
            if node.up:
                node.platter.cancel_crash()
                if self._suspect is not None and self._suspect.life == self._cluster.lives[self._suspect.node]:
                    self._suspect = None  # it did not come to it

    def _all_in_sync(self) -> bool:
        """Every node runs, is registered in this life, in every ISR and on its way out of none: the power of one may be cut."""
        image = self._metadata()
        views = (view for topic in image.topics_by_id.values() for view in topic.partitions.values())
        return (
            all(map(self._is_well, self._cluster.nodes))
            and all(len(view.isr) == len(view.replicas) for view in views)
            and not any(map(self._is_shrinking_isrs, self._cluster.nodes))
        )

    def _is_shrinking_isrs(self, node: int) -> bool:
        """Whether it leads and asks the controller to take somebody out: what is on its way, or appended and not committed, may still
        be taken when its power is gone, and leaves it alone in sync."""
        server = self._cluster.running(node)
        broker = server.broker if server is not None else None
        leaders = (each.leader for each in broker.replicas.partitions.values()) if broker is not None else ()
        return any(each is not None and isinstance(each.isr, PendingShrink) for each in leaders)

    def _others_have_all(self, node: int) -> bool:
        """Of each partition somebody else is in sync, runs, hears the others, as the controller does, and is on its way out of no ISR; nor
        did a leader that is gone ask for that: a controller that was paused may take it yet."""
        image = self._metadata()
        if node not in image.brokers or any(map(self._is_shrinking_isrs, self._cluster.nodes)):
            return False
        if not self._is_heard(self._resolve(CONTROLLER)):
            return False
        views = (view for topic in image.topics_by_id.values() for view in topic.partitions.values())
        return all(
            any(each != node and self._is_well(each) and self._is_heard(f"node-{each}") for each in view.isr)
            and (view.leader == NO_LEADER or self._is_well(view.leader))
            for view in views
            if node in view.replicas
        )

    def _is_well(self, node: int) -> bool:
        server, broker = self._cluster.running(node), self._metadata().brokers.get(node)
        process = self._cluster.nodes[node].process
        if server is None or process is None or process.paused or broker is None:
            return False  # a leader that wakes may have the others' ISR membership ended in its first step
        if self._cluster.is_stopping(node):
            return False  # killed half-way through, it is no eligible leader any more (KIP-966: an unclean start)
        return server.ready.is_set() and not broker.fenced

    def _is_cleared(self) -> bool:
        """Whether nobody trusts the suspect for what it had before: it left all ISRs and is fenced, or has registered anew. Unfenced it may be
        let in again, by a leader that heard of it a moment ago and a controller that does not know how far the one before had taken it out."""
        if self._suspect is None:
            return True
        node, epoch, _ = self._suspect
        image = self._metadata()
        broker = image.brokers.get(node)  # it may have been unregistered
        if broker is None or broker.epoch != epoch:
            return True
        if not broker.fenced:
            return False
        views = (view for topic in image.topics_by_id.values() for view in topic.partitions.values())
        return not any(node in (*view.isr, *view.elr) for view in views)

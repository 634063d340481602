"""Operations of a node's disk that fail once, for want of room or descriptors or because the disk is broken; a disk that is full
for a while; a process without descriptors for a while; nodes that are stopped as they should be.

A node that ends for it says why, and is started again, as an operator does who has made room.
"""

import errno
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from random import Random

from ottla.broker.process import FAILURES
from ottla.log.directories.roots import LogDirectoryError
from ottla.runtime.errors import KafkaError
from ottla.runtime.settings.definitions import SettingError
from ottla.runtime.simulation.faults import KINDS, Fault, repair
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.platter import FAILS_WITH
from ottla.testing.simulation.cluster import DATA
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.plan import FaultKind
from ottla.testing.simulation.roles import CONTROLLER, follower_of, leader_of

FAILING, NO_DESCRIPTORS, NO_ROOM, STOP = "failing-operations", "no-descriptors", "no-room", "stop"
WEIGHTED_KINDS = (FAILING, FAILING, FAILING, FAILING, NO_DESCRIPTORS, NO_ROOM, STOP)
ERRORS = ("ENOSPC", "ENOSPC", "EMFILE", "EMFILE", "EIO")
PLACES = (("flights", 0), ("flights", 1), ("flights", 2))
SAID_NS = 1_000_000
"""So long a program that ends takes to say so: a start that met the fault in its last moment has yet to."""
CANNOT_GO_ON = ("the quorum node cannot go on", "the metadata log cannot be synced")
EXPECTED = (OSError, KafkaError, SettingError, LogDirectoryError, *FAILURES)


class Operations(Dimension):
    name = "operations"
    one_in = 3

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.ended = 0
        self.stopped = 0
        self.failed = 0

    def faults(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        rng = self.rng
        for _ in range(rng.randint(1, 4)):
            kind = rng.choice(WEIGHTED_KINDS)
            duration_ms = rng.randint(100, 2000)
            who = rng.choice(
                (*nodes, CONTROLLER, *(office(*place) for office in (leader_of, follower_of) for place in PLACES))
            )
            yield Fault(rng.randint(0, until_ms - duration_ms), kind, (who, *_details(rng, kind)), duration_ms)

    def kinds(self) -> Mapping[str, FaultKind]:
        self.run.invariants.forgiving.append(_forgives)
        # Each may end the node, so nobody else may be stopped while a power cut is being got over.
        return {
            FAILING: FaultKind(self._failing, stops=True),
            NO_DESCRIPTORS: FaultKind(self._no_descriptors, stops=True),
            NO_ROOM: FaultKind(self._no_room, stops=True),
            STOP: FaultKind(self._stop, stops=True),
        }

    def _failing(
        self, loop: SimulationLoop, name: str, error: str, number: int, count: int, path: str
    ) -> Callable[[], None]:
        """The next operations but ``number`` of those that can fail so fail, ``count`` of them."""
        platter, number_of = loop.nodes[name].platter, getattr(errno, error)
        singles = [platter.fail_once(number, number_of, FAILS_WITH[number_of], path, written=0.5) for _ in range(count)]

        def mend() -> None:
            self.failed += sum(single() for single in singles)

        return self._until_repaired(loop, name, mend)

    def _no_descriptors(self, loop: SimulationLoop, name: str) -> Callable[[], None]:
        mend = loop.nodes[name].platter.fail("/", errno.EMFILE, FAILS_WITH[errno.EMFILE])
        return self._until_repaired(loop, name, mend)

    def _no_room(self, loop: SimulationLoop, name: str, left_bytes: int) -> Callable[[], None]:
        return self._until_repaired(loop, name, KINDS["full-disk"](loop, name, left_bytes))

    def _stop(self, loop: SimulationLoop, name: str) -> Callable[[], None]:
        """Gracefully, and a start at the end; kill -9 for one that is not through with stopping by then."""
        self.stopped += self.run.cluster.stop(loop.nodes[name])
        return lambda: repair(loop, name, loop.nodes[name].kill)

    def _until_repaired(self, loop: SimulationLoop, name: str, mend: Callable[[], object]) -> Callable[[], None]:
        def take_ends() -> bool:
            ended = [each for each in loop.unhandled if _is_end_of(each, name)]
            self.ended += len(ended)
            loop.unhandled[:] = [each for each in loop.unhandled if each not in ended]
            return bool(ended)

        def end() -> None:
            take_ends()
            repair(loop, name, lambda: None)
            loop.at_ns(loop.now_ns + SAID_NS, loop.harness, end_again)

        def end_again() -> None:
            if take_ends():
                repair(loop, name, lambda: None)

        with ExitStack() as both:
            both.callback(end)
            both.callback(mend)
            return both.pop_all().close

    def counts(self) -> Mapping[str, int]:
        return {
            "failed operations": self.failed,
            "ended for their disks": self.ended,
            "stopped": self.stopped,
        }


DIMENSION = Operations


def _details(rng: Random, kind: str) -> tuple[str | int, ...]:
    if kind == FAILING:
        error, where = rng.choice(ERRORS), rng.choice((DATA, f"{DATA}/flights-"))
        return error, int(rng.expovariate(1 / 20)) + 1, rng.choice((1, 1, 1, 3)), where
    return (rng.choice((0, 300, 3000)),) if kind == NO_ROOM else ()


def _forgives(message: str, error: BaseException) -> bool:
    """A quorum node whose disk failed says so with all it knows."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return message.startswith(CANNOT_GO_ON) and isinstance(cause, OSError) and cause.errno in FAILS_WITH


def _is_end_of(failure: Mapping[str, object], name: str) -> bool:
    """Whether the node's program ended with a line that says why; its quorum node says it first."""
    message = str(failure["message"])
    of_node = message == f"{name} failed" or (failure["node"] == name and message.startswith(CANNOT_GO_ON))
    return of_node and isinstance(failure.get("exception"), EXPECTED)

"""Faults are data: a run is a seed and a list of faults, so that it can be written down, replayed and made smaller."""

import json
import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from random import Random
from typing import Any, TypeVar

from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.node import SimulatedNode

T = TypeVar("T")
AnyFault = TypeVar("AnyFault")
Argument = str | int | float


@dataclass(frozen=True, slots=True)
class Fault:
    """Something goes wrong ``time_ms`` after the start of the run, and is right again ``duration_ms`` later.

    Each fault ends by itself, so that any of them can be left out without changing what the others mean. ``args``
    begins with the names of the nodes concerned; see `KINDS` for each kind's.
    """

    time_ms: int
    kind: str
    args: tuple[Argument, ...]
    duration_ms: int = 0

    def __str__(self) -> str:
        return f"{self.time_ms:>8} ms  {self.kind} {' '.join(map(str, self.args))} for {self.duration_ms} ms"


Begin = Callable[..., Callable[[], None]]


def _override(loop: SimulationLoop, what: str, apply: Callable[[T], object], usual: T, value: T) -> Callable[[], None]:
    """``apply(value)`` now. At the end, when faults overlap, what the latest of the others wants; else ``usual``."""
    wanted = loop.overrides.setdefault(what, [[usual]])
    mine = [value]
    wanted.append(mine)
    apply(value)

    def end() -> None:
        wanted[:] = [other for other in wanted if other is not mine]
        latest: Any = wanted[-1]
        if len(wanted) == 1:
            loop.overrides.pop(what, None)
        apply(latest[0])

    return end


def _down(loop: SimulationLoop, node: SimulatedNode) -> Callable[[], None]:
    return _override(loop, f"down {node.name}", lambda down: None if down else _start_again(node), False, True)


def _start_again(node: SimulatedNode) -> None:
    if node.process is None:
        node.restart()


def _kill(loop: SimulationLoop, name: str) -> Callable[[], None]:
    """kill -9, and a restart at the end."""
    loop.nodes[name].kill()
    return _down(loop, loop.nodes[name])


def _wipe(loop: SimulationLoop, name: str, path: str) -> Callable[[], None]:
    """kill -9, and a restart at the end without the directory ``path``."""
    node = loop.nodes[name]
    node.kill()
    disk = SimulatedDisk(node.platter)
    with node.platter.sound():  # no operation of the node's, whatever its own would meet
        if disk.exists(path):
            disk.remove_tree(path)
            disk.sync_directory(posixpath.dirname(path))  # or a power cut brings a part of it back
    return _down(loop, node)


def _crash(loop: SimulationLoop, name: str) -> Callable[[], None]:
    """A power cut, and a restart at the end."""
    loop.nodes[name].crash()
    return _down(loop, loop.nodes[name])


def _crash_in_disk_operation(loop: SimulationLoop, name: str, number: int) -> Callable[[], None]:
    """A power cut in the middle of the ``number``-th change to the disk, and a restart at the end."""
    node = loop.nodes[name]
    node.crash_at_disk_operation(number)
    start_again = _down(loop, node)

    def end() -> None:
        node.platter.cancel_crash()
        start_again()

    return end


def _pause(loop: SimulationLoop, name: str) -> Callable[[], None]:
    """SIGSTOP and SIGCONT."""
    node = loop.nodes[name]
    return _override(loop, f"pause {name}", lambda paused: node.pause() if paused else node.resume(), False, True)


def _cut(loop: SimulationLoop, source: str, target: str) -> Callable[[], None]:
    """One direction of the link between two nodes."""
    loop.network.cut(loop.nodes[source], loop.nodes[target])
    return partial(loop.network.mend, loop.nodes[source], loop.nodes[target])


def _isolate(loop: SimulationLoop, *names: str) -> Callable[[], None]:
    """The named nodes on one side, all others on the other, in both directions."""
    inside = [loop.nodes[name] for name in names]
    outside = [node for node in loop.nodes.values() if node.name not in names]
    loop.network.cut_between(inside, outside)

    def mend() -> None:
        for one in inside:
            for other in outside:
                loop.network.mend(one, other)
                loop.network.mend(other, one)

    return mend


def _slow_link(loop: SimulationLoop, source: str, target: str, least_ms: float, most_ms: float) -> Callable[[], None]:
    """One direction takes from ``least_ms`` to ``most_ms``."""
    link = loop.network.link(loop.nodes[source], loop.nodes[target])
    delay_ns = (int(least_ms * 1e6), int(most_ms * 1e6))
    return _override(loop, f"delay {source} {target}", partial(setattr, link, "delay_ns"), link.delay_ns, delay_ns)


def _lossy_link(loop: SimulationLoop, source: str, target: str, share: float) -> Callable[[], None]:
    """One direction loses ``share`` of its segments, which costs a retransmission each."""
    link = loop.network.link(loop.nodes[source], loop.nodes[target])
    return _override(loop, f"loss {source} {target}", partial(setattr, link, "loss"), link.loss, share)


def _reset(loop: SimulationLoop, one: str, other: str) -> Callable[[], None]:
    """All connections between two nodes break. Has no end."""
    loop.network.reset_between(loop.nodes[one], loop.nodes[other])
    return lambda: None


def _clock_rate(loop: SimulationLoop, name: str, rate: float) -> Callable[[], None]:
    """The node's clocks run ``rate`` times as fast."""
    node = loop.nodes[name]
    return _override(loop, f"clock {name}", node.set_clock_rate, node.clock.rate, rate)


def _clock_jump(loop: SimulationLoop, name: str, milliseconds: int) -> Callable[[], None]:
    """The node's calendar jumps, and back at the end."""
    node = loop.nodes[name]
    node.jump_wall_clock(milliseconds)
    return partial(node.jump_wall_clock, -milliseconds)


def _slow_disk(loop: SimulationLoop, name: str, factor: int) -> Callable[[], None]:
    """Everything the node does on threads, syncs above all, takes ``factor`` times as long."""
    node = loop.nodes[name]
    return _override(loop, f"executor {name}", partial(setattr, node, "slowness"), 1, factor)


def _full_disk(loop: SimulationLoop, name: str, left_bytes: int) -> Callable[[], None]:
    """Only ``left_bytes`` are left on the node's disk. A program that gave up is started again at the end."""
    platter = loop.nodes[name].platter
    usual, full = platter.capacity_bytes, platter.used_bytes + left_bytes
    make_room = _override(loop, f"capacity {name}", partial(setattr, platter, "capacity_bytes"), usual, full)
    return partial(repair, loop, name, make_room)


def _broken_disk(loop: SimulationLoop, name: str, path: str, operation: str) -> Callable[[], None]:
    """EIO for an operation ("sync", "write", "read", ...) on paths that start with ``path``. Ends as "full-disk" does."""
    return partial(repair, loop, name, loop.nodes[name].platter.fail(path, operations=(operation,)))


def repair(loop: SimulationLoop, name: str, mend: Callable[[], None]) -> None:
    """As an operator does: mends the disk, and starts the program if it has exited and nothing else keeps it down."""
    mend()
    if f"down {name}" not in loop.overrides:
        _start_again(loop.nodes[name])


KINDS: dict[str, Begin] = {
    "kill": _kill,
    "wipe": _wipe,
    "crash": _crash,
    "crash-in-disk-operation": _crash_in_disk_operation,
    "pause": _pause,
    "cut": _cut,
    "isolate": _isolate,
    "slow-link": _slow_link,
    "lossy-link": _lossy_link,
    "reset": _reset,
    "clock-rate": _clock_rate,
    "clock-jump": _clock_jump,
    "slow-disk": _slow_disk,
    "full-disk": _full_disk,
    "broken-disk": _broken_disk,
}


def schedule(loop: SimulationLoop, faults: Iterable[Fault]) -> None:
    """Has the loop apply each fault, and end it, at its time from now."""
    for fault in faults:
        loop.at_ns(loop.now_ns + fault.time_ms * 1_000_000, loop.harness, _begin, loop, fault)


def _begin(loop: SimulationLoop, fault: Fault) -> None:
    loop.trace.event(loop.now_ns, "faults", fault.kind, *fault.args)
    end = KINDS[fault.kind](loop, *fault.args)
    loop.at_ns(loop.now_ns + fault.duration_ms * 1_000_000, loop.harness, _end, loop, fault, end)


def _end(loop: SimulationLoop, fault: Fault, end: Callable[[], None]) -> None:
    loop.trace.event(loop.now_ns, "faults", f"end-{fault.kind}", *fault.args)
    end()


def last_end_ms(faults: Iterable[Fault]) -> int:
    """When everything is right again; 0 without faults."""
    return max((fault.time_ms + fault.duration_ms for fault in faults), default=0)


# --- making them up


def generate(rng: Random, nodes: Sequence[str], *, count: int, until_ms: int, kinds: Sequence[str]) -> list[Fault]:
    """``count`` faults of the given kinds among ``nodes`` (two or more), all over by ``until_ms``, in order of time."""
    faults = [_draw(rng, nodes, rng.choice(kinds), until_ms) for _ in range(count)]
    return sorted(faults, key=lambda fault: fault.time_ms)


def _draw(rng: Random, nodes: Sequence[str], kind: str, until_ms: int) -> Fault:
    # Short ones are common, long ones are not: most bugs need two things close together.
    duration_ms = min(int(rng.expovariate(1 / 1500)) + 1, until_ms // 2)
    time_ms = rng.randint(0, until_ms - duration_ms)
    return Fault(time_ms, kind, _arguments(rng, nodes, kind), duration_ms)


def _arguments(rng: Random, nodes: Sequence[str], kind: str) -> tuple[Argument, ...]:
    one, other = rng.sample(list(nodes), 2)
    least_ms = rng.choice((1, 10, 50))
    arguments: dict[str, tuple[Argument, ...]] = {
        "crash-in-disk-operation": (one, rng.randint(1, 200)),
        "cut": (one, other),
        "slow-link": (one, other, least_ms, least_ms * rng.choice((1, 3, 10))),
        "lossy-link": (one, other, rng.choice((0.01, 0.1, 0.3))),
        "reset": (one, other),
        "clock-rate": (one, rng.choice((0.9, 0.99, 1.01, 1.1))),
        "clock-jump": (one, rng.choice((-3_600_000, -1000, 1000, 3_600_000))),
        "slow-disk": (one, rng.choice((3, 30, 300))),
        "full-disk": (one, rng.choice((0, 1000, 100_000))),
        "wipe": (one, "/data"),
        "broken-disk": (one, "/", rng.choice(("sync", "write", "read", "rename"))),
    }
    return arguments.get(kind, (one,))


# --- writing them down


@dataclass(frozen=True, slots=True)
class Bundle:
    """All that is needed to run a failure again. ``scenario`` names the code to run, ``reason`` is for people.

    ``dimensions`` are what else the run has; None: what its seed draws.
    """

    scenario: str
    seed: int
    faults: tuple[Fault, ...]
    reason: str = ""
    dimensions: tuple[str, ...] | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> "Bundle":
        """ValueError, KeyError or TypeError when ``text`` is no bundle."""
        fields = json.loads(text)
        faults = tuple(Fault(**{**fault, "args": tuple(fault["args"])}) for fault in fields["faults"])
        dimensions = fields.get("dimensions")
        return cls(
            fields["scenario"],
            fields["seed"],
            faults,
            fields.get("reason", ""),
            None if dimensions is None else tuple(dimensions),
        )


# --- making them fewer


def shrink(faults: Sequence[AnyFault], fails: Callable[[list[AnyFault]], bool]) -> list[AnyFault]:
    """A smaller list that still ``fails``, of which no single fault can be left out.

    Delta debugging (Zeller and Hildebrandt, 2002): drops halves, then quarters, down to single faults.
    """
    kept, chunks = list(faults), 2
    if not kept or fails([]):
        return []
    while True:
        size = max(1, len(kept) // chunks)
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            if fewer and fails(fewer):
                kept, chunks = fewer, max(chunks - 1, 2)
                break
        else:
            if size == 1:
                return kept
            chunks = min(chunks * 2, len(kept))

"""Faults are data: a list with times, drawn from the seed up front, so that a failing run can be replayed and cut down."""

from collections.abc import Sequence
from enum import StrEnum
from random import Random

import msgspec


class FaultKind(StrEnum):
    # The process and its disk
    CRASH = "crash"  # the process dies: unsynced data may be lost or torn, peers see the stream break
    CRASH_AMID = "crash-amid"  # the same, between two instructions of the next event that has several
    POWER_OFF = "power-off"  # the machine dies: as above, an unsynced truncation may be undone, and peers see nothing
    RESTART = "restart"
    SHUTDOWN = "shutdown"  # graceful, then the process ends
    WIPE = "wipe"  # node: the machine dies, and comes back after a while with an empty disk
    PAUSE = "pause"  # node: runs nothing for a while, then all at once
    SLOW_DISK = "slow-disk"  # node: its syncs take long
    FAST_DISK = "fast-disk"
    # The network
    ISOLATE = "isolate"  # node: nothing in, nothing out
    MUTE = "mute"  # node: what it sends is lost, it still hears
    DEAFEN = "deafen"  # node: what is sent to it is lost, it still speaks
    CUT = "cut"  # what node sends to other is lost
    RESET = "reset"  # node: all its streams break, and everyone sees it
    HEAL = "heal"  # the cuts of node (0: all) are over
    # The clock
    CLOCK_RATE = "clock-rate"  # node: runs at half to twice its speed
    CLOCK_JUMP = "clock-jump"  # node: jumps ahead by up to five seconds
    # No faults, but what happens among them
    SNAPSHOT = "snapshot"  # node: its application takes a snapshot
    ADD_VOTER = "add-voter"  # node: the leader is asked to let it vote
    MOVE = "move"  # node: stops, and comes back at another address
    REMOVE_VOTER = "remove-voter"  # node: the leader is asked to let it vote no more


class FaultEvent(msgspec.Struct, frozen=True):
    """At ``at_ms`` of virtual time, to ``node``; ``other`` and ``amount`` (microseconds, or thousandths of the clock's speed)
    where the kind needs them."""

    at_ms: int
    kind: FaultKind
    node: int = 0
    other: int = 0
    amount: int = 0


STOPPING = (FaultKind.CRASH, FaultKind.CRASH_AMID, FaultKind.POWER_OFF, FaultKind.SHUTDOWN)
NETWORK = (FaultKind.ISOLATE, FaultKind.MUTE, FaultKind.DEAFEN, FaultKind.CUT)
KINDS = (
    *STOPPING * 5,
    *NETWORK * 4,
    *(FaultKind.RESET, FaultKind.PAUSE, FaultKind.SLOW_DISK, FaultKind.CLOCK_RATE, FaultKind.CLOCK_JUMP) * 2,
)
"""Each as often as it is drawn."""

CHANGES = (
    *(FaultKind.SNAPSHOT, FaultKind.ADD_VOTER, FaultKind.REMOVE_VOTER) * 2,
    *(FaultKind.ADD_VOTER, FaultKind.MOVE),
)
"""Likewise."""

LENGTHS_MS = (300, 300, 1000, 4000)
"""How long a fault lasts at most: below and beyond the timeouts of the protocol."""


def draw_faults(rng: Random, nodes: Sequence[int], duration_ms: int, every_ms: int) -> list[FaultEvent]:
    """Faults about every ``every_ms`` until ``duration_ms``; each crash has its restart, each cut its healing."""
    faults: list[FaultEvent] = []
    at_ms = rng.randrange(every_ms)
    while at_ms < duration_ms:
        node, other = rng.choice(nodes), rng.choice(nodes)
        until_ms = at_ms + 20 + rng.randrange(rng.choice(LENGTHS_MS))
        faults += _fault(rng, rng.choice(KINDS), at_ms, until_ms, node, other)
        at_ms += 1 + rng.randrange(2 * every_ms)
    return sorted(faults, key=lambda fault: fault.at_ms)


def _fault(rng: Random, kind: FaultKind, at_ms: int, until_ms: int, node: int, other: int) -> tuple[FaultEvent, ...]:
    """With what ends it."""
    if kind in STOPPING:
        return (
            FaultEvent(at_ms, kind, node, amount=rng.randrange(1, 4)),
            FaultEvent(until_ms, FaultKind.RESTART, node),
        )
    if kind in NETWORK:
        return (FaultEvent(at_ms, kind, node, other), FaultEvent(until_ms, FaultKind.HEAL, node))
    if kind is FaultKind.SLOW_DISK:
        return (FaultEvent(at_ms, kind, node), FaultEvent(until_ms, FaultKind.FAST_DISK, node))
    if kind is FaultKind.CLOCK_RATE:
        back = FaultEvent(until_ms, kind, node, amount=1000)
        return (FaultEvent(at_ms, kind, node, amount=rng.randrange(500, 2000)), back)
    if kind is FaultKind.CLOCK_JUMP:
        return (FaultEvent(at_ms, kind, node, amount=rng.choice((10_000, 1_000_000, 5_000_000))),)
    return (FaultEvent(at_ms, kind, node, amount=(until_ms - at_ms) * 1000),)


def draw_wipes(rng: Random, controllers: Sequence[int], duration_ms: int, every_ms: int) -> list[FaultEvent]:
    """Disks that are lost; the nodes come back on empty ones. Each waits for a moment at which it is within the promise
    (`wiping.py`)."""
    faults: list[FaultEvent] = []
    at_ms = 500 + rng.randrange(every_ms)
    while at_ms < duration_ms:
        away_ms = 20 + rng.randrange(rng.choice(LENGTHS_MS))
        faults.append(FaultEvent(at_ms, FaultKind.WIPE, rng.choice(controllers), amount=away_ms * 1000))
        at_ms += 1 + rng.randrange(2 * every_ms)
    return faults


def draw_changes(rng: Random, controllers: Sequence[int], duration_ms: int, every_ms: int) -> list[FaultEvent]:
    """Not faults, but what happens among them: snapshots, and voters that come and go."""
    changes: list[FaultEvent] = []
    at_ms = 500 + rng.randrange(every_ms)
    while at_ms < duration_ms:
        changes.append(FaultEvent(at_ms, rng.choice(CHANGES), rng.choice(controllers)))
        at_ms += 1 + rng.randrange(2 * every_ms)
    return changes

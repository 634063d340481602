"""Faults are data: a list with times, drawn from the seed up front, so that a failing run can be replayed and cut down."""

from collections.abc import Sequence
from enum import StrEnum
from random import Random

import msgspec


class FaultKind(StrEnum):
    CRASH = "crash"  # the process dies: unsynced data may be lost, peers see the stream break
    POWER_OFF = "power-off"  # the machine dies: as above, and peers see nothing
    RESTART = "restart"
    SHUTDOWN = "shutdown"  # graceful, then the process ends
    ISOLATE = "isolate"  # node: nothing in, nothing out
    MUTE = "mute"  # node: what it sends is lost, it still hears
    DEAFEN = "deafen"  # node: what is sent to it is lost, it still speaks
    HEAL = "heal"  # the network is whole again
    SLOW_DISK = "slow-disk"  # node: its syncs take long
    FAST_DISK = "fast-disk"
    SNAPSHOT = "snapshot"  # node: its application takes a snapshot
    ADD_VOTER = "add-voter"  # node: the leader is asked to let it vote
    REMOVE_VOTER = "remove-voter"  # node: the leader is asked to let it vote no more


class FaultEvent(msgspec.Struct, frozen=True):
    """At ``at_ms`` of virtual time, to ``node`` (ignored by HEAL)."""

    at_ms: int
    kind: FaultKind
    node: int = 0


STARTING = (FaultKind.CRASH, FaultKind.POWER_OFF, FaultKind.SHUTDOWN)
NETWORK = (FaultKind.ISOLATE, FaultKind.MUTE, FaultKind.DEAFEN)


def draw_faults(rng: Random, nodes: Sequence[int], duration_ms: int, every_ms: int) -> list[FaultEvent]:
    """Faults about every ``every_ms`` until ``duration_ms``; each crash has its restart, each cut its healing."""
    faults: list[FaultEvent] = []
    at_ms = rng.randrange(every_ms)
    while at_ms < duration_ms:
        node = nodes[rng.randrange(len(nodes))]
        until_ms = at_ms + 20 + rng.randrange(3 * every_ms)
        choice = rng.randrange(10)
        if choice < 5:
            faults.append(FaultEvent(at_ms, STARTING[rng.randrange(len(STARTING))], node))
            faults.append(FaultEvent(until_ms, FaultKind.RESTART, node))
        elif choice < 9:
            faults.append(FaultEvent(at_ms, NETWORK[rng.randrange(len(NETWORK))], node))
            faults.append(FaultEvent(until_ms, FaultKind.HEAL))
        else:
            faults.append(FaultEvent(at_ms, FaultKind.SLOW_DISK, node))
            faults.append(FaultEvent(until_ms, FaultKind.FAST_DISK, node))
        at_ms += 1 + rng.randrange(2 * every_ms)
    return sorted(faults, key=lambda fault: fault.at_ms)


def draw_changes(rng: Random, controllers: Sequence[int], duration_ms: int, every_ms: int) -> list[FaultEvent]:
    """Not faults, but what happens among them: snapshots, and voters that come and go."""
    changes: list[FaultEvent] = []
    kinds = (FaultKind.SNAPSHOT, FaultKind.ADD_VOTER, FaultKind.ADD_VOTER, FaultKind.REMOVE_VOTER)
    at_ms = 500 + rng.randrange(every_ms)
    while at_ms < duration_ms:
        changes.append(
            FaultEvent(at_ms, kinds[rng.randrange(len(kinds))], controllers[rng.randrange(len(controllers))])
        )
        at_ms += 1 + rng.randrange(2 * every_ms)
    return changes

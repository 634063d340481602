"""Disks that are full, broken or slow."""

import time

from ottla.testing.chaos.acts import Act
from ottla.testing.chaos.libraries import BROKEN, EVERYTHING, NO_ROOM, OPENS, SYNCS, WRITES, FaultDisks
from ottla.testing.chaos.scene import LOOK_S, Scene

_END_S = 30.0
"""After the fault's own time; who lives then goes on."""


def full(role: str) -> Act:
    """Nothing more can be written: ENOSPC."""
    return _struck(role, WRITES | OPENS, NO_ROOM)


def broken(role: str) -> Act:
    """Every call fails: EIO. A node without another directory ends; it is started again on a disk that is well."""
    return _struck(role, EVERYTHING, BROKEN)


def unsynced(role: str) -> Act:
    """Only syncs fail: EIO. What was written before may be lost, whatever a later sync says."""
    return _struck(role, SYNCS, BROKEN)


def _struck(role: str, affected: int, error: int) -> Act:
    def act(scene: Scene) -> None:
        disks = scene.library(FaultDisks)
        node = scene.who(role)
        before = disks.struck(node).failed
        disks.strike(node, affected, error=error)
        scene.hold()
        failed = disks.struck(node).failed - before
        has_ended = failed > 0 and _ends(scene, node)
        disks.spare(node)
        scene.tell(f"node {node} {'has ended' if has_ended else 'lives'}")
        scene.prove(failed > 0, f"{failed} calls on files of node {node} failed with errno {error}")

    return act


def _ends(scene: Scene, node: int) -> bool:
    """A node that cannot go on hands over first, and on a busy machine that takes a while: who would call the fault over meanwhile would
    find it alive, and dead a moment later."""
    until = time.monotonic() + _END_S
    while scene.cluster.is_alive(node) and time.monotonic() < until:
        scene.hold(LOOK_S)
    return not scene.cluster.is_alive(node)


def slow(role: str, delay_ms: int) -> Act:
    """Each write and each sync takes longer."""

    def act(scene: Scene) -> None:
        disks = scene.library(FaultDisks)
        node = scene.who(role)
        before = disks.struck(node).delayed
        disks.strike(node, WRITES | SYNCS, delay_ms=delay_ms)
        scene.hold()
        delayed = disks.struck(node).delayed - before
        disks.spare(node)
        scene.prove(delayed > 0, f"{delayed} calls on files of node {node} took {delay_ms} ms longer")

    return act

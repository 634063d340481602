"""A struck disk's fault is over when what it does to its node is."""

from random import Random
from typing import Any

import pytest

from ottla.testing.chaos.acts import disks
from ottla.testing.chaos.libraries import FaultDisks, Struck
from ottla.testing.chaos.scene import Scene, Subjects


class Disks(FaultDisks):
    """One that fails three calls."""

    def __init__(self) -> None:
        self.orders: list[int] = []

    def strike(self, node_id: int, affected: int, *, error: int = 0, delay_ms: int = 0) -> None:
        self.orders.append(affected)

    def struck(self, node_id: int) -> Struck:
        return Struck(3 if self.orders else 0, 0)


class Cluster:
    """Of one node, which is found alive so many times."""

    def __init__(self, looks: int) -> None:
        self.nodes, self.looks = {1: None}, looks

    def is_alive(self, _: int) -> bool:
        self.looks -= 1
        return self.looks >= 0


def struck(looks: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Scene, Disks]:
    monkeypatch.setattr(disks, "LOOK_S", 0.0)
    monkeypatch.setattr(disks, "_END_S", 0.05)
    cluster: Any = Cluster(looks)
    library = Disks()
    scene = Scene(cluster, Random(1), Subjects([]), 0.0, library)
    disks.broken("node")(scene)
    return scene, library


def test_a_node_that_is_about_to_end_is_waited_for_on_the_broken_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, library = struck(20, monkeypatch)
    assert scene.story[1].endswith("node 1 has ended")
    assert library.orders[-1] == 0


def test_a_node_that_lives_gets_its_disk_back(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, library = struck(1 << 60, monkeypatch)
    assert scene.story[1].endswith("node 1 lives")
    assert library.orders[-1] == 0

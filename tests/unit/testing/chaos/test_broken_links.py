"""A toxic that is to end connections stays until it has."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.testing.chaos.acts import network
from ottla.testing.chaos.links import QUORUM
from ottla.testing.chaos.scene import NotFired, Scene, Subjects


class Traffic:
    """Of nine connections, one of which has ended after so many looks."""

    opened = 9

    def __init__(self, looks: int) -> None:
        self.looks = looks

    @property
    def ended(self) -> int:
        return int(self.looks <= 0)

    def look(self) -> None:
        self.looks -= 1


def played(monkeypatch: pytest.MonkeyPatch, looks: int) -> tuple[Scene, list[str]]:
    done: list[str] = []
    cluster: Any = SimpleNamespace(
        links_of_kind=lambda _: [],
        give=lambda _, toxic, *__: done.append(f"+{toxic}"),
        take=lambda _, toxic: done.append(f"-{toxic}"),
    )
    scene = Scene(cluster, Random(1), Subjects([]), 2.0)
    traffic = Traffic(looks)
    monkeypatch.setattr(scene, "traffic", lambda _: traffic)
    monkeypatch.setattr(scene, "hold", lambda _seconds, _traffic: traffic.look())
    network.broken("limit_data", QUORUM, {"bytes": 1}, 0.8, 0.2)(scene)
    return scene, done


def test_it_comes_and_goes_until_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, done = played(monkeypatch, 0)
    assert (
        done == ["+limit_data-upstream", "+limit_data-downstream", "-limit_data-upstream", "-limit_data-downstream"] * 2
    )
    assert scene.proofs == ["1 of 9 connections ended, limit_data 2 times"]


def test_it_goes_on_until_a_connection_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, _ = played(monkeypatch, 10)
    assert scene.proofs == ["1 of 9 connections ended, limit_data 5 times"]


def test_it_gives_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFired, match="0 of 9 connections ended, limit_data 17 times"):
        played(monkeypatch, 1000)

"""What a fault works on, and what it says of itself."""

import time
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import TypeVar

from ottla.testing.chaos.cluster import ChaosCluster
from ottla.testing.chaos.libraries import Library
from ottla.testing.chaos.links import Link
from ottla.testing.chaos.roles import GROUP, TRANSACTION, Place, Roles
from ottla.testing.chaos.sockets import Traffic

LOOK_S = 0.1
L = TypeVar("L")


class NotFired(Exception):
    """The fault cannot show that it happened: the run proves nothing."""


class Subjects:
    """What the workloads of a run have, for faults that look for whoever serves it."""

    def __init__(
        self, places: Sequence[Place], groups: Sequence[str] = (), transactional_ids: Sequence[str] = ()
    ) -> None:
        self.places = list(places)
        self.groups = list(groups)
        self.transactional_ids = list(transactional_ids)


class Scene:
    """``seconds``: how long a fault lasts that lasts. Everything random is drawn from ``rng``."""

    def __init__(
        self, cluster: ChaosCluster, rng: Random, subjects: Subjects, seconds: float, library: Library | None = None
    ) -> None:
        """``library``: what the nodes' processes are loaded with."""
        self.cluster = cluster
        self._library = library
        self.rng = rng
        self.subjects = subjects
        self.seconds = seconds
        self.roles = Roles(cluster)
        self.began = time.monotonic()
        self.proofs: list[str] = []
        self.story: list[str] = []
        self.went_on: Callable[[], int] = lambda: 0
        """How many operations the workloads have done by now."""

    def tell(self, sentence: str) -> None:
        """For people who read of the run."""
        self.story.append(f"{time.monotonic() - self.began:6.2f} s  {sentence}")

    def prove(self, fired: bool, sentence: str) -> None:
        """``sentence`` says what was seen, in either case. Raises NotFired."""
        self.tell(("fired: " if fired else "did not fire: ") + sentence)
        if not fired:
            raise NotFired(sentence)
        self.proofs.append(sentence)

    def hold(self, seconds: float | None = None, traffic: Traffic | None = None) -> None:
        """Time passes, ``self.seconds`` unless told how long; what passes by is looked at meanwhile."""
        ends = time.monotonic() + (self.seconds if seconds is None else seconds)
        while (left := ends - time.monotonic()) > 0:
            time.sleep(min(LOOK_S, left))
            if traffic is not None:
                traffic.look()

    def traffic(self, links: Iterable[Link]) -> Traffic:
        return Traffic(self.cluster.ports(links))

    def library(self, kind: type[L]) -> L:
        assert isinstance(self._library, kind), f"the fault's row asks for a library, and not for {kind.__name__}"
        return self._library

    # Whom it may meet.

    def place(self) -> Place:
        return self.rng.choice(self.subjects.places)

    def who(self, role: str) -> int:
        """A node: ``leader`` and ``follower`` of some partition, ``controller`` (the active one), ``voter`` (a controller that is
        not), ``coordinator`` of some group or transaction, ``broker``, ``node``."""
        node = self._who(role)
        self.tell(f"node {node} is the {role}")
        return node

    def _who(self, role: str) -> int:
        match role:
            case "leader":
                return self.roles.leader(self.place())
            case "follower":
                return self.roles.follower(self.place())
            case "controller":
                return self.roles.controller()
            case "voter":
                active = self.roles.controller()
                return self.rng.choice([each for each in self.cluster.controller_ids if each != active])
            case "coordinator":
                return self._coordinator()
            case "broker":
                return self.rng.choice(self.cluster.broker_ids)
            case _:
                return self.rng.choice(list(self.cluster.nodes))

    def _coordinator(self) -> int:
        """Without groups and transactions: of a group that nobody has, so that there is one."""
        keys = [(each, GROUP) for each in self.subjects.groups]
        keys += [(each, TRANSACTION) for each in self.subjects.transactional_ids]
        return self.roles.coordinator(*self.rng.choice(keys or [("nobody", GROUP)]))

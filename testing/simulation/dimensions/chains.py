"""Faults that meet those who matter just then, one upon another: a leader that is cut off goes on writing what nobody takes,
comes back and cuts it, and leads again; the controller's answers come late; followers leave and join.

Offices stand in the faults' arguments (roles.py), and are looked up when a fault begins.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from random import Random

from ottla.runtime.simulation.faults import KINDS, Fault
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.plan import FaultKind
from ottla.testing.simulation.roles import CONTROLLER, follower_of, leader_of, other_follower_of

SPLIT = "split"
PLACES = (("flights", 0), ("flights", 1), ("arrivals", 0), ("prices", 0))
SESSION_MS = 1600  # after it a leader that is cut off is replaced: `cluster.SETTINGS`
LAG_MS = 2000


def split(loop: SimulationLoop, name: str) -> Callable[[], None]:
    """A node is cut off from the other nodes while clients still reach it: it goes on as the leader it was."""
    others = [each for each in loop.nodes if each.startswith("node-") and each != name]
    ends = [KINDS["cut"](loop, *way) for other in others for way in ((name, other), (other, name))]

    def end() -> None:
        for each in ends:
            each()

    return end


class Chains(Dimension):
    name = "chains"
    one_in = 3

    def faults(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        rng = self.rng
        chain = rng.choice((_leads_again, _leads_again, _loses_power, _killed_in_turn, _late_answers, _joins_late))
        faults = chain(rng, *rng.choice(PLACES))
        late_ms = max(fault.time_ms + fault.duration_ms for fault in faults) - until_ms
        return [fault for fault in faults if fault.time_ms + fault.duration_ms <= until_ms] if late_ms > 0 else faults

    def kinds(self) -> Mapping[str, FaultKind]:
        return {SPLIT: FaultKind(split)}


DIMENSION = Chains


def _leads_again(rng: Random, topic: str, index: int) -> list[Fault]:
    """A leader is cut off until there is another, cuts its log, and leads again as soon as it may, for the other dies."""
    begin_ms, away_ms = rng.randrange(200, 1500), SESSION_MS + rng.randrange(50, 1200)
    back_ms = begin_ms + away_ms
    return [
        Fault(begin_ms, SPLIT, (leader_of(topic, index),), away_ms),
        Fault(back_ms + rng.choice((5, 20, 60, 200)), "kill", (leader_of(topic, index),), rng.randrange(300, 2500)),
    ]


def _loses_power(rng: Random, topic: str, index: int) -> list[Fault]:
    """A leader is cut off, cuts its log, writes anew, and loses its power."""
    begin_ms, away_ms = rng.randrange(200, 1500), SESSION_MS + rng.randrange(50, 1200)
    back_ms = begin_ms + away_ms
    who = rng.choice((leader_of, follower_of, other_follower_of))
    return [
        Fault(begin_ms, SPLIT, (leader_of(topic, index),), away_ms),
        Fault(back_ms + rng.randrange(50, 600), "crash", (who(topic, index),), rng.randrange(100, 500)),
    ]


def _killed_in_turn(rng: Random, topic: str, index: int) -> list[Fault]:
    """Whoever leads is killed, three times."""
    begin_ms, apart_ms = rng.randrange(200, 1500), rng.randrange(150, 1400)
    return [
        Fault(begin_ms + number * apart_ms, "kill", (leader_of(topic, index),), rng.randrange(50, 900))
        for number in range(3)
    ]


def _late_answers(rng: Random, topic: str, index: int) -> list[Fault]:
    """The controller's answers to the leader come late, while a follower leaves the ISR and joins it."""
    begin_ms = rng.randrange(200, 1500)
    least_ms = rng.choice((50, 200))
    return [
        Fault(begin_ms, "slow-link", (CONTROLLER, leader_of(topic, index), least_ms, 4 * least_ms), 4000),
        Fault(begin_ms + 100, "pause", (follower_of(topic, index),), LAG_MS + rng.randrange(100, 900)),
    ]


def _joins_late(rng: Random, topic: str, index: int) -> list[Fault]:
    """A follower joins over a slow link, while the leader goes."""
    begin_ms, away_ms = rng.randrange(200, 800), SESSION_MS + rng.randrange(100, 900)
    follower, leader = follower_of(topic, index), leader_of(topic, index)
    slow = partial(Fault, begin_ms, "slow-link", duration_ms=away_ms + 2000)
    return [
        Fault(begin_ms, "kill", (other_follower_of(topic, index),), away_ms),
        slow((leader, other_follower_of(topic, index), 20, 300)),
        slow((follower, other_follower_of(topic, index), 20, 300)),
        Fault(begin_ms + away_ms + rng.randrange(100, 700), "kill", (leader,), rng.randrange(300, 900)),
    ]

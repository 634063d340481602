"""Chains of faults, each made for a window in which a rule matters. Offices stand in their arguments (roles.py)."""

from collections.abc import Callable
from random import Random

from ottla.runtime.simulation.faults import KINDS, Fault
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.testing.simulation.plan import CLIENTS, FaultKind
from ottla.testing.simulation.roles import (
    CONTROLLER,
    follower_of,
    former_leader_of,
    leader_of,
    other_follower_of,
    third_of,
)

SPLIT = "split"
PLACES = (("flights", 0), ("flights", 1), ("flights", 2), ("arrivals", 0), ("arrivals", 0))
SESSION_MS = 1600  # after it a leader that is cut off is replaced: `cluster.SETTINGS`

Chain = Callable[[Random, int, str, int], list[Fault]]
"""From a generator, when it begins, and the partition that it is about."""


def split(loop: SimulationLoop, name: str) -> Callable[[], None]:
    """A node is cut off from the other nodes while clients still reach it: it goes on as the leader it was."""
    others = [each for each in loop.nodes if each.startswith("node-") and each != name]
    ends = [KINDS["cut"](loop, *way) for other in others for way in ((name, other), (other, name))]

    def end() -> None:
        for each in ends:
            each()

    return end


KINDS_OF_CHAINS = {SPLIT: FaultKind(split, parts=True)}


def _both_ways(time_ms: int, one: str, other: str, duration_ms: int) -> list[Fault]:
    return [Fault(time_ms, "cut", way, duration_ms) for way in ((one, other), (other, one))]


def _leads_again(rng: Random, begin_ms: int, topic: str, index: int) -> list[Fault]:
    """A leader is cut off until there is another, cuts its log, and leads again as soon as it may, for the other dies. Often
    clients do not find the other."""
    away_ms = SESSION_MS + rng.randrange(200, 800)
    back_ms = begin_ms + 400 + away_ms
    unseen = rng.choice(([], [follower_of(topic, index), other_follower_of(topic, index)]))
    return [
        Fault(begin_ms + 400, SPLIT, (leader_of(topic, index),), away_ms),
        *(cut for each in unseen for cut in _both_ways(begin_ms + 900, CLIENTS, each, 4500)),
        Fault(back_ms + rng.choice((20, 200, 600)), "kill", (leader_of(topic, index),), rng.randrange(300, 1800)),
    ]


def _loses_power(rng: Random, begin_ms: int, topic: str, index: int) -> list[Fault]:
    """A leader is cut off, cuts its log, and somebody loses power as soon as it is written to again."""
    away_ms = SESSION_MS + rng.randrange(200, 800)
    back_ms = begin_ms + 400 + away_ms
    who = rng.choice((follower_of, other_follower_of))(topic, index)
    return [
        Fault(begin_ms + 400, SPLIT, (leader_of(topic, index),), away_ms),
        Fault(begin_ms + 1100, "isolate", (CLIENTS,), away_ms - 100),
        Fault(back_ms + 50, "slow-disk", (who, 300), 1200),
        *(Fault(back_ms + after_ms, "crash", (who,), 150) for after_ms in (700, 850, 1000, 1150)),
    ]


def cut_below_a_sync(rng: Random, begin_ms: int, topic: str, index: int) -> list[Fault]:
    """A leader is cut off and syncs what nobody takes. While clients find nobody it comes back and cuts it off; then it is written
    to again, beyond what it had synced, and loses its power before its slow disk has synced any of that."""
    away_ms = SESSION_MS + rng.randrange(300, 1700)  # if it was the controller too, another one comes first
    back_ms = begin_ms + 400 + away_ms
    former = former_leader_of(topic, index)
    seen_ms = back_ms + 700
    return [
        Fault(begin_ms + 400, SPLIT, (leader_of(topic, index),), away_ms),
        Fault(begin_ms + 1100, "isolate", (CLIENTS,), seen_ms - begin_ms - 1100),
        Fault(back_ms + 50, "slow-disk", (former, 1000), 2000),
        *(Fault(seen_ms + rng.randrange(550, 850) + again_ms, "crash", (former,), 150) for again_ms in (0, 300)),
    ]


def _killed_in_turn(rng: Random, begin_ms: int, topic: str, index: int) -> list[Fault]:
    """Whoever leads is killed, three times."""
    apart_ms = rng.randrange(150, 1400)
    return [
        Fault(begin_ms + 200 + number * apart_ms, "kill", (leader_of(topic, index),), rng.randrange(50, 900))
        for number in range(3)
    ]


def _late_answers(rng: Random, begin_ms: int, topic: str, index: int) -> list[Fault]:
    """The controller's answers to the leader come late, while a follower leaves the ISR, joins it and stalls."""
    follower, least_ms = third_of(topic, index), rng.choice((500, 1250, 1250))
    return [
        Fault(begin_ms + 400, "pause", (follower,), 900),
        Fault(begin_ms + 1290, "slow-link", (CONTROLLER, leader_of(topic, index), least_ms, least_ms + 50), 3500),
        Fault(begin_ms + 1325, "pause", (follower,), 1200),
    ]


def _late_requests(rng: Random, begin_ms: int, topic: str, index: int) -> list[Fault]:
    """What the leader tells and asks the controller is late, and so is what it hears from the metadata log."""
    least_ms = rng.choice((150, 300))
    follower = rng.choice((follower_of, other_follower_of))(topic, index)
    return [
        Fault(begin_ms, "slow-link", (leader_of(topic, index), CONTROLLER, least_ms, least_ms + 150), 5500),
        *([Fault(begin_ms + 300, "pause", (follower,), 1200)] if rng.randrange(2) else []),
    ]


def _joins_below(rng: Random, begin_ms: int, topic: str, index: int) -> list[Fault]:
    """A leader dies before its successor hears what is committed; who was cut off from it joins over a slow link."""
    leader, third = leader_of(topic, index), third_of(topic, index)
    return [
        *_both_ways(begin_ms + 300, leader, third, 2800),
        Fault(begin_ms + 200, "slow-link", (leader, CONTROLLER, 200, 250), 1000),
        Fault(begin_ms + 960 + rng.randrange(250), "kill", (leader,), 4000),
        Fault(begin_ms + 1300, "slow-link", (CONTROLLER, third, 100, rng.choice((150, 500))), 3000),
    ]


def _loses_its_tail(rng: Random, begin_ms: int, topic: str, index: int) -> list[Fault]:
    """A follower loses power while nobody writes; it fetches over a slow link, or what it asked before comes late."""
    follower, leader = rng.choice((follower_of, other_follower_of))(topic, index), leader_of(topic, index)
    slow = rng.choice(((leader, follower, 60, 100), (follower, leader, 400, 500)))
    return [
        fault
        for again_ms in (500, 2400)
        for fault in (
            Fault(begin_ms + again_ms, "slow-link", slow, 1500),
            Fault(begin_ms + again_ms + 200, "crash", (follower,), 100),
            Fault(begin_ms + again_ms + 201, "isolate", (CLIENTS,), 1200),
        )
    ]


def _without_controller(rng: Random, begin_ms: int, topic: str, index: int) -> list[Fault]:
    """A broker is fenced whom every leader still hears."""
    return _both_ways(begin_ms + 300, CONTROLLER, third_of(topic, index), rng.randrange(2000, 4500))


def _stalls(rng: Random, begin_ms: int, topic: str, index: int) -> list[Fault]:
    """Nothing is committed for as long as producers wait, and they repeat what they sent."""
    return [Fault(begin_ms + 300, "pause", (follower_of(topic, index),), rng.randrange(1300, 1580))]


def _wakes_alone(rng: Random, begin_ms: int, topic: str, index: int) -> list[Fault]:
    """A follower that lags wakes when the others are gone: one for long, one comes back at once."""
    others = [leader_of(topic, index), other_follower_of(topic, index)]
    rng.shuffle(others)
    return [
        Fault(begin_ms + 300, "pause", (follower_of(topic, index),), 900),
        Fault(begin_ms + 1190, "kill", (others[0],), 3500),
        Fault(begin_ms + 1191, "kill", (others[1],), 200),
    ]


CHAINS: tuple[Chain, ...] = (
    _leads_again,
    _leads_again,
    _loses_power,
    _loses_power,
    _killed_in_turn,
    _late_answers,
    _late_requests,
    _joins_below,
    _joins_below,
    _loses_its_tail,
    _loses_its_tail,
    _without_controller,
    _stalls,
    _wakes_alone,
)
HASTY: tuple[Chain, ...] = (_late_answers, _late_requests, _joins_below, _wakes_alone)
"""Those that need leaders whose patience ends before a session does."""

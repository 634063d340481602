"""Carries a plan out, and waits for it. Everything can be interrupted: what was begun goes on in the cluster, and whoever comes
again finds by looking how far it is. All raise CommandError."""

import time
from collections.abc import Callable, Mapping, Sequence

from ottla.cli import reassign_requests as requests
from ottla.cli.cluster_state import PATIENCE_S, ClusterNow, read_cluster
from ottla.cli.failures import CommandError
from ottla.cli.placing import Place, changed
from ottla.cli.reassign_words import size_words

POLL_S = 0.5
TELL_S = 5.0
HEARD_S = 10.0
"""A broker that is asked hears of a move's end a moment after it."""

Tell = Callable[[str], None]


def apply(bootstrap: str, plan: Mapping[Place, Sequence[int]], now: ClusterNow, throttle: int | None) -> None:
    """Begins all that is not so yet, slowed down from the first byte on."""
    left = changed(plan, now.partitions)
    if throttle is not None:
        requests.slow_down(bootstrap, requests.throttle_for(left, now.partitions), throttle)
    # Also what looks done but moves elsewhere: it goes back.
    left.update({place: tuple(plan[place]) for place in now.moving if place in plan})
    requests.begin(bootstrap, left)


def finish(bootstrap: str, plan: Mapping[Place, Sequence[int]], now: ClusterNow) -> None:
    """Takes the throttles away that `apply` may have set."""
    brokers = sorted(now.brokers)
    requests.speed_up(bootstrap, sorted({topic for topic, _ in plan}), brokers)


def wait(bootstrap: str, plan: Mapping[Place, Sequence[int]], tell: Tell) -> None:
    """Until every partition of the plan is so, or its topic is gone. Raises CommandError when what is left no longer moves: somebody gave it
    up, or had it go elsewhere."""
    told, said_s, moved_s = "", time.monotonic() - TELL_S, time.monotonic()
    while True:
        now = read_cluster(bootstrap, with_sizes=time.monotonic() - said_s >= TELL_S, patience_s=PATIENCE_S)
        waiting = [place for place, replicas in plan.items() if not requests.is_done(place, replicas, now)]
        if not waiting:
            return
        if any(place in now.moving for place in waiting):
            moved_s = time.monotonic()
        elif time.monotonic() - moved_s > HEARD_S:
            raise CommandError(_ended_otherwise(waiting))
        if time.monotonic() - said_s >= TELL_S:
            said_s = time.monotonic()
            left = sum(requests.bytes_left(place, now) for place in waiting if place in now.moving)
            words = f"{len(plan) - len(waiting)} of {len(plan)} partitions are there, {size_words(left)} to go"
            stuck = waits_for(waiting, now)
            words += f", waiting for brokers {', '.join(map(str, stuck))}" if stuck else ""
            if words != told:
                tell(words)
            told = words
        time.sleep(POLL_S)


def _ended_otherwise(places: Sequence[Place]) -> str:
    (topic, index), *more = sorted(places)
    those = f"{topic}-{index} and {len(more)} more" if more else f"{topic}-{index}"
    return f"{those}: the move has ended, but not as planned: somebody gave it up or planned otherwise; call this again"


def waits_for(places: Sequence[Place], now: ClusterNow) -> list[int]:
    """Brokers that are to take replicas and are not in service."""
    alive = now.alive
    return sorted({each for place in places if place in now.moving for each in now.moving[place].adding} - {*alive})

"""What one step of a history is: anything that can happen, some of it often. A profile has more of what it is about."""

from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

from ottla.testing.decisions import faults, lives, serving, users
from ottla.testing.decisions.brokers import NONE, Broker
from ottla.testing.decisions.cluster import Cluster
from ottla.testing.decisions.hosting import host_all

STOPS_AT_ONCE = 0.3  # of those who are told to stop: their node does not wait for the controller
PAUSES_MS = (1_000, 10_000)  # within a session, and beyond it
BEATS = 0.8  # of the pauses in which heartbeats come

Step = Callable[[Cluster], object]


def write_one(cluster: Cluster) -> None:
    key = cluster.any_partition()
    serving.write(cluster, key)
    serving.follow(cluster, key)
    serving.advance(cluster, key)


def follow_all(cluster: Cluster) -> None:
    for key in cluster.partitions():
        serving.follow(cluster, key)
    for key in cluster.partitions():
        serving.advance(cluster, key)


def propose_one(cluster: Cluster) -> None:
    serving.propose(cluster, cluster.any_partition())


def go_on(cluster: Cluster) -> None:
    cluster.controller.go_on()


def chore(cluster: Cluster) -> None:
    cluster.controller.chore()


def fence(cluster: Cluster) -> None:
    cluster.controller.fence()


def rebalance(cluster: Cluster) -> None:
    cluster.controller.rebalance()


def fail_over(cluster: Cluster) -> None:
    cluster.controller.fail_over()


def leave(cluster: Cluster) -> None:
    """A node is told to stop."""
    broker = cluster.any_broker()
    if broker.registered is not None:
        broker.registered.is_leaving = True
        if cluster.rng.random() < STOPS_AT_ONCE:
            lives.stop(cluster, broker)


def restart_with_less(cluster: Cluster) -> None:
    """A node stops in order, and the next start has one directory less in its configuration."""
    broker = cluster.any_broker()
    if broker.process is not None:
        lives.stop(cluster, broker)
        faults.leave_directory_out(cluster, broker)
        lives.start(cluster, broker)


def wait(cluster: Cluster) -> None:
    """Time passes, with heartbeats or without."""
    cluster.controller.now_ms += cluster.rng.choice(PAUSES_MS)
    if cluster.rng.random() < BEATS:
        lives.everybody_beats(cluster)
    cluster.controller.fence()


def some(act: Callable[[Cluster, Broker], object]) -> Step:
    """The same with any broker."""

    def step(cluster: Cluster) -> None:
        act(cluster, cluster.any_broker())

    return step


crash, start, beat = some(faults.crash), some(lives.start), some(lives.beat)
slow_down = some(faults.slow_down)
fail_disk, repair_disks = some(faults.fail_disk), some(faults.repair_disks)
leave_directory_out = some(faults.leave_directory_out)

USUAL: tuple[tuple[int, Step], ...] = (
    # What brokers do
    (250, write_one),
    (130, follow_all),
    (120, propose_one),
    (100, serving.deliver),
    (80, beat),
    (40, host_all),
    (25, start),
    # What the controller does
    (80, go_on),
    (60, chore),
    (25, fence),
    (15, wait),
    (2, rebalance),
    # What goes wrong
    (15, crash),
    (15, leave),
    (5, fail_disk),
    (3, leave_directory_out),
    (8, repair_disks),
    (4, faults.damage),
    (6, slow_down),
    (4, fail_over),
    # What people ask
    (7, users.reassign),
    (3, users.elect),
    (3, users.set_min_in_sync),
    (2, users.unregister),
)
"""Each as often as it is drawn."""


class Profile(NamedTuple):
    """These steps are drawn ``often``, of all steps, beside the usual ones."""

    often: float
    steps: tuple[Step, ...]


PROFILES: dict[str, Profile] = {
    "plain": Profile(0.0, (chore,)),
    "moves": Profile(0.06, (users.reassign,)),
    "unclean": Profile(0.02, (users.toggle_unclean,)),
    "minimums": Profile(0.05, (users.set_min_in_sync,)),
    "levels": Profile(0.02, (users.raise_or_lower,)),
    "brokers": Profile(0.05, (users.unregister, crash, start)),
    "lags": Profile(0.2, (slow_down, propose_one, write_one, serving.deliver)),
    "restarts": Profile(0.25, (restart_with_less, leave, start, beat, go_on, host_all)),
    "disks": Profile(0.05, (fail_disk, leave_directory_out, repair_disks, start, leave, crash)),
}

_WEIGHTS = list(accumulate(often for often, _ in USUAL))
_STEPS = [step for _, step in USUAL]


def take_step(cluster: Cluster, profile: Profile) -> None:
    if cluster.rng.random() < profile.often:
        cluster.rng.choice(profile.steps)(cluster)
    else:
        cluster.rng.choices(_STEPS, cum_weights=_WEIGHTS)[0](cluster)


# --- the end ----------------------------------------------------------------------------------------------------------


def help_up(cluster: Cluster, broker: Broker, *, may_wait: bool) -> None:
    """A broker without one of its disks is started again with all of them, and one that is leaving, once it has left or nobody
    has to wait for that any more."""
    process = broker.process
    if process is not None and not broker.disks.are_whole:
        broker.die()
        cluster.say("is killed:", broker.id)
        cluster.promises.note_losses()
    elif process is not None and process.is_leaving and process.epoch != NONE and may_wait:
        lives.beat(cluster, broker)
    elif process is not None and process.is_leaving:
        lives.stop(cluster, broker)
    if broker.process is None:
        faults.repair_disks(cluster, broker)
        lives.start(cluster, broker)

"""From a cluster as it is to a plan. All raise CommandError."""

from collections.abc import Mapping, Sequence

from ottla.cli.cluster_state import ClusterNow
from ottla.cli.failures import CommandError
from ottla.cli.placing import Assignment, NotEnoughBrokers, Place, Target, changed, spread


def plan_moves(
    now: ClusterNow, topics: Sequence[str], brokers: Sequence[int] | None, factor: int | None, *, even: bool
) -> Assignment:
    """What has to change. ``topics``: none for all; ``brokers``: None for all in service."""
    known = {topic for topic, _ in now.partitions}
    for name in topics:
        if name not in known:
            raise CommandError(f"there is no topic {name}")
    target = _target(now, brokers, factor)
    before = {place: settled(place, now) for place in now.partitions if not topics or place[0] in topics}
    try:
        return changed(spread(before, target, even=even), now.partitions)
    except NotEnoughBrokers as error:
        raise CommandError(str(error)) from error


def _target(now: ClusterNow, brokers: Sequence[int] | None, factor: int | None = None) -> Target:
    """Who is named takes replicas, in service or not. Without names, what lies on brokers that are away stays there."""
    for each in brokers or ():
        if each not in now.brokers:
            raise CommandError(f"there is no broker {each}: there are {', '.join(map(str, sorted(now.brokers)))}")
    racks = {each: now.brokers[each].rack for each in sorted(now.brokers if brokers is None else brokers)}
    away = frozenset(now.brokers) - frozenset(now.alive)
    return Target(racks, factor, away if brokers is None else frozenset())


def settled(place: Place, now: ClusterNow) -> tuple[int, ...]:
    """The replicas that it has when what moves now has arrived."""
    replicas, moving = now.partitions[place].replicas, now.moving.get(place)
    return replicas if moving is None else tuple(each for each in replicas if each not in moving.removing)


def without(broker_id: int, now: ClusterNow) -> Assignment:
    """Everything off that broker, and nothing else moves."""
    target = _target(now, None)
    target = target._replace(racks={each: rack for each, rack in target.racks.items() if each != broker_id})
    before = {place: settled(place, now) for place in now.partitions}
    there = {place: replicas for place, replicas in before.items() if broker_id in replicas}
    try:
        moved = spread(before, target, even=False)
    except NotEnoughBrokers as error:
        raise CommandError(f"{error}: start another broker first, or lower its replication factor") from error
    return {place: moved[place] for place in there}


def leaderships_off(broker_id: int, now: ClusterNow) -> tuple[Assignment, list[Place]]:
    """The order of replicas in which others are preferred as leaders, and the partitions in which nobody else is in sync."""
    led = dict.fromkeys(now.alive, 0)
    for each in now.partitions.values():
        if each.leader in led:
            led[each.leader] += 1
    plan: Assignment = {}
    alone: list[Place] = []
    for place, partition in sorted(now.on(broker_id).items()):
        if place in now.moving or broker_id not in (partition.leader, partition.replicas[0]):
            continue
        others = [
            each for each in partition.replicas if each in partition.in_sync and each != broker_id and each in led
        ]
        if not others:
            alone.append(place)
            continue
        first = min(others, key=lambda each: (led[each], partition.replicas.index(each)))
        led[first] += 1
        rest = [each for each in partition.replicas if each not in (first, broker_id)]
        plan[place] = (first, *rest, broker_id)
    return plan, alone


def way_back(
    plan: Mapping[Place, Sequence[int]], now: ClusterNow, noted: Mapping[Place, tuple[int, ...]] | None = None
) -> Assignment:
    """The replicas before, of the plan's partitions. ``noted``: what a call before wrote down. It is true of what is as planned by now, or goes
    there, for that call began it; the others may have been moved since, or taken back."""
    before = {
        place: tuple(
            each for each in now.partitions[place].replicas
            if place not in now.moving or each not in now.moving[place].adding
        )
        for place in plan
    }  # fmt: skip
    begun = {place for place, replicas in plan.items() if settled(place, now) == tuple(replicas)}
    return before | {place: replicas for place, replicas in (noted or {}).items() if place in begun}

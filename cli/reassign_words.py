"""What a plan comes to, in words, before anything is done."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ottla.cli.cluster_state import ClusterNow
from ottla.cli.durations import words
from ottla.cli.placing import Cost, Place, changed, cost_of

SHOWN_MAX = 10
_UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))


def size_words(size: int) -> str:
    """`1.2 GB`."""
    for unit, factor in _UNITS:
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"


def summary(plan: Mapping[Place, Sequence[int]], now: ClusterNow, throttle: int | None) -> Iterator[str]:
    """Lines. Every partition of the plan is there."""
    left = changed(plan, now.partitions)
    cost = cost_of(left, now.partitions, now.alive)
    yield f"{len(plan)} partitions: {cost.moved} move, {cost.reordered} only change their order, {len(plan) - len(left)} are so already"
    if cost.bytes_moved:
        yield f"{size_words(cost.bytes_moved)} to move: " + ", ".join(_each_broker(cost))
        if throttle is not None:
            yield f"at {size_words(throttle)}/s a broker: {words(cost.seconds_at(throttle))} at least"
        else:
            yield "without a throttle: as fast as brokers and network can (--throttle BYTES bounds it)"
    yield from _below(cost)
    unknown = sorted({each for replicas in left.values() for each in replicas if each not in now.brokers})
    if unknown:
        yield f"brokers {', '.join(map(str, unknown))} are not registered: the cluster will refuse this"
    away = sorted({each for replicas in left.values() for each in replicas if each in now.brokers} - set(now.alive))
    if away:
        yield f"brokers {', '.join(map(str, away))} are not in service: what moves there waits for them"


def _each_broker(cost: Cost) -> Iterator[str]:
    for broker in sorted({*cost.bytes_in, *cost.bytes_out}):
        sent, taken = cost.bytes_out.get(broker, 0), cost.bytes_in.get(broker, 0)
        ways = [f"{size_words(size)} {way}" for size, way in ((taken, "in"), (sent, "out")) if size]
        yield f"broker {broker} {' and '.join(ways) or 'nothing'}"


def _below(cost: Cost) -> Iterator[str]:
    below = sorted(cost.below_min_in_sync.items())
    if below:
        yield f"{len(below)} partitions will have fewer live replicas than acks=all needs (min.insync.replicas):"
    for (topic, index), (live, needed) in below[:SHOWN_MAX]:
        yield f"  {topic}-{index}: {live} of {needed}"
    if len(below) > SHOWN_MAX:
        yield f"  and {len(below) - SHOWN_MAX} more"


def back_path(plan: Path) -> Path:
    """Where the way back is written."""
    return plan.with_name(f"{plan.stem}.back{plan.suffix or '.json'}")

"""A coordinator of many groups takes over, ages and resigns: what it costs, and how long it holds the loop at a time.

    python -m tests.benchmarks.bench_coordinator_scale [--groups 10000] [--offsets 10] [--partitions 1] [--repeats 1] [--rounds 3]

In one process, the log of `__consumer_offsets` on /dev/shm. CPU time of the loop's thread; a hold is one turn of the loop, in which
nobody else's request is answered. Of several rounds the quickest, and the shortest of the longest holds: the machine has other users.
"""

import argparse
import asyncio
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup, GroupState
from ottla.broker.coordinator.decisions.groups.committed_offset import CommittedOffset
from ottla.broker.coordinator.decisions.groups.group_records import group_record, offset_record
from ottla.broker.coordinator.decisions.groups.member import Member
from ottla.broker.coordinator.placement import partition_of
from ottla.broker.internal_topics import GROUPS
from ottla.log.plain_batch import encode_pairs
from ottla.runtime.launch import run
from tests.benchmarks.bench_group_requests import TOPIC_ID, Bench
from tests.benchmarks.bench_metrics import say
from tests.peers.load.groups import TOPIC

BATCH_RECORDS = 8
SESSION_MS = 45_000
EPOCH = 1


def records_of(group_id: str, offsets: int, members: int, now_ms: int) -> list[Any]:
    group = ClassicGroup(group_id, now_ms)
    for number in range(members):
        member_id = f"consumer-{group_id}-{number}-6e6f74206120757569642061742061"
        group.add(
            Member(member_id, None, "consumer", "/10.0.0.1", 300_000, SESSION_MS, [("range", bytes(40))]), "consumer"
        )
    group.protocol, group.generation, group.state = "range", 1, GroupState.STABLE
    commits = [
        offset_record(group_id, TOPIC, each, CommittedOffset(each, 0, "", now_ms, topic_id=TOPIC_ID))
        for each in range(offsets)
    ]
    return [group_record(group, {each: bytes(40) for each in group.members}), *commits]


def fill(bench: Bench, args: argparse.Namespace) -> None:
    """As commits come in while the groups are used: some to a batch, each group's beside others'."""
    now_ms = int(time.time() * 1000)
    by_place: dict[int, list[Any]] = {}
    for number in range(args.groups):
        name = f"service-{number}"
        by_place.setdefault(partition_of(name, args.partitions), []).extend(
            records_of(name, args.offsets, args.members, now_ms)
        )
    for place, records in by_place.items():
        log = bench.replicas.partitions[GROUPS, place].log
        for _ in range(args.repeats):
            for at in range(0, len(records), BATCH_RECORDS):
                log.append_own(encode_pairs(records[at : at + BATCH_RECORDS], now_ms), EPOCH, now_ms)


class Holds:
    """The turns of the loop, as its thread's CPU time."""

    def __init__(self) -> None:
        self.longest_s = self.spent_s = 0.0

    async def during(self, begin: Callable[[], object], ended: Callable[[], bool]) -> None:
        """Until it is so, and what is begun then is over."""
        after = 0
        before = time.thread_time()
        begin()
        while after < 3:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest_s = max(self.longest_s, now - before)
            self.spent_s += now - before
            before = now
            after = after + 1 if ended() else 0


async def round_of(directory: str, args: argparse.Namespace) -> dict[str, Holds]:
    bench = Bench(directory, args.partitions, listens=False)
    await bench.begin()
    fill(bench, args)
    found = {name: Holds() for name in ("load", "expire", "forget a topic", "resign")}
    coordinator, turns = bench.coordinator, bench.around.turns
    await found["load"].during(
        lambda: bench.replicas.listen(GROUPS, coordinator), lambda: not coordinator.is_loading and not turns
    )
    known = sum(len(shard.offsets) for shard in coordinator.shards())
    assert known == args.groups * args.offsets, known
    await found["expire"].during(coordinator._expire, lambda: not turns)
    await found["forget a topic"].during(
        bench.forget_topic, lambda: not turns and not any(len(shard.offsets) for shard in coordinator.shards())
    )

    def resign() -> None:
        for place in range(args.partitions):
            coordinator.resigned(bench.replicas.partitions[GROUPS, place], EPOCH)

    await found["resign"].during(resign, lambda: not turns)
    coordinator.stop()
    return found


Round = Callable[[str, argparse.Namespace], Awaitable[dict[str, Holds]]]
"""In a directory of its own, by what was asked for."""


async def tell_least(round_of: Round, args: argparse.Namespace) -> None:
    """Of ``args.rounds`` rounds."""
    rounds = []
    for _ in range(args.rounds):
        directory = tempfile.mkdtemp(prefix="ottla-bench-", dir="/dev/shm")
        try:
            rounds.append(await round_of(directory, args))
        finally:
            shutil.rmtree(directory)
    for name in rounds[0]:
        spent, longest = (min(getattr(each[name], what) for each in rounds) for what in ("spent_s", "longest_s"))
        say(f"{name}: {spent * 1000:,.0f} ms of CPU, the longest hold {longest * 1000:,.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--offsets", type=int, default=10, help="of each group")
    parser.add_argument("--members", type=int, default=1, help="of each group")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=1, help="how often each was committed")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    run(lambda: tell_least(round_of, args))


if __name__ == "__main__":
    main()

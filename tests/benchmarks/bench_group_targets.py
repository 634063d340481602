"""A group of 10,000 members is assigned its partitions: what that costs the coordinator, and how long it holds the loop at a time.

    python -m tests.benchmarks.bench_group_targets [--members 10000] [--topics 10] [--partitions 1000] [--assignor uniform] [--rounds 3]

In one process, the log of `__consumer_offsets` on /dev/shm, without sockets. All members join a group of the consumer protocol, one joins
more, and then a tenth of them leaves; each time a heartbeat finds that a target is due. Then others join a classic group, whose
leader brings the assignment. CPU time of the loop's thread from the request until what it asked for is committed; a hold is one turn of
the loop, in which nobody else's request is answered. Of several rounds the quickest, and the shortest of the longest holds: the machine has
other users.
"""

import argparse
import asyncio
from collections.abc import Callable
from typing import Any

from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.broker.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.broker.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.runtime.launch import run
from tests.benchmarks.bench_coordinator_scale import Holds, tell_least
from tests.benchmarks.bench_group_requests import Bench

GROUP = "large"
A_TURN = 20
"""Requests that come in one turn, where it is not they that are measured."""
SESSION_MS = REBALANCE_MS = 60_000
JOINING, LEAVING = 0, -1


class Asker:
    """A member's request, and the answer."""

    version, client_id, client_host = 9, "bench", "/10.0.0.1"
    said: Any = None

    def answer(self, response: Any) -> None:
        self.said = response


class Consumers:
    """The members of a group of the consumer protocol."""

    def __init__(self, bench: Bench, args: argparse.Namespace) -> None:
        self._args = args
        (self._shard,) = bench.coordinator.shards()

    @property
    def group(self) -> ConsumerGroup:
        group = self._shard.consumers.find(GROUP)
        assert group is not None
        return group

    def join(self, number: int) -> None:
        topics = [f"topic-{each}" for each in range(self._args.topics)]
        self._ask(
            ConsumerGroupHeartbeatRequest(
                GROUP,
                f"consumer-{number:05d}-6e6f742061207575696420617420",
                JOINING,
                rebalance_timeout_ms=REBALANCE_MS,
                subscribed_topic_names=topics,
                server_assignor=self._args.assignor,
                topic_partitions=[],
            )
        )

    def beat(self) -> None:
        member = next(iter(self.group.members.values()))
        self._ask(ConsumerGroupHeartbeatRequest(GROUP, member.id, member.epoch))

    def leave(self, member_id: str) -> None:
        self._ask(ConsumerGroupHeartbeatRequest(GROUP, member_id, LEAVING))

    def _ask(self, request: ConsumerGroupHeartbeatRequest) -> None:
        self._shard.heartbeats.heartbeat(Asker(), request)

    async def aim(self) -> Holds:
        """The target of all that joined or left, an interval after the one before."""
        await asyncio.sleep(1.1)
        found = Holds()
        await found.during(self.beat, lambda: self.group.assignment_epoch == self.group.epoch)
        return found


async def in_turns(calls: list[Callable[[], None]]) -> None:
    for number, call in enumerate(calls, 1):
        call()
        if not number % A_TURN:
            await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)


async def consumers(bench: Bench, args: argparse.Namespace) -> dict[str, Holds]:
    members, found = Consumers(bench, args), {}
    await in_turns([lambda number=each: members.join(number) for each in range(args.members - 1)])  # type: ignore[misc]
    found["a target for all"] = await members.aim()
    members.join(args.members)
    found["one more"] = await members.aim()
    leaving = list(members.group.members)[::10]
    await in_turns([lambda member_id=each: members.leave(member_id) for each in leaving])  # type: ignore[misc]
    found["a tenth fewer"] = await members.aim()
    return found


async def classic(bench: Bench, args: argparse.Namespace) -> dict[str, Holds]:
    (shard,) = bench.coordinator.shards()
    name, metadata = "classic", bytes(20)
    askers = [Asker() for _ in range(args.classic)]

    def join(asker: Asker, member_id: str = "") -> None:
        told = [JoinGroupRequestProtocol("range", metadata)]
        shard.joins.join(asker, JoinGroupRequest(name, SESSION_MS, REBALANCE_MS, member_id, None, "consumer", told))

    await in_turns([lambda asker=each: join(asker) for each in askers])  # type: ignore[misc]
    ids = [each.said.member_id for each in askers]
    for each in askers:
        each.said = None
    joined, synced = Holds(), Holds()
    first, *others = zip(askers, ids, strict=True)
    join(*first)
    await asyncio.sleep(0.02)  # alone in its first generation
    await in_turns([lambda asker=each, member_id=id_: join(asker, member_id) for each, id_ in others])  # type: ignore[misc]
    await joined.during(lambda: join(*first), lambda: all(each.said for each in askers))
    leader = askers[0].said
    assert len(leader.members) == args.classic, len(leader.members)
    told = [SyncGroupRequestAssignment(each, bytes(24)) for each in ids]
    last = Asker()
    request = SyncGroupRequest(name, leader.generation_id, leader.member_id, None, "consumer", "range", told)
    await synced.during(lambda: shard.members.sync(last, request), lambda: last.said is not None)
    assert not last.said.error_code, last.said
    return {"classic: all have joined": joined, "classic: the leader's assignment": synced}


async def round_of(directory: str, args: argparse.Namespace) -> dict[str, Holds]:
    bench = Bench(directory, 1)
    bench.add_topics({f"topic-{each}": args.partitions for each in range(args.topics)})
    await bench.begin()
    found = await consumers(bench, args)
    if args.classic:
        found |= await classic(bench, args)
    bench.coordinator.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=1_000, help="of each topic")
    parser.add_argument("--assignor", default="uniform")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--classic", type=int, default=4_000, help="members of a classic group, which have to fit into one record"
    )
    args = parser.parse_args()
    run(lambda: tell_least(round_of, args))


if __name__ == "__main__":
    main()

"""What a committed record costs the quorum's leader, with 0 to 1,000 observers that follow the log.

    python -m tests.benchmarks.observers [--observers 0,10,100,1000] [--commits 100]

Three voters and the observers in one process on the simulation's loop: virtual time, no network, no disk, the same run each
time; requests and answers are encoded and decoded as on the wire. Commits come 20 ms (virtual) apart. Counted is what the
nodes themselves do inside requests, answers, timers and syncs: CPU time, function calls (in a second run; they are the same
each time, where the CPU also feels that a thousand other nodes have used its caches), and the requests they were asked.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from random import Random
from types import FrameType
from typing import Any

from ottla.quorum.listener import CommittedBatch, LeaderAndEpoch
from ottla.quorum.node import QuorumNode
from ottla.quorum.peers import QUORUM_SERVICE
from ottla.quorum.raft.voters import Endpoint
from ottla.quorum.settings import QuorumSettings
from ottla.runtime.clock import SystemClock
from ottla.runtime.host import Host
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.testing.quorum.memory import MemoryLog, MemoryStore
from ottla.testing.quorum.switchboard import Switchboard

VOTERS = 3
PAUSE_S = 0.02
ENTRANCES = ("handle_request", "_answered", "_tick", "_flush", "_synced")


class Listener:
    def __init__(self) -> None:
        self.committed = 0

    def on_commit(self, batch: CommittedBatch) -> None:
        self.committed += len(batch.records)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None: ...

    def on_confirmed(self) -> None: ...

    async def on_snapshot(self, store_path: str | None, offset: int, epoch: int) -> None:
        raise NotImplementedError


class Member:
    """A node whose work is timed, or whose function calls are counted."""

    def __init__(self, node_id: int, voters: dict[int, Endpoint], switchboard: Switchboard, counting: bool) -> None:
        settings = QuorumSettings(
            node_id=node_id,
            cluster_id="benchmark",
            voters=voters,
            is_voter=node_id in voters,
            endpoint=Endpoint(f"host-{node_id}", node_id),
        )
        host = Host(SystemClock(), Random(node_id), None, None, None)  # type: ignore[arg-type]  # nothing asks for these
        self.listener = Listener()
        self.node = QuorumNode(settings, host, switchboard, MemoryLog(), MemoryStore(), self.listener)
        self.cpu_s, self.requests, self.calls = 0.0, 0, 0
        self._inside = False
        self._counting = counting
        for name in ENTRANCES:
            setattr(self.node, name, self._timed(name, getattr(self.node, name)))

    def _timed(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            self.requests += name == "handle_request"
            if self._inside:
                return work(*arguments)
            began, self._inside = time.thread_time(), True
            if self._counting:
                sys.setprofile(self._count)
            try:
                return work(*arguments)
            finally:
                sys.setprofile(None)
                self._inside = False
                self.cpu_s += time.thread_time() - began

        return timed

    def _count(self, _frame: FrameType, event: str, _argument: object) -> None:
        self.calls += event == "call"

    def reset(self) -> None:
        self.cpu_s, self.requests, self.calls = 0.0, 0, 0


async def measure(observers: int, commits: int, counting: bool) -> tuple[Member, Member]:
    """The leader, and the busiest other voter, after ``commits`` records that everyone learned of."""
    switchboard = Switchboard()
    voters = {node: Endpoint(f"host-{node}", node) for node in range(1, VOTERS + 1)}
    members = [Member(node, voters, switchboard, counting) for node in range(1, VOTERS + observers + 1)]
    for member in members[:VOTERS]:
        await switchboard.serve(
            f"host-{member.node.node_id}", member.node.node_id, {QUORUM_SERVICE: member.node.handle_request}
        )
    for member in members:
        await member.node.start()
    await asyncio.sleep(3)
    leader = next(member for member in members if member.node.is_leader)
    for member in members:
        member.reset()
    for number in range(commits):
        leader.node.append([b"%100d" % number], leader.node.leader.epoch)
        await asyncio.sleep(PAUSE_S)
    await asyncio.sleep(0.1)
    assert all(member.listener.committed == commits for member in members), "an observer stayed behind"
    for member in members:
        await member.node.stop(graceful=False)
    followers = [member for member in members[:VOTERS] if member is not leader]
    return leader, max(followers, key=lambda member: member.requests)


def run(observers: int, commits: int, counting: bool) -> tuple[Member, Member]:
    loop = SimulationLoop(seed=1)
    try:
        return loop.run_until_complete(measure(observers, commits, counting))
    finally:
        loop.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--observers", default="0,10,100,1000")
    parser.add_argument("--commits", type=int, default=100)
    args = parser.parse_args()
    print("A commit, at the leader and at the busiest follower:\n")
    print("| observers | requests | calls | CPU us | follower's requests | calls | CPU us |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for observers in map(int, args.observers.split(",")):
        timed, counted = (run(observers, args.commits, counting) for counting in (False, True))
        figures = [
            figure / args.commits
            for one, other in zip(timed, counted, strict=True)
            for figure in (one.requests, other.calls, one.cpu_s * 1e6)
        ]
        print(f"| {observers:,} | {' | '.join(f'{each:,.0f}' for each in figures)} |", flush=True)


if __name__ == "__main__":
    main()

"""Groups of many members: what their heartbeats cost a coordinator, and how soon a group of 200 settles, beside Apache Kafka.

    python -m tests.benchmarks.big_groups [--rounds 3] [--kinds ottla,kafka] [--only beats|settle]

One node of each. ``beats``: 2,000 members in 20 groups, a heartbeat each every three seconds; the node's CPU in percent of a core over
20 seconds, and beside it with nobody connected. ``settle``: 200 members join a new group one after the other, without a pause; milliseconds
from the last JoinGroup until all have their assignment in one generation. Who is told to joins again at once, and asks every 20 ms
whether it is to. Several rounds, the first warms up and does not count.
"""

import argparse
import statistics
import time
from collections.abc import Callable

from tests.benchmarks.clusters import KINDS, Cluster, cpu_s, running
from tests.benchmarks.group_clients import Member, drive
from tests.benchmarks.groups_side_by_side import SETTINGS
from tests.peers.load.groups import find

GROUPS, MEMBERS_A_GROUP, BEAT_S, MEASURED_S = 20, 100, 3.0, 20.0
SETTLING, SETTLING_BEAT_S = 200, 0.02
SUBSCRIPTION = bytes(100)


def settle(cluster: Cluster) -> float:
    """Milliseconds."""
    group = f"settling-{time.time_ns()}"
    members = [Member(cluster.address(1), group, SETTLING_BEAT_S, SUBSCRIPTION) for _ in range(SETTLING)]
    find(members[0].caller, group)
    for member in members:
        member.join()
    began = time.monotonic()

    def ended() -> bool:
        return all(each.is_synced for each in members) and len({each.generation for each in members}) == 1

    drive(members, ended)
    took = time.monotonic() - began
    for member in members:
        member.caller.socket.close()
    return took * 1000


def beats(cluster: Cluster) -> tuple[float, float, float]:
    """Percent of a core, percent without members, and heartbeats a second."""
    idle = _cpu_percent(cluster, lambda: time.sleep(MEASURED_S / 2))
    groups = [f"beating-{time.time_ns()}-{number}" for number in range(GROUPS)]
    members = []
    for group in groups:
        mine = [Member(cluster.address(1), group, BEAT_S, SUBSCRIPTION) for _ in range(MEMBERS_A_GROUP)]
        find(mine[0].caller, group)
        members += mine
    for member in members:
        member.join()
    drive(members, lambda: all(each.is_synced for each in members))
    settled_s = time.monotonic()
    drive(members, lambda: time.monotonic() > settled_s + 2 * BEAT_S)
    before, began = sum(each.beats for each in members), time.monotonic()
    busy = _cpu_percent(cluster, lambda: drive(members, lambda: time.monotonic() > began + MEASURED_S))
    rate = (sum(each.beats for each in members) - before) / (time.monotonic() - began)
    for member in members:
        member.caller.socket.close()
    return busy, idle, rate


def _cpu_percent(cluster: Cluster, work: Callable[[], object]) -> float:
    used, began = cpu_s([cluster.pid(1)]), time.monotonic()
    work()
    return (cpu_s([cluster.pid(1)]) - used) / (time.monotonic() - began) * 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--only", choices=["beats", "settle"])
    args = parser.parse_args()
    for kind in args.kinds.split(","):
        with running(kind, 1, SETTINGS) as cluster:
            if args.only != "beats":
                times = [settle(cluster) for _ in range(args.rounds + 1)][1:]
                told = ", ".join(f"{each:,.0f}" for each in times)
                print(
                    f"{kind}: {SETTLING} members settled {statistics.median(times):,.0f} ms after the last join ({told})"
                )
            if args.only != "settle":
                busy, idle, rate = beats(cluster)
                print(
                    f"{kind}: {GROUPS * MEMBERS_A_GROUP} members in {GROUPS} groups, {rate:,.0f} heartbeats a second: "
                    f"{busy:.1f} % of a core, {idle:.1f} % before"
                )


if __name__ == "__main__":
    main()

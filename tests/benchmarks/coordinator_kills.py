"""How long commits wait when the coordinator of 10,000 groups with 100,000 offsets dies by kill -9.

    python -m tests.benchmarks.coordinator_kills [--kills 6] [--groups 10000] [--offsets 10] [--kinds ottla,kafka]

Three combined nodes, default settings but for the partitions of `__consumer_offsets` (50) on both. All groups are coordinated by one
node, which dies; 24 of them, each with a client of its own, commit every 20 ms: before the kill to the node, after it to whoever the
other nodes name. Milliseconds from the kill to the first commit that was sent after it and taken, of any client, of the median, and of
the last one. Beside them, a connection to each survivor asks ApiVersions every 5 ms: the longest that it waited in those seconds. Then the node is
started again and leads its partitions before the next dies. Each round's line goes to standard error; the table, in Markdown, to standard output.
"""

import argparse
import os
import signal
import statistics
import struct
import sys
import threading
import time
from collections.abc import Iterator

from confluent_kafka.admin import AdminClient, NewTopic

from tests.benchmarks.clusters import KINDS, Cluster, running
from tests.peers.load.beside import Ping
from tests.peers.load.groups import FIND_COORDINATOR, OFFSET_COMMIT, Caller, find, frame, text

NODES = 3
PARTITIONS = 50
SETTINGS = {"offsets.topic.num.partitions": str(PARTITIONS)}
TOPIC = "coordinator-kills"
CLIENTS = 24
WAIT_S = 30.0
IN_FLIGHT = 50
SAMPLE = 300
"""Groups that stand for all: some of each partition."""

Address = tuple[str, int]


def commit_request(group: str, offsets: int) -> bytes:
    """Of as many partitions."""
    partitions = b"".join(struct.pack(">iq", each, 1) + text("") for each in range(offsets))
    head = text(group) + struct.pack(">i", -1) + text("") + struct.pack(">q", -1)
    topic = text(TOPIC) + struct.pack(">i", offsets) + partitions
    return frame(OFFSET_COMMIT, 2, head + struct.pack(">i", 1) + topic)


def coordinator_of(caller: Caller, group: str) -> Address | None:
    """None while there is none."""
    return _told(caller.call(frame(FIND_COORDINATOR, 0, text(group))))


def coordinators_of(caller: Caller, groups: list[str]) -> list[Address | None]:
    """Asked together."""
    for group in groups:
        caller.send(frame(FIND_COORDINATOR, 0, text(group)))
    return [_told(caller.receive()) for _ in groups]


def _told(answer: bytes) -> Address | None:
    error, _, size = struct.unpack_from(">hih", answer)
    if error:
        return None
    (port,) = struct.unpack_from(">i", answer, 8 + size)
    return answer[8 : 8 + size].decode(), port


class Client(threading.Thread):
    """Commits for one group until `stop`. ``taken``: when each commit was sent that was taken."""

    def __init__(self, addresses: list[Address], group: str, offsets: int) -> None:
        super().__init__()
        self._addresses = addresses
        self._group = group
        self._request = commit_request(group, offsets)
        self._stop_asked = threading.Event()
        self.taken: list[tuple[float, float]] = []
        """When it was sent, and when it was answered."""

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()

    def run(self) -> None:
        caller: Caller | None = None
        while not self._stop_asked.wait(0.02):
            try:
                caller = caller or self._find()
                if caller is not None and not self._commit(caller):
                    caller = None
            except (OSError, SystemExit):
                caller = None

    def _commit(self, caller: Caller) -> bool:
        sent = time.monotonic()
        error = struct.unpack(">h", caller.call(self._request)[-2:])[0]
        if not error:
            self.taken.append((sent, time.monotonic()))
        return not error

    def _find(self) -> Caller | None:
        for address in self._addresses:
            try:
                found = coordinator_of(Caller(*address), self._group)
            except (OSError, SystemExit):
                continue
            return Caller(*found) if found is not None else None
        return None


class Pings(threading.Thread):
    """The longest time that a survivor took for an answer."""

    def __init__(self, address: Address) -> None:
        super().__init__()
        self._ping = Ping(*address)
        self._stop_asked = threading.Event()
        self.longest_ms = 0.0

    def run(self) -> None:
        while not self._stop_asked.wait(0.005):
            began = time.monotonic()
            self._ping()
            self.longest_ms = max(self.longest_ms, (time.monotonic() - began) * 1000)

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


def groups_of(cluster: Cluster, node: int, count: int) -> list[str]:
    """Names that the node coordinates, as it says: where a name belongs is the broker's own rule."""
    caller = Caller(*cluster.address(node))
    find(caller, "any")
    mine: list[str] = []
    for number in range(0, 20 * count, IN_FLIGHT):
        names = [f"service-{each}" for each in range(number, number + IN_FLIGHT)]
        found = coordinators_of(caller, names)
        mine += [
            each for each, at in zip(names, found, strict=True) if at is not None and at[1] == cluster.address(node)[1]
        ]
        if len(mine) >= count:
            return mine[:count]
    raise SystemExit(f"node {node} coordinates {len(mine)} groups")


def fill(cluster: Cluster, node: int, groups: list[str], offsets: int) -> None:
    """One request on each of many connections: Kafka takes the next of a connection when it has answered the one before, and gathers commits
    for some milliseconds."""
    callers = [Caller(*cluster.address(node)) for _ in range(IN_FLIGHT)]
    waiting, end = list(groups), time.monotonic() + 120
    while waiting and time.monotonic() < end:
        some = waiting[:IN_FLIGHT]
        for caller, group in zip(callers, some, strict=False):
            caller.send(commit_request(group, offsets))
        errors = [struct.unpack(">h", caller.receive()[-2:])[0] for caller, _ in zip(callers, some, strict=False)]
        waiting = [group for group, error in zip(some, errors, strict=True) if error] + waiting[IN_FLIGHT:]
        if any(errors):
            time.sleep(0.1)  # it leads, and loads
    for caller in callers:
        caller.socket.close()
    if waiting:
        raise SystemExit(f"{len(waiting)} groups could not commit")


def kill_once(cluster: Cluster, node: int, groups: list[str], offsets: int) -> dict[str, float]:
    others = [cluster.address(each) for each in range(1, NODES + 1) if each != node]
    step = max(1, len(groups) // CLIENTS)
    clients = [Client(others, group, offsets) for group in groups[::step][:CLIENTS]]
    pings = [Pings(each) for each in others]
    threads: list[Client | Pings] = [*pings, *clients]
    for each in threads:
        each.start()
    time.sleep(2)
    for ping in pings:
        ping.longest_ms = 0.0
    killed = time.monotonic()
    os.kill(cluster.pid(node), signal.SIGKILL)
    while time.monotonic() - killed < WAIT_S and not all(_waited(each, killed) for each in clients):
        time.sleep(0.01)
    for each in threads:
        each.stop()
    waited = sorted((_waited(each, killed) or WAIT_S) * 1000 for each in clients)
    return {
        "first_ms": round(waited[0]),
        "median_ms": round(statistics.median(waited)),
        "last_ms": round(waited[-1]),
        "ping_ms": round(max(each.longest_ms for each in pings)),
    }


def _waited(client: Client, killed: float) -> float | None:
    return next((answered - killed for sent, answered in client.taken if sent > killed), None)


def start_again(cluster: Cluster, node: int, groups: list[str]) -> None:
    """Returns when it coordinates its groups again: the replica that is preferred leads."""
    cluster.start(node)
    caller = Caller(*cluster.address(node % NODES + 1))
    end = time.monotonic() + 400
    some = groups[:: max(1, len(groups) // SAMPLE)]
    while time.monotonic() < end:
        found = coordinators_of(caller, some)
        if all(each is not None and each[1] == cluster.address(node)[1] for each in found):
            return
        time.sleep(0.5)
    raise SystemExit("the node does not lead its partitions again")


def make_topic(cluster: Cluster, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": "{}:{}".format(*cluster.address(1))})
    admin.create_topics([NewTopic(TOPIC, partitions, NODES)])[TOPIC].result(60)


def rounds(kind: str, args: argparse.Namespace) -> Iterator[dict[str, float]]:
    with running(kind, NODES, SETTINGS | {"leader.imbalance.check.interval.seconds": "5"}) as cluster:
        make_topic(cluster, args.offsets)
        node = NODES
        time.sleep(5)
        groups = groups_of(cluster, node, args.groups)
        for number in range(args.kills):
            fill(cluster, node, groups, args.offsets)
            figures = kill_once(cluster, node, groups, args.offsets)
            print(f"{kind} {number + 1}: {figures}", file=sys.stderr, flush=True)
            yield figures
            if number + 1 < args.kills:
                start_again(cluster, node, groups)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--offsets", type=int, default=10, help="of each group")
    parser.add_argument("--kinds", default=",".join(KINDS))
    args = parser.parse_args()
    print("| | figure | median | worst | goal |\n|---|---|---:|---:|---|")
    for kind in args.kinds.split(","):
        found = list(rounds(kind, args))
        for name in found[0]:
            values = [each[name] for each in found]
            goal = "<= 1,500" if name == "first_ms" else ""
            print(f"| {kind} | {name} | {statistics.median(values):,.0f} | {max(values):,.0f} | {goal} |")


if __name__ == "__main__":
    main()

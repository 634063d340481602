"""Groups whose members join, leave, are killed and paused, in an order that a seed draws; a producer writes all the time.

python -m tests.chaos.groups.trouble [--times 10] [--seed 1] [--kinds librdkafka-eager,aiokafka,...]
"""

import argparse
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from random import Random

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.processes import ProcessCluster, wait_for
from tests.chaos.groups import diary, history, members
from tests.chaos.groups.members import HEARTBEAT_MS, KINDS, SESSION_MS, Place

PARTITIONS = 6
TROUBLES = ("join", "leave", "kill", "pause")
MEMBERS_MAX = 4
PATIENCE_S = 60.0
INTERVAL_S = 0.04
"""Between two records of each partition."""
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
}
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["__main__", members.__name__])


class Numbers:
    """``with Numbers(...) as numbers``: writes 0, 1, 2 ... to each partition, so that a record says which offset it should have."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="numbers")
        self.failures: list[str] = []
        self.written = 0
        """So many are in each partition once it has ended."""

    def __enter__(self) -> "Numbers":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            for partition in range(PARTITIONS):
                self._producer.produce(self._topic, str(self.written), partition=partition, on_delivery=self._delivered)
            self.written += 1
            self._producer.poll(INTERVAL_S)
        self._producer.flush(PATIENCE_S)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.failures.append(str(error))


class Group:
    """The processes of one group, all of one kind of client."""

    def __init__(self, kind: str, place: Place, home: Path, rng: Random) -> None:
        home.mkdir()
        self._kind, self._place, self._home, self._rng = kind, place, home, rng
        self._count = 0
        self._members: dict[str, multiprocessing.process.BaseProcess] = {}
        self._leaving: list[multiprocessing.process.BaseProcess] = []

    # --- members ------------------------------------------------------------------------------------------------------

    def join(self) -> str:
        self._count += 1
        name = f"{self._kind}-{self._count}"
        arguments = (self._kind, self._place, self._home / f"{name}.diary")
        process = _processes.Process(target=members.run, args=arguments, name=name)
        process.start()
        self._members[name] = process
        return name

    def leave(self, name: str) -> None:
        """It may take a while: whoever leaves commits first. Nobody waits for it here."""
        self._end(name, signal.SIGTERM)

    def kill(self, name: str) -> None:
        self._end(name, signal.SIGKILL)

    def _end(self, name: str, number: signal.Signals) -> None:
        process = self._members.pop(name)
        assert process.pid is not None
        os.kill(process.pid, number)
        self._leaving.append(process)

    def pause(self, name: str, seconds: float) -> None:
        pid = self._members[name].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)

    @property
    def names(self) -> list[str]:
        return list(self._members)

    # --- trouble ------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Until the members that there are own all partitions, in equal shares: in others some are about to move still, and
        who changes the group then has them stop in vain."""

        def is_settled() -> bool:
            found = history.owners(self.entries())
            mine = [found.get(name, set()) for name in self._members]
            shares = sorted(map(len, mine))
            return sorted(chain.from_iterable(mine)) == list(range(PARTITIONS)) and shares[-1] - shares[0] <= 1

        wait_for(is_settled, f"{self._kind}: {len(self._members)} members to share the partitions", PATIENCE_S)

    def be_troubled(self, times: int) -> None:
        rng, left = self._rng, [each for each in TROUBLES for _ in range(times)]
        rng.shuffle(left)
        for trouble in left:
            if trouble == "join" and len(self._members) == MEMBERS_MAX:
                self.leave(rng.choice(self.names))
            getattr(self, f"_{trouble}_one")()
            while len(self._members) < 2:
                self.join()
            time.sleep(rng.choice((0.0, 0.1, 0.5, 1.0)))

    def _join_one(self) -> None:
        self.join()

    def _leave_one(self) -> None:
        self.leave(self._rng.choice(self.names))

    def _kill_one(self) -> None:
        self.kill(self._rng.choice(self.names))

    def _pause_one(self) -> None:
        """Sometimes for longer than its session."""
        self.pause(self._rng.choice(self.names), self._rng.choice((0.05, 0.3, 1.0, 1.3 * SESSION_MS / 1000)))

    # --- what it did --------------------------------------------------------------------------------------------------

    def entries(self) -> list[diary.Entry]:
        return diary.read(self._home)

    def finish(self, written: int) -> None:
        """Until everything is read; then what must hold is checked."""

        def is_read() -> bool:
            found = history.read_by(self.entries())
            return all(len(found.get(each, ())) >= written for each in range(PARTITIONS))

        try:
            wait_for(is_read, "all records to be read", PATIENCE_S)
        except TimeoutError:
            entries = self.entries()
            counts = {partition: len(found) for partition, found in sorted(history.read_by(entries).items())}
            owned = {name: owned for name, owned in history.owners(entries).items() if name in self._members}
            raise AssertionError(f"{self._kind}: of {written} records {counts} were read; {owned}") from None
        entries = self.entries()
        history.check_all(entries, PARTITIONS, written)
        assert not [each for each in entries if each.what == "failed"], "a member failed"

    def end(self) -> None:
        """Also of those that should have left and did not."""
        for process in [*self._members.values(), *self._leaving]:
            process.kill()
            process.join()


@contextmanager
def groups(cluster: ProcessCluster, kinds: Sequence[str], seed: int) -> Iterator[tuple[list[Group], Numbers]]:
    """One of each kind, with two members each, on a topic of their own that is being written."""
    topic = f"troubled-{seed}-{time.monotonic_ns()}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(60)
    cluster.wait_for_topic(topic, PARTITIONS)
    with tempfile.TemporaryDirectory(prefix="ottla-groups-") as home:
        found = [
            Group(
                kind,
                Place(cluster.bootstrap_servers, topic, f"{topic}-{kind}"),
                Path(home) / kind,
                Random(f"{seed} {kind}"),
            )
            for kind in kinds
        ]
        try:
            with Numbers(cluster.bootstrap_servers, topic) as numbers:
                for each in found:
                    each.join()
                    each.join()
                yield found, numbers
        finally:
            for each in found:
                each.end()


def trouble(cluster: ProcessCluster, kinds: Sequence[str], times: int, seed: int) -> str:
    """All kinds at once, each in an order of its own. Raises AssertionError; else says what there was."""
    with groups(cluster, kinds, seed) as (found, numbers):
        threads = [threading.Thread(target=each.be_troubled, args=(times,)) for each in found]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        numbers.end()
        assert numbers.failures == []
        for each in found:
            each.finish(numbers.written)
        reads = sum(entry.what == "record" for each in found for entry in each.entries())
        return f"{numbers.written * PARTITIONS} records, read {reads} times by {len(found)} groups"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10, help="joins, leaves, kills and pauses of each group")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    told = parser.parse_args()
    with ProcessCluster(nodes=3, settings=SETTINGS) as cluster:
        print(trouble(cluster, told.kinds.split(","), told.times, told.seed))  # noqa: T201 - it is what it is run for


if __name__ == "__main__":
    main()

"""Copy jobs while their processes, coordinators, leaders and the active controller are killed, or the network is bad.

python -m tests.chaos.copying.trouble [--rounds 3] [--seed 1] [--kinds librdkafka,aiokafka,java]
"""

import argparse
import contextlib
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient

from ottla.broker.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.broker.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.cli.client import Client
from ottla.cli.failures import CommandError
from ottla.testing.chaos.cluster import ChaosCluster
from ottla.testing.checker import Report
from ottla.testing.processes import ProcessCluster, wait_for
from tests.chaos.copying import copiers, history
from tests.chaos.copying.copiers import KINDS, Job
from tests.chaos.copying.java import JAVA, JavaCopier
from tests.chaos.groups import diary
from tests.chaos.groups.trouble import PARTITIONS, Numbers

SLOTS = 2
PATIENCE_S = 90.0
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
_GROUP, _TRANSACTION = 0, 1
ROLES = ("transaction coordinator", "leader", "controller", "group coordinator")
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["__main__", copiers.__name__])


class Process(Protocol):
    def is_alive(self) -> bool: ...
    def kill(self) -> None: ...
    def join(self) -> None: ...


class Copying:
    """One job: so many processes of one kind of client. Of one that ends another takes the place."""

    def __init__(self, kind: str, bootstrap: str, topic: str, home: Path, rng: Random) -> None:
        home.mkdir()
        self.kind, self.target, self.group = kind, f"{topic}-{kind}", f"{topic}-{kind}"
        self._bootstrap, self._source, self._home, self._rng = bootstrap, topic, home, rng
        self._count = 0
        self._running: dict[int, Process] = {}

    def start(self, slot: int) -> None:
        self._count += 1
        job = Job(self._bootstrap, self._source, self.target, self.group, slot, SLOTS, PARTITIONS)
        name = f"{self.kind}-{slot}-{self._count}"
        diary_of_it = self._home / f"{name}.diary"
        if self.kind == JAVA:
            self._running[slot] = JavaCopier(job, diary_of_it)
            return
        process = _processes.Process(target=copiers.run, args=(self.kind, job, diary_of_it), name=name)
        process.start()
        self._running[slot] = process

    def keep_up(self) -> None:
        for slot in range(SLOTS):
            if slot not in self._running or not self._running[slot].is_alive():
                self.start(slot)

    def kill_one(self) -> None:
        slot = self._rng.randrange(SLOTS)
        self._running[slot].kill()
        self._running[slot].join()
        self.start(slot)

    def end(self) -> None:
        for process in self._running.values():
            process.kill()
            process.join()

    # --- what it did --------------------------------------------------------------------------------------------------

    def finish(self, written: int) -> dict[int, list[history.Copy]]:
        """All that a new reader finds who reads what is committed, once everything is copied."""
        with Reader(self._bootstrap, self.target) as reader:

            def is_copied() -> bool:
                self.keep_up()
                reader.read()
                return all(len({copy.number for copy in copies}) >= written for copies in reader.found.values())

            try:
                wait_for(is_copied, "everything to be copied", PATIENCE_S)
            except TimeoutError:
                counts = {partition: len(copies) for partition, copies in reader.found.items()}
                why = [path.read_text(encoding="utf-8")[-1_000:] for path in sorted(self._home.glob("*.error"))]
                raise AssertionError(
                    f"{self.kind}: of {written} records were copied {counts}; {why[-3:]}\n{self._at_work()}"
                ) from None
        with Reader(self._bootstrap, self.target) as reader:
            wait_for(reader.read, f"the end of {self.target}", PATIENCE_S)
            return reader.found

    def _at_work(self) -> str:
        """Where the processes are just now."""
        told = []
        for process in self._running.values():
            if isinstance(process, multiprocessing.process.BaseProcess) and process.pid and process.is_alive():
                os.kill(process.pid, signal.SIGUSR1)
                stacks = self._home / f"{process.name}.stacks"
                with contextlib.suppress(TimeoutError, FileNotFoundError):
                    wait_for(lambda stacks=stacks: stacks.read_text() != "", f"{stacks.name} to be written", 5)  # type: ignore[misc]  # bound now
                    told.append(f"{stacks.name}\n{stacks.read_text(encoding='utf-8')}")
        return "\n".join(told)

    def attempts(self) -> dict[int, history.Attempt]:
        return history.attempts(diary.read(self._home))


class Reader:
    """``with Reader(...) as reader``: of what is committed, from its beginning."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "check",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        self._consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
        self.found: dict[int, list[history.Copy]] = {each: [] for each in range(PARTITIONS)}
        self._ended: set[int] = set()

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self) -> bool:
        """What there is now. True: the end of every partition has been seen."""
        for message in self._consumer.consume(1000, 0.1):
            value, partition = message.value(), message.partition()
            assert partition is not None
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    self._ended.add(partition)
                continue
            assert value is not None
            self.found[partition].append(history.Copy(*map(int, value.split())))
        return len(self._ended) == PARTITIONS


@contextmanager
def copying(
    cluster: ProcessCluster | ChaosCluster, kinds: Sequence[str], seed: int
) -> Iterator[tuple[list[Copying], Numbers]]:
    topic = f"copied-{seed}-{time.monotonic_ns()}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    names = [topic, *(f"{topic}-{kind}" for kind in kinds)]
    made = admin.create_topics([NewTopic(each, PARTITIONS, 3, config={"min.insync.replicas": "2"}) for each in names])
    for name, future in made.items():
        future.result(60)
        cluster.wait_for_topic(name, PARTITIONS)
    with tempfile.TemporaryDirectory(prefix="ottla-copying-") as home:
        jobs = [
            Copying(kind, cluster.bootstrap_servers, topic, Path(home) / kind, Random(f"{seed} {kind}"))
            for kind in kinds
        ]
        try:
            with Numbers(cluster.bootstrap_servers, topic) as numbers:
                for job in jobs:
                    job.keep_up()
                yield jobs, numbers
        finally:
            for job in jobs:
                job.end()


# --- victims ----------------------------------------------------------------------------------------------------------


def coordinator(cluster: ProcessCluster, kind: int, key: str) -> int:
    """-1 while there is none."""
    try:
        with Client(cluster.bootstrap_servers) as client:
            told = client.call(FindCoordinatorRequest("", kind, [key]), FindCoordinatorResponse)
    except CommandError:
        return -1
    return told.coordinators[0].node_id


def controller(cluster: ProcessCluster) -> int:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))
    topics = admin.describe_metadata_quorum()["topics"]
    admin.close()
    return topics[0]["partitions"][0]["leader_id"] if topics else -1


def leader(cluster: ProcessCluster, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    return admin.list_topics(topic, timeout=60).topics[topic].partitions[0].leader


def full_isr(cluster: ProcessCluster, topic: str) -> bool:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    partitions = admin.list_topics(topic, timeout=60).topics[topic].partitions
    return all(len(each.isrs) == 3 for each in partitions.values())


def kill_node(cluster: ProcessCluster, role: str, job: Copying) -> None:
    """Who has that role for the job; it comes back."""
    who: dict[str, Callable[[], int]] = {
        "group coordinator": lambda: coordinator(cluster, _GROUP, job.group),
        "transaction coordinator": lambda: coordinator(cluster, _TRANSACTION, f"{job.group}-0"),
        "leader": lambda: leader(cluster, job.target),
        "controller": lambda: controller(cluster),
    }
    wait_for(lambda: who[role]() > 0, f"a {role}", PATIENCE_S)
    victim = who[role]()
    cluster.kill(victim)
    time.sleep(0.5)
    cluster.start(victim)
    wait_for(lambda: full_isr(cluster, job.target), "the ISR to be full", PATIENCE_S)


class Done(NamedTuple):
    """A job that is over."""

    kind: str
    written: int
    output: dict[int, list[history.Copy]]
    attempts: dict[int, history.Attempt]

    def judged(self) -> Report:
        return history.judged(self.output, self.written, self.attempts)

    def __str__(self) -> str:
        outcomes = [each.outcome for each in self.attempts.values()]
        told = ", ".join(f"{outcomes.count(each)} {each}" for each in ("committed", "aborted", "unknown"))
        return f"{self.kind}: {self.written * PARTITIONS} records, attempts: {told}"


def trouble(
    cluster: ProcessCluster | ChaosCluster,
    kinds: Sequence[str],
    seed: int,
    troubles: Sequence[Callable[[Copying], None]],
) -> list[Done]:
    """A job of each kind. Each trouble comes to one of them, behind the death of a process of one."""
    rng = Random(seed)
    with copying(cluster, kinds, seed) as (jobs, numbers):
        time.sleep(1)
        for number, each in enumerate(troubles):
            jobs[number % len(jobs)].kill_one()
            each(rng.choice(jobs))
            for job in jobs:
                job.keep_up()
        numbers.end()
        assert numbers.failures == []
        return [Done(job.kind, numbers.written, job.finish(numbers.written), job.attempts()) for job in jobs]


def deaths(cluster: ProcessCluster, roles: Sequence[str]) -> list[Callable[[Copying], None]]:
    return [partial(kill_node, cluster, role) for role in roles]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="in each, a holder of every role is killed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    told = parser.parse_args()
    with ProcessCluster(nodes=3, settings=SETTINGS) as cluster:
        for each in trouble(cluster, told.kinds.split(","), told.seed, deaths(cluster, ROLES * told.rounds)):
            print(each, each.judged(), sep="\n")  # noqa: T201 - it is what it is run for


if __name__ == "__main__":
    main()

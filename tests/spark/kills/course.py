"""Kills at random moments, one after another, under a job that must not notice."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random

from kafka import KafkaAdminClient

from ottla.testing.processes import ProcessCluster, wait_for
from tests.spark.kills.job import Job, executors, moment, workers

VICTIMS = ("driver", "executor", "worker", "broker", "controller")

IDLE_ENDS_MAX = 3
"""How often a job may end by itself before it did anything."""


class Course:
    """What is killed when follows from the seed; where exactly it hits follows from the machine."""

    def __init__(self, cluster: ProcessCluster, job: Job, seed: int, victims: tuple[str, ...] = VICTIMS) -> None:
        self._cluster = cluster
        self._job = job
        self._random = Random(seed)
        self._victims = victims
        self._idle_ends = self._batches = 0
        self._began = time.monotonic()
        self.told: list[str] = []

    def run(self, moments: int) -> None:
        """Each victim in turn, in an order that is drawn anew each time round."""
        self._job.start()
        queue: list[str] = []
        for number in range(moments):
            queue = queue or self._random.sample(self._victims, len(self._victims))
            moment(self._job, self._random)
            self._restart_what_ended()
            self._kill(number, queue.pop())
        self._restart_what_ended()

    def finish(self, is_done: Callable[[], bool], timeout_s: float = 240) -> None:
        """Lets the job come to the end, restarted where it died of what it was done to, and stops it."""
        began = time.monotonic()
        while not is_done():
            self._restart_what_ended()
            assert time.monotonic() - began < timeout_s, f"not done:\n{self.history()}\n{self._job.said()}"
            time.sleep(0.2)
        self._restart_what_ended()
        self._job.stop()

    def history(self) -> str:
        return "\n".join(self.told)

    def _restart_what_ended(self) -> None:
        """An ended job is started again, as whatever looks after jobs does. One that only ever fails is not what this is about."""
        if self._job.runs:
            return
        self.told.append(f"{time.monotonic() - self._began:.1f} s: it ended by itself: {self._job.last_words()}")
        self._idle_ends = self._idle_ends + 1 if self._job.batches() == self._batches else 0
        self._batches = self._job.batches()
        assert self._idle_ends < IDLE_ENDS_MAX, f"it does nothing but end:\n{self.history()}\n{self._job.said()}"
        self._job.start()

    def _kill(self, number: int, victim: str) -> None:
        hit = {"driver": self._driver, "executor": self._executor, "worker": self._worker}.get(victim)
        told = hit() if hit else self._node(victim)
        self.told.append(
            f"{time.monotonic() - self._began:.1f} s, {number}: {victim} {told} after {self._job.batches()} batches"
        )

    def _driver(self) -> str:
        pid = self._job.pid
        self._job.kill()
        self._job.start()
        return str(pid)

    def _executor(self) -> str:
        return (
            _kill_one(executors(self._job), self._random) or _kill_one(workers(self._job), self._random) or "none yet"
        )

    def _worker(self) -> str:
        return _kill_one(workers(self._job), self._random) or "none yet"

    def _node(self, victim: str) -> str:
        """Started again after a moment; the next kill waits until it is back."""
        leader = self._controller()
        nodes = [node.node_id for node in self._cluster.nodes]
        node_id = leader if victim == "controller" else self._random.choice([each for each in nodes if each != leader])
        self._cluster.kill(node_id)
        time.sleep(self._random.uniform(0, 1.5))
        self._cluster.start(node_id)
        return str(node_id)

    def _controller(self) -> int:
        found = 0

        def is_known() -> bool:
            nonlocal found
            found = active_controller(self._cluster.bootstrap_servers)
            return found > 0

        wait_for(is_known, "an active controller")
        return found


def active_controller(bootstrap: str) -> int:
    """-1 while nobody leads."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
    topics = admin.describe_metadata_quorum()["topics"]
    admin.close()
    return int(topics[0]["partitions"][0]["leader_id"]) if topics else -1


def _kill_one(pids: list[int], random: Random) -> str:
    """Which; empty when there was none."""
    if not pids:
        return ""
    pid = random.choice(sorted(pids))
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return str(pid)

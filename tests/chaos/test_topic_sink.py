"""A topic sink's tasks while brokers are killed, attempts break off anywhere, and batches come again."""

import contextlib
import itertools
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from ottla.pipeline.wire.connection import Connection, Request
from ottla.testing.processes import ProcessCluster, wait_for
from tests.integration.topic_tasks import PARTITIONS, TopicTasks, connect, make

TASKS, BATCHES, ROWS = 3, 25, 40


class KilledError(BaseException):
    """As SIGKILL: nothing that cleans up may catch it as an error of its own."""


class Breaking:
    """Connections whose threads may be killed before a request leaves, and behind it."""

    def __init__(self) -> None:
        self._chance = threading.local()
        self._send = Connection.send

    def draw(self, seed: int) -> random.Random:
        drawn = self._chance.random = random.Random(seed)
        return drawn

    def send(self, connection: Connection, api: str, *told: Any) -> Request:
        breaks = self._chance.random.random()
        if breaks < 0.02:
            raise KilledError
        sent = self._send(connection, api, *told)
        if breaks < 0.04:
            raise KilledError
        return sent


def write_all(bootstrap: str, task: int, breaking: Breaking) -> None:
    """Each batch until an attempt lives to its end; some once more."""
    draw = breaking.draw(task)
    for batch in range(BATCHES):
        left = 2 if draw.random() < 0.3 else 1
        while left:
            with contextlib.suppress(KilledError), connect(bootstrap) as wire:
                TopicTasks(bootstrap, "t", wire, **{"kafka.batch.size": "200"}).write(
                    batch, *rows(task, batch), task=task
                )
                left -= 1


def rows(task: int, batch: int) -> list[str]:
    return [f"{task}-{batch}-{row}" for row in range(ROWS)]


def all_in_sync(cluster: ProcessCluster) -> bool:
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=60).topics
    return all(len(each.isrs) == len(each.replicas) for topic in topics.values() for each in topic.partitions.values())


def kill_in_turn(cluster: ProcessCluster, goes_on: Callable[[], bool]) -> None:
    """Node after node, until nobody writes any more."""
    for node in itertools.cycle((1, 2, 3)):
        cluster.kill(node)
        cluster.start(node)
        # Else the next to die may be the last in sync, and coordinators wait for it longer than clients wait for them.
        wait_for(lambda: all_in_sync(cluster), "all replicas in sync", 90)
        if not goes_on():
            return


def test_each_row_is_there_once_whatever_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    breaking = Breaking()
    with ProcessCluster(nodes=3, settings={"min.insync.replicas": "2"}) as cluster:
        make(cluster.bootstrap_servers, "t", 3)
        cluster.wait_for_topic("t", PARTITIONS)
        monkeypatch.setattr(Connection, "send", lambda *told: breaking.send(*told))
        with ThreadPoolExecutor(TASKS) as pool:
            tasks = [pool.submit(write_all, cluster.bootstrap_servers, task, breaking) for task in range(TASKS)]
            kill_in_turn(cluster, lambda: any(not task.done() for task in tasks))
        for task in tasks:
            task.result()
        with connect(cluster.bootstrap_servers) as wire:
            found = TopicTasks(cluster.bootstrap_servers, "t", wire).read(TASKS * BATCHES * ROWS)
    assert found == sorted(value for task in range(TASKS) for batch in range(BATCHES) for value in rows(task, batch))

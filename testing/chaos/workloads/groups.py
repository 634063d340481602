"""Consumer groups of both protocols whose members come and go: every record is read by somebody, and no commit is lost."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from ottla.testing.chaos.workloads.clients import consumer, offset_of, partition_of, topic_of, value_of
from ottla.testing.chaos.workloads.sequences import Numbers
from ottla.testing.chaos.workloads.workload import Actor, Workload
from ottla.testing.checker import Assigned, Commit, Isolation, Outcome, Read, now

MEMBERS = 2
LIFE_S = (3.0, 12.0)
COMMIT_S = 0.2
READ_MAX = 200
SESSION_MS = 6_000
CLASSIC = {
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": 500,
    "partition.assignment.strategy": "cooperative-sticky",
}
PROTOCOLS: dict[str, dict[str, Any]] = {"classic": CLASSIC, "consumer": {"group.protocol": "consumer"}}


class Groups(Workload):
    name = "groups"
    description = "a group of each protocol whose members come and go: nothing passed over, no commit lost"
    PARTITIONS = 3

    def actors(self) -> Sequence[Callable[[], Actor]]:
        members = [
            partial(Member, self, group, f"{protocol}-{number}", settings)
            for group, (protocol, settings) in zip(self.groups, PROTOCOLS.items(), strict=True)
            for number in range(MEMBERS)
        ]
        return [partial(Numbers, self, "p"), *members]

    def group_names(self) -> list[str]:
        return [f"{self.name}-{self.site.seed}-{each}" for each in PROTOCOLS]

    def read_finally(self) -> None:
        super().read_finally()
        for group in self.groups:
            committed_finally(self, group, self._places())


def committed_finally(workload: Workload, group: str, places: Sequence[tuple[str, int]]) -> None:
    """What a group has committed in the end."""
    client = consumer(workload.site.bootstrap_servers, **{"group.id": group})
    begin = now()
    for each in client.committed([TopicPartition(*place) for place in places], timeout=30):
        if each.error is not None:
            raise KafkaException(each.error)
        told = Commit(group=group, topic=each.topic, partition=each.partition, offset=max(each.offset, -1), final=True)
        told.begin, told.end, told.outcome = begin, now(), Outcome.OK
        workload.history.write(told)
    client.close()


class Member:
    """Reads and commits what it has read; leaves after a while, and another of another name comes."""

    def __init__(self, workload: Workload, group: str, name: str, settings: dict[str, Any]) -> None:
        self._workload, self._group, self._base, self._settings = workload, group, name, settings
        self._rng = workload.rng(name)
        self._generation = -1
        self._join()

    def _join(self) -> None:
        self._generation += 1
        self._name = f"{self._base}.{self._generation}"
        self._next: dict[tuple[str, int], int] = {}
        """Of the partitions that it owns: where it stands; -1 before the first record."""
        self._committed: dict[tuple[str, int], int] = {}
        self._until = time.monotonic() + self._rng.uniform(*LIFE_S)
        self._due = 0.0
        self._began = now()
        self._found: dict[tuple[str, int], list[Message]] = {}
        told = {"group.id": self._group, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        self._consumer = consumer(self._workload.site.bootstrap_servers, **told, **self._settings)
        self._consumer.subscribe(
            self._workload.topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    # Called while it polls: what was polled before belongs to what it owned before.

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._note_all()
        at = now()
        for each in partitions:
            self._next[each.topic, each.partition] = -1
            told = Assigned(group=self._group, topic=each.topic, partition=each.partition, process=self._name)
            told.begin = told.end = at
            told.outcome = Outcome.OK
            self._workload.history.write(told)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._note_all()
        places = [(each.topic, each.partition) for each in partitions]
        self._commit([each for each in places if each in self._next])
        self._forget(places)

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._note_all()
        self._forget([(each.topic, each.partition) for each in partitions])

    def _forget(self, places: Sequence[tuple[str, int]]) -> None:
        for each in places:
            self._next.pop(each, None)
            self._committed.pop(each, None)

    def step(self) -> None:
        self._began = now()
        patience = 0.1
        for _ in range(READ_MAX):
            message = self._consumer.poll(patience)
            if message is None:
                break
            patience = 0
            if message.error() is None:
                self._found.setdefault((topic_of(message), partition_of(message)), []).append(message)
        self._note_all()
        if time.monotonic() > self._due:
            self._due = time.monotonic() + COMMIT_S
            self._commit(list(self._next))
        if time.monotonic() > self._until:
            self._consumer.close()
            self._join()

    def _note_all(self) -> None:
        found, self._found = self._found, {}
        for place, messages in found.items():
            if place in self._next:
                self._note(place, messages)

    def _note(self, place: tuple[str, int], messages: list[Message]) -> None:
        following = offset_of(messages[-1]) + 1
        self._workload.history.write(
            Read(
                topic=place[0],
                partition=place[1],
                records=[(offset_of(each), value_of(each)) for each in messages],
                start=self._next[place],
                next=following,
                isolation=Isolation.COMMITTED,
                group=self._group,
                process=self._name,
                begin=self._began,
                end=now(),
                outcome=Outcome.OK,
            )
        )
        self._next[place] = following

    def _commit(self, places: Sequence[tuple[str, int]]) -> None:
        due = [each for each in places if self._next[each] >= 0 and self._committed.get(each) != self._next[each]]
        if not due:
            return
        begin = now()
        wanted = [TopicPartition(*each, self._next[each]) for each in due]
        errors: dict[tuple[str, int], str] = {}
        try:
            done = self._consumer.commit(offsets=wanted, asynchronous=False)
            errors = {(each.topic, each.partition): str(each.error) for each in done or () if each.error}
        except KafkaException as error:
            errors = dict.fromkeys(due, str(error))
        for each in due:
            self._note_commit(each, begin, errors.get(each, ""))

    def _note_commit(self, place: tuple[str, int], begin: int, error: str) -> None:
        told = Commit(group=self._group, topic=place[0], partition=place[1], offset=self._next[place], begin=begin)
        told.process, told.error = self._name, error
        if not error:
            told.end, told.outcome = now(), Outcome.OK
            self._committed[place] = self._next[place]
        self._workload.history.write(told)

    def close(self) -> None:
        self._consumer.close()

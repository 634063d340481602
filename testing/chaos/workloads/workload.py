"""What is the same of all workloads: topics, threads that work until they are stopped, a history and its judgement."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from random import Random
from typing import ClassVar, Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.chaos.workloads import final_reads, kept, unclean
from ottla.testing.chaos.workloads.clients import Counted, cause, impatient
from ottla.testing.checker import Recorder, Report, check_file

PREPARE_S = 120.0
"""Topics are made in a moment, but where the machine gives nobody any time."""
STOP_S = 60.0


class Place(Protocol):
    """What a workload has to know of where it works."""

    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def directory(self) -> Path: ...
    @property
    def unclean(self) -> bool: ...
    @property
    def data_directories(self) -> dict[int, tuple[Path, ...]]: ...


class Actor(Protocol):
    """Works in a thread of its own: ``step`` over and over, then ``close``. What a client says goes into the history;
    what is raised ends the workload with that error."""

    def step(self) -> None: ...
    def close(self) -> None: ...


class Workload(ABC):
    """prepare, start, stop, finish, check: in this order. What it does is drawn from the seed."""

    name: ClassVar[str]
    description: ClassVar[str]
    PARTITIONS: ClassVar[int] = 2

    def __init__(self, replication: int = 3, topic_settings: Mapping[str, str] | None = None) -> None:
        self.topics: list[str] = []
        self.groups: list[str] = []
        self.transactional_ids: list[str] = []
        self._replication = replication
        self._settings = (
            dict(topic_settings) if topic_settings else {"min.insync.replicas": str(max(replication - 1, 1))}
        )
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    # --- of each workload -----------------------------------------------------------------------------------------------

    @abstractmethod
    def actors(self) -> Sequence[Callable[[], Actor]]:
        """One thread each, in which it is made."""

    def topic_names(self) -> list[str]:
        return [f"{self.name}-{self.site.seed}"]

    def group_names(self) -> list[str]:
        return []

    def id_names(self) -> list[str]:
        """Transactional ids."""
        return []

    def read_finally(self) -> None:
        """Everything that the checker has to know at the end."""
        final_reads.by_clients(self.site.bootstrap_servers, self._places(), self.history)
        final_reads.of_logs(self.site.data_directories, self._places(), self.history)
        if self.site.unclean:
            known = kept.read(self.site.directory)
            unclean.note(self.site.data_directories, self.topics, self.history, known)

    # --- the life of one ------------------------------------------------------------------------------------------------

    def prepare(self, site: Place) -> None:
        self.site = site
        self.path = site.directory / f"{self.name}.jsonl"
        self.recorder = Recorder(self.path)
        self.history = Counted(self.recorder)
        self.topics, self.groups = self.topic_names(), self.group_names()
        self.transactional_ids = self.id_names()
        if self.topics:
            self._make_topics()

    def rng(self, who: str) -> Random:
        return Random(f"{self.site.seed} {self.name} {who}")

    def start(self) -> None:
        for number, make in enumerate(self.actors()):
            thread = threading.Thread(target=self._act, args=(make,), name=f"{self.name}-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def operations(self) -> int:
        return self.history.acknowledged

    def stop(self) -> None:
        """Raises what ended an actor, and TimeoutError."""
        self._stopping.set()
        until = time.monotonic() + STOP_S
        for each in self._threads:
            each.join(max(until - time.monotonic(), 0))
        if self._errors:
            raise self._errors[0]
        left = [each.name for each in self._threads if each.is_alive()]
        if left:
            raise TimeoutError(f"{', '.join(left)} did not end within {STOP_S:.0f} s")

    def finish(self) -> None:
        self.read_finally()
        self.recorder.close()

    def check(self) -> Report:
        return check_file(self.path)

    def _act(self, make: Callable[[], Actor]) -> None:
        try:
            actor = make()
            try:
                while not self._stopping.is_set():
                    actor.step()
            finally:
                actor.close()
        except BaseException as error:  # noqa: BLE001 - stop() raises it
            self._errors.append(error)

    def _places(self) -> list[tuple[str, int]]:
        return [(topic, index) for topic in self.topics for index in range(self.PARTITIONS)]

    def _make_topics(self) -> None:
        """Where a fault is under way already it takes several tries."""
        admin = AdminClient(impatient(self.site.bootstrap_servers))
        until = time.monotonic() + PREPARE_S
        wanted = [NewTopic(each, self.PARTITIONS, self._replication, config=self._settings) for each in self.topics]
        while not all(_is_made(future) for future in admin.create_topics(wanted, request_timeout=PREPARE_S).values()):
            if time.monotonic() > until:
                raise TimeoutError(f"{', '.join(self.topics)}: not made within {PREPARE_S:.0f} s")
            time.sleep(0.2)
        while not self._all_led(admin):
            if time.monotonic() > until:
                raise TimeoutError(f"{', '.join(self.topics)}: no leaders within {PREPARE_S:.0f} s")
            time.sleep(0.05)

    def _all_led(self, admin: AdminClient) -> bool:
        known = admin.list_topics(timeout=10).topics
        return all(
            each in known
            and len(known[each].partitions) == self.PARTITIONS
            and all(partition.leader >= 0 for partition in known[each].partitions.values())
            for each in self.topics
        )


def _is_made(future: Future[None]) -> bool:
    """False: it is to be asked for again, for nobody answered in time. Raises KafkaException."""
    try:
        future.result(PREPARE_S)
    except KafkaException as error:
        code = cause(error).code()
        if code in (KafkaError.REQUEST_TIMED_OUT, KafkaError._TIMED_OUT):
            return False
        if code != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    return True

"""Offsets of times, the earliest and the latest: an offset that was told once means the same record for ever."""

import time
from collections.abc import Callable, Sequence
from functools import partial

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from ottla.testing.chaos.workloads.clients import Stream, impatient
from ottla.testing.chaos.workloads.workload import Actor, Workload
from ottla.testing.checker import ListOffsets, Outcome, now

ASKING = 2
PAUSE_S = 0.03
STEP_MS, LATE_MS = 10, 40
"""Times of records rise, and some come late."""
WAIT_S = 5.0
NONE_SO_LATE = -1
"""librdkafka says -1001 when the leader did not answer, and calls it no error."""


class ListOffsetsWorkload(Workload):
    name = "list-offsets"
    description = "the earliest and latest offset and those of times, while records with times of their own are written"

    def __init__(self) -> None:
        super().__init__()
        self.times: list[int] = []
        """Of records that were sent."""

    def actors(self) -> Sequence[Callable[[], Actor]]:
        return [partial(Times, self), *(partial(Asking, self, f"l{number}") for number in range(ASKING))]


class Times:
    """Writes records whose times it chooses."""

    def __init__(self, workload: ListOffsetsWorkload) -> None:
        self._workload = workload
        self._rng = workload.rng("times")
        self._stream = Stream("times", workload.site.bootstrap_servers, workload.history)
        self._time_ms = int(time.time() * 1000)

    def step(self) -> None:
        self._time_ms += self._rng.randrange(STEP_MS)
        stamp = self._time_ms - (self._rng.randrange(LATE_MS) if self._rng.random() < 0.2 else 0)
        self._workload.times.append(stamp)
        [topic] = self._workload.topics
        self._stream.send(topic, self._rng.randrange(self._workload.PARTITIONS), timestamp=stamp)
        self._stream.poll(PAUSE_S)

    def close(self) -> None:
        self._stream.close()


class Asking:
    """A client of its own, which asks one thing after another."""

    def __init__(self, workload: ListOffsetsWorkload, name: str) -> None:
        self._workload, self._name = workload, name
        self._rng = workload.rng(name)
        self._admin = AdminClient(impatient(workload.site.bootstrap_servers))

    def step(self) -> None:
        times = self._workload.times
        asked = self._rng.choice(["earliest", "latest", "time", "time"])
        if asked != "time":
            self._ask(asked, OffsetSpec.earliest() if asked == "earliest" else OffsetSpec.latest())
        elif times:
            stamp = self._rng.choice(times) + self._rng.randrange(-1, 2)
            self._ask(stamp, OffsetSpec.for_timestamp(stamp))
        time.sleep(PAUSE_S)

    def _ask(self, asked: str | int, spec: OffsetSpec) -> None:
        [topic] = self._workload.topics
        index = self._rng.randrange(self._workload.PARTITIONS)
        each = ListOffsets(topic=topic, partition=index, asked=asked, process=self._name, begin=now())
        try:
            [future] = self._admin.list_offsets({TopicPartition(topic, index): spec}, request_timeout=WAIT_S).values()
            found = future.result(2 * WAIT_S)
            each.offset, each.timestamp = found.offset, found.timestamp
            each.outcome = Outcome.OK if found.offset >= NONE_SO_LATE else Outcome.FAIL
        except (KafkaException, TimeoutError) as error:
            each.outcome, each.error = Outcome.FAIL, str(error)  # who asks changes nothing
        each.end = now()
        self._workload.history.write(each)

    def close(self) -> None:
        pass

"""Which partitions are to be told how a transaction ended, and through which broker: what falls into a turn in one request, if it fits."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ottla.broker.coordinator.decisions.transactions.effects import Marker
from ottla.broker.wire.messages.write_txn_markers_request import WritableTxnMarker, WritableTxnMarkerTopic
from ottla.broker.wire.messages.write_txn_markers_response import WriteTxnMarkersResponse
from ottla.runtime.errors import ErrorCode

NOWHERE = -1
FIRST_BACKOFF_MS, BACKOFF_MS_MAX = 20, 1_000
LOOKS_MAX = 7
"""A partition that the metadata do not name so many retries long, two seconds or more, is gone. A node that lags learns of a topic that was deleted
and made anew in two steps, and the producer may have written to the new one already."""
REQUEST_BYTES_MAX = 64 << 10
"""What waited for a broker may be more than that takes at once (`ottla.plain.request.max.bytes`), or anybody should wait for."""
PLACE_BYTES = 40
"""At most so many has a place in a request, beside the topic's name."""

_OVER = frozenset(
    (
        ErrorCode.NONE,
        # The partition has seen a later epoch of the producer: nothing of this transaction is open in it.
        ErrorCode.INVALID_PRODUCER_EPOCH,
    )
)

Place = tuple[str, int]
LeaderOf = Callable[[str, int], int | None]
"""The broker that leads a partition, `NOWHERE` for nobody; None: there is no such partition."""


class Task:
    """One transaction's marker, until all partitions have it. Nothing more is done for one that is cancelled."""

    __slots__ = ("backoff_ms", "done", "is_retrying", "marker", "missing", "places")

    def __init__(self, marker: Marker, partitions: Iterable[Place], done: Callable[[], None]) -> None:
        self.marker = marker
        self.done = done
        self.places = dict.fromkeys(partitions, NOWHERE)
        """Through which broker each partition that is left is told."""
        self.missing: dict[Place, int] = {}
        """Those that the metadata do not name, and how many retries long."""
        self.backoff_ms = FIRST_BACKOFF_MS
        self.is_retrying = False


class Batch(NamedTuple):
    """What one request tells."""

    broker_id: int
    parts: list[tuple[Task, list[Place]]]

    def markers(self) -> list[WritableTxnMarker]:
        return [_written(task.marker, places) for task, places in self.parts]


class MarkerQueue:
    """What is to be sent. Asked for leaders when something is added, tried again, or `look_again` is called. Who asks it to route takes
    `unsure` then."""

    def __init__(self, leader_of: LeaderOf) -> None:
        self._leader_of = leader_of
        self._tasks: dict[Task, None] = {}
        self._queues: dict[int, dict[Task, dict[Place, None]]] = {}
        self._unsure: dict[Task, None] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def leaderless(self) -> int:
        """How many transactions wait for the leader of a partition that has none, or whose answer was an error."""
        return sum(NOWHERE in task.places.values() for task in self._tasks)

    def add(self, task: Task) -> bool:
        """False: it has nobody to tell."""
        self._tasks[task] = None
        return self._route(task, list(task.places))

    def cancel(self, task: Task) -> None:
        self._tasks.pop(task, None)
        self._unsure.pop(task, None)
        task.places.clear()

    def unsure(self) -> list[Task]:
        """Those with a partition that may be gone, since the last call: they are to be tried again after their pauses (`retry`)."""
        unsure, self._unsure = self._unsure, {}
        return list(unsure)

    def _route(self, task: Task, places: Iterable[Place]) -> bool:
        for place in places:
            leader = self._leader_of(*place)
            if leader is None:
                self._miss(task, place)
                continue
            task.missing.pop(place, None)
            task.places[place] = leader
            if leader != NOWHERE:
                self._queues.setdefault(leader, {}).setdefault(task, {})[place] = None
        return self._has_more(task)

    def _miss(self, task: Task, place: Place) -> None:
        if task.missing.setdefault(place, 0) < LOOKS_MAX:
            task.places[place] = NOWHERE
            self._unsure[task] = None
        else:
            del task.places[place], task.missing[place]

    def _has_more(self, task: Task) -> bool:
        if not task.places:
            self._tasks.pop(task, None)
        return bool(task.places)

    # --- requests -----------------------------------------------------------------------------------------------------

    def brokers(self) -> list[int]:
        """Those that something is to be sent to."""
        return list(self._queues)

    def take(self, broker_id: int) -> Batch | None:
        """What is to be sent to a broker, as much of it as a request may have."""
        parts: list[tuple[Task, list[Place]]] = []
        rest: dict[Task, dict[Place, None]] = {}
        left = REQUEST_BYTES_MAX
        for task, places in self._queues.pop(broker_id, {}).items():
            if left <= 0:
                rest[task] = places
                continue
            here = [each for each in places if task.places.get(each) == broker_id]
            count, left = _fitting(here, left)
            if count:
                parts.append((task, here[:count]))
            if count < len(here):
                rest[task] = dict.fromkeys(here[count:])
        if rest:
            self._queues[broker_id] = rest
        return Batch(broker_id, parts) if parts else None

    def lost(self, batch: Batch) -> list[Task]:
        """No answer comes: its partitions are told again. Returns who has nobody left to tell."""
        return self._again((task, _here(task, places, batch)) for task, places in batch.parts)

    def answered(self, batch: Batch, response: WriteTxnMarkersResponse) -> tuple[list[Task], list[Task]]:
        """Returns who has nobody left to tell, and who is to be tried again after its pause (`retry`)."""
        errors = {
            (marker.producer_id, topic.name, each.partition_index): each.error_code
            for marker in response.markers
            for topic in marker.topics
            for each in topic.partitions
        }
        done, failed = [], []
        for task, places in batch.parts:
            left = _here(task, places, batch)
            for place in left:
                code = errors.get((task.marker.producer_id, *place), ErrorCode.UNKNOWN_SERVER_ERROR)
                _settle(task, place, code)
            if left and not self._has_more(task):
                done.append(task)
            elif any(task.places.get(place) == NOWHERE for place in left):
                failed.append(task)
        return done, failed

    def told(self, batch: Batch, task: Task, place: Place, code: int) -> bool | None:
        """One partition's answer. Returns True if the task has nobody left to tell, False if it is to be tried again after its
        pause (`retry`)."""
        if task.places.get(place) != batch.broker_id:
            return None
        _settle(task, place, code)
        if not self._has_more(task):
            return True
        return False if place in task.places else None

    def retry(self, task: Task) -> bool:
        """False: it has nobody left to tell."""
        task.backoff_ms = min(2 * task.backoff_ms, BACKOFF_MS_MAX)
        for place in task.missing:
            task.missing[place] += 1
        return self._route(task, [place for place, broker_id in task.places.items() if broker_id == NOWHERE])

    def look_again(self) -> list[Task]:
        """Leaders may have changed. Returns who has nobody left to tell."""
        return self._again((task, self._elsewhere(task)) for task in list(self._tasks))

    def _elsewhere(self, task: Task) -> list[Place]:
        return [place for place, broker_id in task.places.items() if self._leader_of(*place) != broker_id]

    def _again(self, moved: Iterable[tuple[Task, list[Place]]]) -> list[Task]:
        return [task for task, places in moved if places and not self._route(task, places)]


def _settle(task: Task, place: Place, code: int) -> None:
    if code in _OVER:
        del task.places[place]
    else:
        task.places[place] = NOWHERE


def _fitting(places: list[Place], left: int) -> tuple[int, int]:
    """How many go, and how many bytes are left then: the last one may be more than that."""
    for count, (topic, _) in enumerate(places):
        if left <= 0:
            return count, left
        left -= PLACE_BYTES + len(topic)
    return len(places), left


def _here(task: Task, places: Iterable[Place], batch: Batch) -> list[Place]:
    """Of those that were sent: who is waited for yet, and there."""
    return [each for each in places if task.places.get(each) == batch.broker_id]


def _written(marker: Marker, places: Iterable[Place]) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.epoch,
        transaction_result=marker.is_commit,
        topics=[WritableTxnMarkerTopic(topic, indexes) for topic, indexes in topics.items()],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )


def places_of(partitions: Iterable[tuple[str, Iterable[int]]]) -> Iterator[Place]:
    return ((topic, index) for topic, indexes in partitions for index in indexes)

"""Which replicas this broker has to host, and those of them that wait for their role. Creating a log costs a directory and a file, tenths of a millisecond: a topic of thousands of partitions must
not keep the loop from heartbeats and votes meanwhile."""

from collections.abc import Callable

import msgspec

from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import DIRECTORY_NOT_MADE, PartitionView
from ottla.runtime.timers import LoopTimers

CREATION_COST = 20
ROLE_COST = 1
TURN_COST = 500
"""What one turn of the loop takes on: 25 new logs or 500 changes of role, 15 to 30 ms."""

Key = tuple[bytes, int]


class Replica(msgspec.Struct, frozen=True):
    """A partition that is to be hosted here, as the image has it. ``is_new``: this broker never had a log of it."""

    topic: str
    index: int
    topic_id: bytes
    view: PartitionView
    is_new: bool

    @property
    def key(self) -> Key:
        return self.topic_id, self.index


def replica_of(key: Key, image: MetadataImage, node_id: int) -> Replica | None:
    """None: that broker is not to host it."""
    topic_id, index = key
    topic = image.topics_by_id.get(topic_id)
    view = topic.partitions.get(index) if topic is not None else None
    if topic is None or view is None or node_id not in view.replicas:
        return None
    # Who is trusted with records has them: if no log of it is found, that lies in a directory that is lost.
    is_trusted = node_id in view.isr or node_id in view.elr or node_id in view.last_known_elr
    is_new = view.partition_epoch == 0 or not is_trusted or view.directory_of(node_id) == DIRECTORY_NOT_MADE
    return Replica(topic.name, index, topic_id, view, is_new)


class HostingQueue:
    """Replicas in a queue, asked for one after another in the order of their first mention, each as the metadata has it by
    then."""

    def __init__(self, timers: LoopTimers, host: Callable[[Key, bool], int]) -> None:
        """``host`` gives a replica its role and says what that cost; its second argument is what `add` was told."""
        self._timers = timers
        self._host = host
        self._waiting: dict[Key, bool] = {}
        self._planned = False

    def __contains__(self, key: Key) -> bool:
        return key in self._waiting

    def add(self, key: Key, is_new: bool) -> None:
        """``is_new``: it has no log yet. That stays true, whatever the metadata says of it before its turn comes."""
        self._waiting[key] = self._waiting.get(key, False) or is_new
        self._plan()

    def discard(self, key: Key) -> None:
        """It is not to be hosted here any more."""
        self._waiting.pop(key, None)

    def clear(self) -> None:
        self._waiting.clear()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._timers.call_later_ms(0, self._take_turn)

    def _take_turn(self) -> None:
        self._planned = False
        cost = 0
        while self._waiting and cost < TURN_COST:
            key = next(iter(self._waiting))
            cost += self._host(key, self._waiting.pop(key))
        if self._waiting:
            self._plan()

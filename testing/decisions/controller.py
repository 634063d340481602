"""The controller under test: the deciders, the state and the chores of the product, without a quorum, threads or timers.

What is written is committed at once. What is left to chance is who has the next turn: each piece of a request, each chore and each step of a
fencing is one turn, and anything may happen in between, a change of controllers too.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions import pieces
from ottla.quorum.controller.decisions.chores import has_chores, next_chore
from ottla.quorum.controller.decisions.cluster import fence_first_expired
from ottla.quorum.controller.decisions.decision import Record
from ottla.quorum.controller.decisions.elections import rebalance_leaders
from ottla.quorum.controller.decisions.features import bootstrap_records
from ottla.quorum.controller.decisions.state import ControllerSettings, ControllerState
from ottla.quorum.controller.decisions.sweep import Change, Step, Sweep
from ottla.quorum.controller.dispatch import decide, note_contact, note_outcome
from ottla.quorum.metadata.delta import MetadataDelta, PartitionKey
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import PartitionView
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.testing.decisions.rules import check_broker, check_image, check_index
from ottla.testing.decisions.words import Say, describe_request

CLUSTER_ID = "c"
START_MS = 1_000_000
SETTINGS = ControllerSettings(cluster_id=CLUSTER_ID, topic_defaults={"min.insync.replicas": "2"})
ASKED_AGAIN = 0.7  # of those who wait when the controller goes
_TAKES_OUT = ("register_broker", "unregister_broker")
_OF_BROKERS = ("register_broker", "broker_registration_change", "unregister_broker")

Reply = Callable[[Any, int], None]
"""The response, or None and the error."""
OnChange = Callable[[PartitionKey, PartitionView, PartitionView, str], None]
"""The partition before and after, and what for."""


class Asked(NamedTuple):
    """A request of which not all pieces are decided."""

    request: rpc.ControllerRequest
    reply: Reply | None
    is_first: bool = True


@contextmanager
def in_pieces_of(changes_max: int) -> Iterator[None]:
    """What concerns many partitions is decided for so many at a time."""
    step = Sweep.step

    def small_step(sweep: Sweep, change: Change, most: int) -> Step:
        return step(sweep, change, min(most, changes_max))

    with patch.object(Sweep, "step", small_step), patch.object(pieces, "CHANGES_MAX", changes_max):
        yield


class Controller:
    """``on_change`` is told of each change of a partition, in the moment in which it is made. ``taken_out``: brokers in service that
    are to be registered anew, or forgotten, of which that has begun. ``forgotten``: the one of the unregistration that is being decided."""

    def __init__(self, rng: Random, on_change: OnChange, say: Say) -> None:
        self.log: list[bytes] = []
        self.now_ms = START_MS
        self.waiting: list[Asked] = []
        self.taken_out: set[int] = set()
        self.forgotten: int | None = None
        self._rng, self._on_change, self._say = rng, on_change, say
        self.state = ControllerState(MetadataImage(), SETTINGS, rng)
        self.write(bootstrap_records(), "a new cluster")

    @property
    def image(self) -> MetadataImage:
        return self.state.image

    def partitions(self) -> dict[PartitionKey, PartitionView]:
        topics = self.image.topics_by_id.values()
        return {(topic.id, index): each for topic in topics for index, each in topic.partitions.items()}

    # --- writing ------------------------------------------------------------------------------------------------------

    def write(self, records: Iterable[Record], why: str) -> None:
        """Each record comes to be as other nodes will read it."""
        for record in records:
            before = self._concerned(record)
            self.log.append(record.SerializeToString())
            self.state.replay(pb.MetadataRecord.FromString(self.log[-1]))
            for key, old in before.items():
                new = self.image.partition(*key)
                if new is not None and new is not old:
                    self._on_change(key, old, new, why)
            if record.WhichOneof("body") in _OF_BROKERS:
                broker_id = getattr(record, str(record.WhichOneof("body"))).broker_id
                check_broker(self.image, broker_id)
                if not self.state.is_active(broker_id):
                    self.taken_out.discard(broker_id)

    def _concerned(self, record: Record) -> dict[PartitionKey, PartitionView]:
        """The partitions that a record may change, as they are."""
        kind = record.WhichOneof("body")
        if kind == "clear_elr":
            return self.partitions()
        if kind != "partition_change":
            return {}
        key = (record.partition_change.topic_id, record.partition_change.partition_id)
        partition = self.image.partition(*key)
        return {key: partition} if partition is not None else {}

    # --- turns --------------------------------------------------------------------------------------------------------

    def ask(self, request: rpc.ControllerRequest, reply: Reply | None = None) -> None:
        """The first piece is decided at once."""
        self._say("asked", lambda: describe_request(request))
        self._decide(Asked(request, reply))

    def go_on(self) -> None:
        """A piece more for any of those who wait."""
        if self.waiting:
            self._decide(self.waiting.pop(self._rng.randrange(len(self.waiting))))

    def _decide(self, asked: Asked) -> None:
        name = str(asked.request.WhichOneof("body"))
        if name == "broker_heartbeat" and asked.is_first:
            note_contact(self.state, asked.request.broker_heartbeat, self.now_ms)
        try:
            decision = decide(self.state, name, asked.request, len(self.log), self.now_ms)
        except KafkaError as error:
            self._say("refused", error.code.name, error.message)
            self._note_taking_out(asked, ends=True)
            self._answer(asked, None, error.code)
            return
        self._note_taking_out(asked, ends=decision.is_last)
        self.forgotten = asked.request.unregister_broker.broker_id if name == "unregister_broker" else None
        self.write(decision.records, name)
        self.forgotten = None
        if decision.is_last:
            note_outcome(self.state, name, asked.request, decision.response, len(self.log) - 1, self.now_ms)
            self._answer(asked, decision.response, ErrorCode.NONE)
        else:
            self.waiting.append(asked._replace(is_first=False))

    def _note_taking_out(self, asked: Asked, *, ends: bool) -> None:
        name = str(asked.request.WhichOneof("body"))
        if name not in _TAKES_OUT:
            return
        broker_id = getattr(asked.request, name).broker_id
        if ends:
            self.taken_out.discard(broker_id)
        elif self.state.is_active(broker_id):
            self.taken_out.add(broker_id)

    def _answer(self, asked: Asked, response: Any, error: int) -> None:
        if asked.reply is not None:
            asked.reply(response, error)

    def chore(self) -> bool:
        """False: there is none."""
        if not has_chores(self.state):
            return False
        chore = next_chore(self.state)
        self.write(chore.records, chore.cause)
        return True

    def fence(self) -> bool:
        """The next step of fencing whoever was not heard from. False: there is nobody."""
        step = fence_first_expired(self.state, self.now_ms)
        if step is not None:
            self.write(step.records, f"broker {step.broker_id} is fenced")
        return step is not None

    def rebalance(self) -> None:
        self.write(rebalance_leaders(self.state).records, "first replicas lead again")

    # --- another controller -------------------------------------------------------------------------------------------

    def fail_over(self) -> None:
        """Another controller begins with what is committed, and nothing else. Who waits asks it again, or was told to and does not."""
        self._say("another controller")
        self.check()
        self.state = ControllerState(self._replayed(), SETTINGS, self._rng)
        for broker in self.image.brokers.values():
            if not broker.fenced:
                self.state.sessions.expect(broker.id, broker.epoch, self.now_ms)
        waiting, self.waiting = self.waiting, []
        self.taken_out.clear()
        for asked in waiting:
            if self._rng.random() < ASKED_AGAIN:
                self.waiting.append(asked._replace(is_first=True))
            else:
                self._answer(asked, None, ErrorCode.NOT_CONTROLLER)

    def check(self) -> None:
        """Raises Violation when what is kept beside the records is not what they say."""
        check_image(self.image, self._replayed())
        check_index(self.state)

    def _replayed(self) -> MetadataImage:
        image = MetadataImage()
        for encoded in self.log:
            image.apply(pb.MetadataRecord.FromString(encoded), MetadataDelta())
        return image

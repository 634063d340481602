"""A controller on a log that commits when it is told to, in a time that stands still until it is moved."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, cast

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.controller import Controller
from ottla.quorum.controller.decisions.features import supported_ranges
from ottla.quorum.controller.decisions.state import ControllerSettings
from ottla.quorum.listener import CommittedBatch, LeaderAndEpoch, NotLeaderError, QuorumMembers
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.quorum.voter_changes import OnChanged
from ottla.runtime.clock import SystemClock
from ottla.runtime.host import Host
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.sync_later import SyncLater
from ottla.runtime.timers import LoopTimers
from tests.unit.quorum.metadata.metadata_records import DictStore

SELF, OTHER = 1, 2


class ManualLoop:
    """As much of a loop as timers need; its time stands still until `advance`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._calls: list[tuple[float, int, Callable[[], object], asyncio.TimerHandle]] = []
        self._count = 0

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None: ...

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, cast(asyncio.AbstractEventLoop, self))
        self._count += 1
        self._calls.append((when, self._count, lambda: callback(*args), handle))
        return handle

    def advance(self, ms: int) -> None:
        end = self.now + ms / 1000
        while due := sorted(each for each in self._calls if each[0] <= end):
            when, _, call, handle = due[0]
            self._calls.remove(due[0])
            self.now = max(self.now, when)
            if not handle.cancelled():
                call()
        self.now = end


class FakeQuorum:
    """A log that commits when it is told to; `lead` and `follow` say who leads it."""

    def __init__(self) -> None:
        self.node_id = SELF
        self.leader = LeaderAndEpoch(None, 0)
        self.log: list[CommittedBatch] = []
        self.delivered = 0
        self.resigned: list[int] = []
        self.known = QuorumMembers()
        self.upgrades: list[tuple[OnChanged, bool]] = []

    def members(self) -> QuorumMembers:
        return self.known

    def upgrade_kraft_version(self, on_done: OnChanged, *, validate_only: bool) -> None:
        self.upgrades.append((on_done, validate_only))

    @property
    def is_leader(self) -> bool:
        return self.leader.leader_id == SELF

    @property
    def next_offset(self) -> int:
        return self.log[-1].last_offset + 1 if self.log else 0

    def append(self, records: list[bytes], epoch: int, cause: str = "") -> int:
        if not self.is_leader or epoch != self.leader.epoch:
            raise NotLeaderError(self.leader)
        base = self.next_offset
        self.log.append(CommittedBatch(base, base + len(records) - 1, epoch, 0, list(records), cause))
        return self.log[-1].last_offset

    def resign(self, epoch: int) -> None:
        self.resigned.append(epoch)


class Bench:
    """A controller on a fake quorum."""

    def __init__(self, **settings: Any) -> None:
        self.loop = ManualLoop()
        self.quorum = FakeQuorum()
        self.knocked: list[tuple[int, Callable[[], None]]] = []
        self.answers: list[rpc.ControllerResponse] = []
        self._settings = {"cluster_id": "c", **settings}
        self._store = DictStore()
        self._begin()

    def _begin(self) -> None:
        self.loader = MetadataLoader(self._store)
        host = Host(SystemClock(), Random(3), RealDisk(), lambda path: DictStore(), SyncLater())
        self.controller = Controller(
            self.quorum,
            self.loader,
            host,
            LoopTimers(cast(asyncio.AbstractEventLoop, self.loop)),
            ControllerSettings(**self._settings),
            lambda host, port, on_refused: self.knocked.append((port, on_refused)),
        )

    def restart(self, epoch: int) -> "Bench":
        """The process ended without a word, another took its place and leads."""
        self.quorum.log = self.quorum.log[: self.quorum.delivered]
        self._begin()
        self.controller.recall(self.quorum.log)
        return self.lead(epoch)

    def lead(self, epoch: int = 1) -> "Bench":
        self.quorum.leader = LeaderAndEpoch(SELF, epoch)
        self.controller.on_leader_change(self.quorum.leader)
        return self

    def follow(self, epoch: int = 2) -> None:
        """Another node leads and what was not committed here is gone."""
        self.quorum.log = self.quorum.log[: self.quorum.delivered]
        self.quorum.leader = LeaderAndEpoch(OTHER, epoch)
        self.controller.on_leader_change(self.quorum.leader)

    def commit(self, batches: int | None = None) -> "Bench":
        """Commits what was appended, or so many batches of it."""
        end = len(self.quorum.log) if batches is None else self.quorum.delivered + batches
        while self.quorum.delivered < end:
            batch = self.quorum.log[self.quorum.delivered]
            self.quorum.delivered += 1
            self.loader.on_commit(batch)
            self.controller.on_commit(batch)
        return self

    def turns(self, count: int) -> "Bench":
        """Lets that many batches be appended, or gives up after some milliseconds."""
        end = len(self.quorum.log) + count
        for _ in range(5 * count):
            if len(self.quorum.log) < end:
                self.loop.advance(1)
        return self

    def ask(self, request_id: bytes = b"", **body: Any) -> "list[rpc.ControllerResponse]":
        """Asks; the list holds the answer once it came."""
        answers: list[rpc.ControllerResponse] = []
        request = rpc.ControllerRequest(origin="a test", request_id=request_id, **body)
        self.controller.handle(request, answers.append)
        return answers

    def broker(
        self, broker_id: int, handle: Callable[..., None] | None = None, more: Sequence[pb.Endpoint] = ()
    ) -> int:
        """Registers and unfences a broker; its epoch. ``more``: endpoints after the usual one."""
        registration = rpc.RegisterBrokerRequest(
            broker_id=broker_id,
            cluster_id="c",
            incarnation_id=bytes([broker_id]) * 16,
            features=supported_ranges(),
            endpoints=[pb.Endpoint(name="PLAINTEXT", host="h", port=9000 + broker_id), *more],
        )
        answers = self.ask(register_broker=registration)
        self.commit()
        epoch: int = answers[0].register_broker.broker_epoch
        self.heartbeat(broker_id, epoch, handle)
        self.commit()
        return epoch

    def heartbeat(self, broker_id: int, epoch: int, handle: Callable[..., None] | None = None) -> None:
        beat = rpc.BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=self.quorum.next_offset
        )
        (handle or self.controller.handle)(rpc.ControllerRequest(broker_heartbeat=beat), self.answers.append)

    def is_fenced(self, broker_id: int) -> bool:
        return self.loader.image.brokers[broker_id].fenced


def create(name: str, partitions: int = 1) -> dict[str, Any]:
    topic = rpc.CreateTopicsRequest.Topic(name=name, num_partitions=partitions, replication_factor=1)
    return {"create_topics": rpc.CreateTopicsRequest(topics=[topic])}


def kinds(batches: Sequence[CommittedBatch]) -> list[list[str | None]]:
    return [[pb.MetadataRecord.FromString(each).WhichOneof("body") for each in batch.records] for batch in batches]


def records(count: int, size: int) -> list[pb.MetadataRecord]:
    return [pb.MetadataRecord(config=pb.Config(value="x" * size)) for _ in range(count)]


# --- attempts ---------------------------------------------------------------------------------------------------------


def grown(name: str, count: int) -> dict[str, Any]:
    topic = rpc.CreatePartitionsRequest.Topic(name=name, count=count)
    return {"create_partitions": rpc.CreatePartitionsRequest(topics=[topic])}

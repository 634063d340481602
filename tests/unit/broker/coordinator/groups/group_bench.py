"""A shard of groups on a bench: its records are committed when the test says so, and its clock stands until it is moved."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ottla.broker.coordinator.decisions.effects import Done, ProducerBatch, Record
from ottla.broker.coordinator.decisions.groups.settings import GroupSettings
from ottla.broker.coordinator.decisions.groups.shard import GroupShard
from ottla.broker.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.broker.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.broker.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.broker.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.shard_bench import ShardBench

DAY_MS = 86_400_000


class Asked:
    """A request, and what was answered."""

    def __init__(self, version: int, client_id: str = "c", client_host: str = "/10.0.0.1") -> None:
        self.version, self.client_id, self.client_host = version, client_id, client_host
        self.answers: list[Any] = []

    def answer(self, response: msgspec.Struct) -> None:
        assert not self.answers, "answered twice"
        self.answers.append(response)

    @property
    def waits(self) -> bool:
        return not self.answers

    @property
    def said(self) -> Any:
        assert self.answers, "not answered yet"
        return self.answers[0]

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.said.error_code)


class Bench(ShardBench):
    """The effects of one shard, and the requests of its clients."""

    shard: GroupShard

    def __init__(self, *, commits: bool = True, **settings: Any) -> None:
        super().__init__(commits=commits)
        self.producers: dict[int, int] = {}
        """By place in the log: of the transactions that records are part of."""
        self.markers: dict[int, list[tuple[int, bool]]] = {}
        """By place in the log: producer ids of transactions that ended before it, and whether they were committed."""
        self.settings = GroupSettings(**settings)
        self.topic_ids = {name: name.encode().ljust(16, b".") for name in ("t", "u")}
        self.partitions = dict.fromkeys(self.topic_ids.values(), 4)
        self._ids = 0
        self._is_in_piece = False
        self.own_settings: dict[str, dict[str, str]] = {}
        """Of groups, by their ids."""
        self.shard = GroupShard(self, self.settings, self, lambda group_id: self.own_settings.get(group_id, {}))

    # --- Topics -------------------------------------------------------------------------------------------------------

    def id_of(self, name: str) -> bytes | None:
        return self.topic_ids.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, each in self.topic_ids.items() if each == topic_id), None)

    def has(self, name: str, index: int) -> bool:
        return name in self.topic_ids and 0 <= index < 2_000

    def partition_count(self, topic_id: bytes) -> int:
        return self.partitions.get(topic_id, 0)

    def names(self) -> list[str]:
        return list(self.topic_ids)

    version = 1

    # --- Effects ------------------------------------------------------------------------------------------------------

    def new_id(self) -> str:
        self._ids += 1
        return f"id{self._ids}"

    def write_transactional(self, records: Sequence[Record], batch: ProducerBatch, guard: int, done: Done) -> None:
        if self.refuses:
            done(self.refuses)
            return
        for each in records:
            self.shard.replay(each, len(self.log), batch.producer_id)
            self.producers[len(self.log)] = batch.producer_id
            self.log.append(each)
        self.written.append(len(records))
        self._waiting.append((done, []))
        if self.commits:
            self.commit()

    def soon(self, call: Callable[[], None]) -> None:
        """At once; what a piece asks for comes ten milliseconds later."""
        if self._is_in_piece:
            self.remind(("soon", self.reminded), 10, call)
            return
        self._is_in_piece = True
        try:
            call()
        finally:
            self._is_in_piece = False

    # --- the test's hands ---------------------------------------------------------------------------------------------

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Its marker is written."""
        self.markers.setdefault(len(self.log), []).append((producer_id, is_commit))
        self.shard.end_transaction(producer_id, is_commit=is_commit)

    def another(self) -> "Bench":
        """A coordinator that takes over: it has what was written, as bytes."""
        other = Bench(commits=self.commits)
        other.settings, other.topic_ids, other._ids = self.settings, self.topic_ids, self._ids
        other.partitions, other.own_settings = self.partitions, self.own_settings
        other.clock_ms, other.time_ms, other.log = 77, self.time_ms, list(self.log)
        other.shard = GroupShard(other, self.settings, other, lambda group_id: self.own_settings.get(group_id, {}))
        for offset, record in enumerate(self.log):
            self._replay_markers(other.shard, offset)
            other.shard.replay(Record(record.key, record.value), offset, self.producers.get(offset, -1))
        self._replay_markers(other.shard, len(self.log))
        for _ in other.shard.begin():
            pass
        return other

    def _replay_markers(self, shard: GroupShard, offset: int) -> None:
        for producer_id, is_commit in self.markers.get(offset, ()):
            shard.end_transaction(producer_id, is_commit=is_commit)

    # --- clients ------------------------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        version: int = 9,
        group: str = "g",
        instance: str | None = None,
        protocols: Sequence[str] = ("range",),
        kind: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        metadata: bytes = b"",
        client_id: str = "c",
    ) -> Asked:
        asked = Asked(version, client_id)
        told = [JoinGroupRequestProtocol(each, metadata or each.encode()) for each in protocols]
        self.shard.joins.join(asked, JoinGroupRequest(group, session_ms, rebalance_ms, member_id, instance, kind, told))
        return asked

    def sync(self, member_id: str, generation: int, *, instance: str | None = None, **assignments: Any) -> Asked:
        asked = Asked(5)
        told = [SyncGroupRequestAssignment(each.replace("_", "-"), what) for each, what in assignments.items()]
        self.shard.members.sync(
            asked, SyncGroupRequest("g", generation, member_id, instance, "consumer", "range", told)
        )
        return asked

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
        asked = Asked(4)
        self.shard.members.heartbeat(asked, HeartbeatRequest("g", generation, member_id, instance))
        return asked.error

    def leave(self, *members: str | MemberIdentity) -> Asked:
        asked = Asked(5)
        told = [MemberIdentity(each) if isinstance(each, str) else each for each in members]
        self.shard.members.leave(asked, LeaveGroupRequest("g", "", told))
        return asked

    # --- what tests begin with ----------------------------------------------------------------------------------------

    def new_member(self, **more: Any) -> tuple[str, Asked]:
        """Has its id, and waits for the rebalance."""
        first = self.join(**more)
        if first.waits or first.error is not ErrorCode.MEMBER_ID_REQUIRED:
            return "", first
        member_id: str = first.said.member_id
        return member_id, self.join(member_id, **more)

    def stable(self, count: int = 2, **more: Any) -> list[str]:
        """The ids of so many members of a stable group in generation 1; the first leads."""
        joining = [self.new_member(**more) for _ in range(count)]
        self.wait(2 * self.settings.initial_rebalance_delay_ms)
        ids = [member_id for member_id, _ in joining]
        for member_id, asked in joining:
            assert asked.said.generation_id == 1, asked.said
            told: dict[str, Any] = {each.replace("-", "_"): f"of {each}".encode() for each in ids}
            self.sync(member_id, 1, **told)
        return ids

    @property
    def group(self) -> Any:
        return self.shard.find("g")

"""Consumer groups, and the shards of their coordinators."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ottla.broker.coordinator import shard_host
from ottla.broker.coordinator.decisions.effects import Record
from ottla.broker.coordinator.decisions.groups import group_records, shard
from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup
from ottla.broker.coordinator.decisions.groups.consumer import reconciliation
from ottla.broker.coordinator.decisions.groups.consumer.member import ConsumerMember
from ottla.broker.coordinator.decisions.groups.consumer.reconciliation import Aim, Owned
from ottla.broker.coordinator.decisions.groups.member import Member, Protocols
from ottla.broker.coordinator.decisions.groups.offsets import Offsets
from ottla.broker.coordinator.decisions.groups.shard import GroupShard
from ottla.broker.coordinator.group_coordinator import GroupCoordinator
from ottla.broker.coordinator.shard_host import ShardHost
from ottla.broker.coordinator.shard_replay import ShardReplay
from ottla.broker.internal_topics import GROUPS
from ottla.log.batch import headers
from ottla.log.records import decode_records
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.chained import SPLIT
from ottla.testing.simulation.dimensions.groups import PLACE
from ottla.testing.simulation.groups import HANDED_OVER, ONE_OWNER, STAYS, TIMERS
from ottla.testing.simulation.planted.bug import PlantedBug
from ottla.testing.simulation.roles import follower_of, leader_of, other_follower_of
from ottla.testing.simulation.shards import STATE

HEALS = "when faults end, the cluster heals"
COORDINATOR = leader_of(GROUPS, PLACE)
KILLED = tuple(Fault(1_100 + 1_900 * number, "kill", (COORDINATOR,), 900) for number in range(3))
KILLED_LATE = (Fault(6_400, "kill", (COORDINATOR,), 300),)
APART = (Fault(1_500, SPLIT, (COORDINATOR,), 3_000),)
FEW = tuple(
    Fault(1_200, "slow-link", (*way, 350, 450), 3_500)
    for other in (follower_of(GROUPS, PLACE), other_follower_of(GROUPS, PLACE))
    for way in ((COORDINATOR, other), (other, COORDINATOR))
)
_BEGIN_GENERATION = ClassicGroup.begin_generation
_NEXT = reconciliation._next
_WRITE, _BEGIN, _RESTORED = ShardHost.write, GroupShard.begin, group_records.restored_group


def _tells_at_once(host: ShardHost, records: Sequence[Record], done: Callable[[ErrorCode], None]) -> None:
    _WRITE(host, records, lambda _: None)
    done(ErrorCode.NONE)


def _takes_the_last_first(replay: ShardReplay, data: bytes, offset: int, next_offset: int) -> None:
    found = [
        record
        for at, header in headers(data)
        for record in decode_records(data, header, position=at)
        if not header.is_control and record.offset >= offset and record.key is not None
    ]
    for record in reversed(found):
        replay._replay(Record(record.key or b"", record.value), record.offset, -1)


def _restores_no_generation(group_id: str, value: Any) -> ClassicGroup:
    group = _RESTORED(group_id, value)
    group.generation = 0
    return group


def _begins_the_same(group: ClassicGroup, now_ms: int) -> None:
    _BEGIN_GENERATION(group, now_ms)
    group.generation = max(group.generation - 1, 1)


def _begins_without_sessions(shard: GroupShard) -> Iterator[None]:
    yield from _BEGIN(shard)
    for group in shard.groups():
        for member_id in group.members:
            shard.rebalance.forget_session(group, member_id)


def _keeps_what_it_said_first(group: ClassicGroup, member: Member, protocols: Protocols) -> None:
    """Of a member that joins again nobody hears what it has now."""


def _takes_all_for_free(member: ConsumerMember, aim: Aim, owned: Owned | None) -> ConsumerMember:
    return _NEXT(member, aim._replace(is_free=lambda *_: True), owned)


def _bug(
    name: str,
    rule: str,
    patch: tuple[Any, str, Any],
    faults: tuple[Fault, ...],
    *invariants: str,
    seed: int = 1,
    also: tuple[str, ...] = (),
) -> PlantedBug:
    return PlantedBug(name, rule, (patch,), seed, faults, invariants, ("groups", *also))


GROUP_BUGS = (
    _bug(
        "answer a group before its records are committed",
        "ShardHost.write: done is when the records are committed",
        (ShardHost, "write", _tells_at_once),
        APART,
        STAYS,
        ONE_OWNER,
        "BrokenPromise",
    ),
    _bug(
        "load a partition of groups the last first",
        "ShardReplay.take: of two records of a key the later counts",
        (ShardReplay, "take", _takes_the_last_first),
        KILLED,
        STATE,
        STAYS,
        ONE_OWNER,
    ),
    _bug(
        "begin generations anew with each coordinator",
        "restored_group: the next generation follows the one that is written",
        (shard, "restored_group", _restores_no_generation),
        KILLED,
        ONE_OWNER,
        HEALS,
    ),
    _bug(
        "coordinate on after another leads",
        "GroupCoordinator.resigned: a shard ends with its epoch",
        (GroupCoordinator, "resigned", lambda *_: None),
        APART,
        HEALS,
        STAYS,
    ),
    _bug(
        "give a generation's number to the next one",
        "ClassicGroup.begin_generation: each has its own",
        (ClassicGroup, "begin_generation", _begins_the_same),
        (),
        ONE_OWNER,
    ),
    _bug(
        "take offsets from who is no member any more",
        "Offsets._commit_error: only members of the generation that there is commit",
        (Offsets, "_commit_error", lambda *_: ErrorCode.NONE),
        (),
        STAYS,
    ),
    _bug(
        "watch no sessions after a coordinator was loaded",
        "GroupShard.begin: members of the last generation have a session's time to be heard from",
        (GroupShard, "begin", _begins_without_sessions),
        KILLED_LATE,
        TIMERS,
        HEALS,
        seed=5,
    ),
    _bug(
        "keep what a member said when it first joined",
        "ClassicGroup.change_protocols: the leader is told what members say now",
        (ClassicGroup, "change_protocols", _keeps_what_it_said_first),
        (),
        HANDED_OVER,
        HEALS,
        seed=2,
    ),
    _bug(
        "give a partition that another member holds",
        "reconciliation: of the consumer protocol's members one has a partition, then another",
        (reconciliation, "_next", _takes_all_for_free),
        (),
        HANDED_OVER,
        ONE_OWNER,
        seed=12,
    ),
    _bug(
        "delete a group and keep its offsets",
        "Endings.delete: a group goes with all that it committed",
        (Offsets, "tombstones", lambda *_: []),
        (),
        STAYS,
    ),
    _bug(
        "leave in the state what could not be written",
        "ShardHost.write: what is not appended is undone",
        (shard_host, "_undo", lambda _: None),
        FEW,
        STATE,
        STAYS,
        seed=4,
        also=("hasty",),
    ),
)

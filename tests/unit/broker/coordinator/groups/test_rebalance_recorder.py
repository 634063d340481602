"""What is kept of a group's rebalances, and what of its commits: enough to say why, no more than bounds allow."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from ottla.broker.coordinator.decisions.groups import rebalance_history
from ottla.broker.coordinator.decisions.groups.commit_rates import CommitRates
from ottla.broker.coordinator.decisions.groups.committed_offset import CommittedOffset
from ottla.broker.coordinator.decisions.groups.offset_store import Place
from ottla.broker.coordinator.decisions.groups.rebalance_history import REBALANCES_MAX, RebalanceHistory
from ottla.broker.coordinator.decisions.groups.rebalance_record import RECORD_BYTES_MAX, Cause, Kind, RebalanceRecord
from ottla.broker.coordinator.decisions.groups.rebalance_recorder import (
    COMPARED_BYTES_MAX,
    COMPARED_MAX,
    COMPARED_PARTITIONS_MAX,
    _compare,
)
from ottla.broker.wire.codec import encoder
from ottla.broker.wire.messages import consumer_protocol_assignment as assignment
from ottla.broker.wire.messages import consumer_protocol_subscription as subscription
from ottla.broker.wire.messages import offset_commit_request as commit
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.group_bench import Asked, Bench
from tests.unit.broker.coordinator.shard_bench import TIME_MS


def told(bench: Bench) -> list[RebalanceRecord]:
    return [msgspec.json.decode(each, type=RebalanceRecord) for each in bench.shard.rebalance.recorder.told("g")]


def waits_for(bench: Bench) -> Any:
    return msgspec.json.decode(bench.shard.history("g")[0])["waits_for"]


def reads(*topics: str, owned: int = 0) -> bytes:
    """A member's subscription; ``owned``: what else it tells."""
    told = subscription.ConsumerProtocolSubscription(topics=list(topics), user_data=bytes(owned))
    return b"\0\0" + b"".join(encoder(subscription.ConsumerProtocolSubscription, 0)(told))


def has(*partitions: int, topic: str = "t") -> bytes:
    assigned = [assignment.TopicPartition(topic, list(partitions))]
    return b"\0\0" + b"".join(
        encoder(assignment.ConsumerProtocolAssignment, 0)(assignment.ConsumerProtocolAssignment(assigned))
    )


def settle(bench: Bench, shares: Mapping[str, bytes]) -> None:
    """The leader brings it; in the generation there is."""
    group = bench.group
    members = sorted(group.members, key=lambda each: each == group.leader_id)
    for each in members:
        brought: dict[str, Any] = {name.replace("-", "_"): what for name, what in shares.items()}
        bench.sync(each, group.generation, **brought)


def two(bench: Bench) -> list[str]:
    """Two members of a stable group, of partitions 0 and 1, 2 and 3."""
    joining = [bench.new_member(metadata=reads("t")) for _ in range(2)]
    bench.wait(3_000)
    bench.wait(3_000)
    ids = [each for each, _ in joining]
    settle(bench, {ids[0]: has(0, 1), ids[1]: has(2, 3)})
    return ids


def test_the_first_rebalance_says_who_came_and_who_was_waited_for() -> None:
    bench = Bench()
    one, _ = bench.new_member(client_id="a")
    bench.wait(500)
    assert waits_for(bench) == []
    other, _ = bench.new_member(client_id="b")
    bench.wait(6_000)
    (record,) = told(bench)
    assert (record.cause.kind, record.cause.member_id, record.cause.client_id) == ("join", one, "a")
    assert [each.member_id for each in record.also] == [other]
    assert (record.last_joined, record.last_joined_ms) == (other, 500)
    assert (record.begun_ms, record.joining_ms, record.outcome) == (TIME_MS, 6_000, "")
    assert waits_for(bench) == [bench.group.leader_id], "for its assignment"


def test_what_moved_is_told_when_the_assignment_is_committed() -> None:
    bench = Bench()
    ids = two(bench)
    bench.leave(ids[1])
    bench.wait(200)
    bench.join(ids[0], metadata=reads("t"))
    bench.wait(40)
    settle(bench, {ids[0]: has(0, 1, 2)})
    first, record = told(bench)
    assert (first.moved_count, first.kept_count) == (4, 0), "of nobody before"
    assert (record.cause.kind, record.cause.member_id) == ("leave", ids[1])
    assert (record.joining_ms, record.assigning_ms, record.outcome) == (200, 40, "stable")
    assert record.moved == [("t", 2, ids[1], ids[0]), ("t", 3, ids[1], "")]
    assert (record.moved_count, record.kept_count, record.members) == (2, 2, 1)
    assert bench.notes[-1] == (
        f"group g: generation {record.generation} stable, 1 member; leave of {ids[1]} at 10.0.0.1; "
        "200 ms until joined, 40 ms until assigned; 2 partitions moved, 2 stayed"
    )


def test_an_assignment_that_is_not_committed_is_told_as_going_on() -> None:
    bench = Bench(commits=False)
    bench.new_member()
    bench.wait(3_000)
    settle(bench, {})
    assert [each.outcome for each in told(bench)] == [""]
    bench.commit()
    assert [each.outcome for each in told(bench)] == ["stable"]


def test_who_falls_silent_and_who_does_not_come_back_are_named() -> None:
    bench = Bench()
    ids = two(bench)
    bench.wait(6_000)
    bench.heartbeat(ids[0], 1)
    bench.wait(6_000)
    assert told(bench)[-1].cause.kind == "session timeout"
    assert told(bench)[-1].cause.words == "not heard from for 10000 ms"
    bench.heartbeat(ids[0], 1)
    assert waits_for(bench) == [ids[0]]
    bench.new_member(session_ms=100_000, rebalance_ms=60_000, metadata=reads("t"))
    for _ in range(12):
        bench.wait(5_000)
        bench.heartbeat(ids[0], 1)
    record = told(bench)[-1]
    assert (record.absent, record.absent_count, record.members) == ([ids[0]], 1, 1)


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [
        (reads("t"), "metadata change"),
        (reads("t", "u"), "subscription change"),
        (reads("t", owned=5), "partitions given up"),
        (b"\7", "subscription change"),
    ],
)
def test_a_member_that_joins_again_says_why_by_what_it_brings(metadata: bytes, kind: str) -> None:
    bench = Bench()
    ids = two(bench)
    bench.join(ids[0], metadata=metadata)
    assert told(bench)[-1].cause.kind == kind


def test_members_that_come_as_they_were_are_no_further_causes() -> None:
    bench = Bench()
    ids = two(bench)
    bench.new_member(metadata=reads("t"))
    for each in ids:
        bench.wait(100)
        bench.join(each, metadata=reads("t", owned=1))
    record = told(bench)[-1]
    assert (record.cause.kind, record.also, record.also_count) == ("join", [], 0)
    assert (record.last_joined, record.last_joined_ms, record.joining_ms) == (ids[1], 200, 200)


def test_a_rebalance_that_is_overtaken_hands_on_what_was_before() -> None:
    bench = Bench()
    ids = two(bench)
    bench.leave(ids[1])
    bench.join(ids[0], metadata=reads("t"))
    third, _ = bench.new_member(metadata=reads("t"))
    bench.join(ids[0], metadata=reads("t"))
    settle(bench, {ids[0]: has(0, 1), third: has(2, 3)})
    assert [each.outcome for each in told(bench)] == ["stable", "overtaken by another rebalance", "stable"]
    assert told(bench)[-1].moved == [("t", 2, ids[1], third), ("t", 3, ids[1], third)]


def test_a_group_that_is_left_by_all_tells_that() -> None:
    bench = Bench()
    ids = two(bench)
    bench.leave(*ids)
    record = told(bench)[-1]
    assert (record.cause.words, record.members) == ("and 1 more", 0)
    assert record.outcome == "empty: nobody is left"
    assert [move.after for move in record.moved] == [""] * 4


def test_another_coordinator_compares_with_what_it_was_told_of() -> None:
    bench = Bench()
    ids = two(bench)
    other = bench.another()
    assert told(other) == []
    other.leave(ids[0])
    other.join(ids[1], metadata=reads("t"))
    settle(other, {ids[1]: has(0, 1, 2, 3)})
    (record,) = told(other)
    assert (record.moved_count, record.kept_count) == (2, 2)


def test_a_deleted_group_leaves_no_history() -> None:
    bench = Bench()
    bench.leave(*two(bench))
    answers: list[dict[str, ErrorCode]] = []
    bench.shard.delete(["g"], answers.append)
    assert answers == [{"g": ErrorCode.NONE}]
    assert told(bench) == []
    assert bench.shard.rebalance.recorder.history.size == 0


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_a_group_keeps_its_last_hundred() -> None:
    history = RebalanceHistory()
    for number in range(REBALANCES_MAX + 5):
        history.add("g", str(number).encode())
    history.add("h", b"other")
    assert [int(each) for each in history.of_group("g")] == list(range(5, REBALANCES_MAX + 5))
    assert history.of_group("h") == [b"other"]


def test_a_shard_keeps_so_many_bytes_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance_history, "BYTES_MAX", 100)
    history = RebalanceHistory()
    for number in range(30):
        history.add(f"g{number % 3}", b"x" * 10)
        assert history.size <= 100
    assert [len(history.of_group(f"g{each}")) for each in range(3)] == [3, 3, 4]
    history.forget("g0")
    assert (history.size, history.of_group("g0")) == (70, [])


def test_names_without_end_and_many_moves_fit_into_a_record() -> None:
    bench = Bench(initial_rebalance_delay_ms=0)
    ids = []
    for _ in range(30):
        member_id, _ = bench.new_member(client_id="ü" * 30_000, metadata=reads("t"))
        ids.append(member_id)
    bench.wait(60_000)
    settle(bench, {each: has(*range(at * 40, at * 40 + 40), topic="t" * 249) for at, each in enumerate(ids)})
    kept = bench.shard.rebalance.recorder.told("g")
    assert kept
    assert all(len(each) <= RECORD_BYTES_MAX for each in kept)


def test_what_moved_in_a_crowd_is_not_looked_for() -> None:
    record = RebalanceRecord(number=1, begun_ms=1, cause=Cause(Kind.JOIN))
    _compare(record, {}, {f"m{number}": has(number) for number in range(COMPARED_MAX + 1)})
    assert record.moved_count is None
    _compare(record, {}, {"m": has(*range(COMPARED_BYTES_MAX // 4 + 1))})
    assert record.moved_count is None
    _compare(record, {"m": has(*range(COMPARED_PARTITIONS_MAX + 1))}, {})
    assert record.moved_count is None
    _compare(record, {}, {f"m{number}": has(number) for number in range(COMPARED_MAX)})
    assert record.moved_count == COMPARED_MAX


def test_every_kind_of_cause_can_be_read_again() -> None:
    cause = Cause(*map(str, ("join", "m", "c", "h", "w")))  # type: ignore[arg-type]
    assert msgspec.json.decode(msgspec.json.encode(cause), type=Cause) == cause


# --- rates ------------------------------------------------------------------------------------------------------------


def at(offset: int, time_ms: int) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", time_ms)


def test_a_rate_is_measured_over_half_a_minute_to_a_minute() -> None:
    rates, place = CommitRates(), Place("t", 0)
    assert rates.since("g", place) is None
    for second in range(0, 300, 5):
        rates.note("g", place, at(second * 10, second * 1_000))
        since = rates.since("g", place)
        assert since is not None
        assert since[0] * 100 == since[1]
        assert second < 60 or 30_000 <= second * 1_000 - since[1] <= 60_000
    rates.note("g", place, at(7, 300_000))
    assert rates.since("g", place) == (7, 300_000), "it was set back: what was before counts no more"
    rates.forget("g")
    assert rates.since("g", place) is None


def test_commits_are_noted_from_the_load_on_not_while_loading() -> None:
    bench = Bench()

    def committed(shard: Bench, offset: int) -> None:
        asked = Asked(9)
        partition = commit.OffsetCommitRequestPartition(0, offset)
        topic = commit.OffsetCommitRequestTopic("t", partitions=[partition])
        shard.shard.commits.commit(asked, commit.OffsetCommitRequest("g", -1, "", topics=[topic]))

    bench.shard.begin()
    committed(bench, 5)
    assert bench.shard.rates.since("g", Place("t", 0)) == (5, TIME_MS)
    other = bench.another()
    assert other.shard.rates.since("g", Place("t", 0)) is None
    committed(other, 6)
    assert other.shard.rates.since("g", Place("t", 0)) == (6, TIME_MS)

"""Members that subscribe with a regular expression: what it means is found by the coordinator, written, and found again."""

from collections.abc import Sequence
from typing import Any

import pytest

from ottla.broker.coordinator.decisions.effects import Done, Record
from ottla.broker.coordinator.decisions.groups.consumer import patterns
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.regexes.resolution import ROUND_PAUSE_MS
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.consumer.consumer_bench import INTERVAL_MS, Member, T, U, beat, join
from tests.unit.broker.coordinator.groups.group_bench import DAY_MS, Bench
from tests.unit.broker.coordinator.groups.test_offsets import code, commit, offset


class Reader(Member):
    """Subscribes with an expression, and perhaps with names."""

    def __init__(self, bench: Bench, member_id: str, regex: str, topics: tuple[str, ...] = ()) -> None:
        super().__init__(bench, member_id, topics)
        self.regex = regex

    def join(self, **said: Any) -> ErrorCode:
        self.epoch, self.owned = 0, {}
        return self.hear(join(self.bench, self.id, self.topics, subscribed_topic_regex=self.regex, **said))


def settle(bench: Bench, *members: Member) -> None:
    for _ in range(6):
        bench.wait(INTERVAL_MS)
        for each in members:
            each.beat()


def group_of(bench: Bench) -> ConsumerGroup:
    group = bench.shard.consumers.find("g")
    assert group is not None
    return group


def create(bench: Bench, name: str) -> bytes:
    topic_id = bench.topic_ids[name] = name.encode().ljust(16, b".")
    bench.partitions[topic_id] = 2
    bench.version += 1
    changed(bench, name)
    return topic_id


def changed(bench: Bench, name: str) -> None:
    """What the coordinator does when a topic came or went."""
    bench.shard.consumers.refresh({name})
    bench.shard.patterns.topics_changed()


def test_a_member_reads_the_topics_that_its_expression_matches() -> None:
    bench = Bench()
    one = Reader(bench, "one", "t|v.*")
    settle(bench, one)
    assert one.owned == {T: frozenset(range(4))}
    assert group_of(bench).resolved["t|v.*"].version == 1


def test_a_member_may_subscribe_with_names_beside_it() -> None:
    bench = Bench()
    one = Reader(bench, "one", "t", ("u",))
    settle(bench, one)
    assert one.owned.keys() == {T, U}


def test_members_share_what_an_expression_and_a_name_have_in_common() -> None:
    bench = Bench()
    one, two = Reader(bench, "one", ".*"), Member(bench, "two")
    settle(bench, one, two)
    assert one.owned.keys() | two.owned.keys() == {T, U}
    assert sum(len(held) for each in (one, two) for held in each.owned.values()) == 8
    assert two.owned.keys() == {T}


def test_an_expression_that_is_none_is_refused_and_the_client_told_why() -> None:
    bench = Bench()
    asked = join(bench, "one", (), subscribed_topic_regex="(")
    assert asked.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "`(`" in asked.said.error_message
    assert bench.shard.consumers.find("g") is None
    assert not bench.log


def test_a_topic_that_comes_later_is_read_when_its_turn_comes() -> None:
    bench = Bench()
    one = Reader(bench, "one", "t|v.*")
    settle(bench, one)
    bench.wait(ROUND_PAUSE_MS)
    v = create(bench, "v1")
    settle(bench, one)
    assert one.owned.keys() == {T, v}


def test_a_topic_that_is_deleted_is_read_no_more() -> None:
    bench = Bench()
    one = Reader(bench, "one", ".*")
    settle(bench, one)
    bench.wait(ROUND_PAUSE_MS)
    del bench.topic_ids["u"]
    changed(bench, "u")
    settle(bench, one)
    assert one.owned.keys() == {T}
    assert group_of(bench).resolved[".*"].topics == {"t"}


def test_an_expression_that_matches_nothing_asks_for_no_target() -> None:
    bench = Bench()
    one = Reader(bench, "one", "nothing")
    settle(bench, one)
    assert group_of(bench).epoch == 1
    assert group_of(bench).resolved["nothing"].topics == frozenset()


def test_what_a_round_finds_again_is_not_written_again() -> None:
    bench = Bench()
    one = Reader(bench, "one", "t")
    settle(bench, one)
    written = len(bench.log)
    bench.shard.patterns.topics_changed()
    bench.wait(ROUND_PAUSE_MS)
    assert len(bench.log) == written


def test_a_member_may_subscribe_with_another_expression_and_the_first_is_forgotten() -> None:
    bench = Bench()
    one = Reader(bench, "one", "t")
    settle(bench, one)
    one.beat(subscribed_topic_regex="u")
    settle(bench, one)
    assert one.owned.keys() == {U}
    assert group_of(bench).resolved.keys() == {"u"}
    assert dict(group_of(bench).readers) == {"u": 1}


def test_nor_does_the_first_stay_where_the_other_one_is_known() -> None:
    bench = Bench()
    one, two = Reader(bench, "one", "t"), Reader(bench, "two", "u")
    settle(bench, one, two)
    two.hear(join(bench, "two", (), subscribed_topic_regex="t"))
    assert group_of(bench).resolved.keys() == group_of(bench).readers.keys() == {"t"}
    settle(bench, one, two)
    assert [len(each.owned[T]) for each in (one, two)] == [2, 2]
    assert bench.shard.contents() == bench.another().shard.contents()


def test_a_member_may_subscribe_with_names_again() -> None:
    bench = Bench()
    one = Reader(bench, "one", "t")
    settle(bench, one)
    one.beat(subscribed_topic_regex="", subscribed_topic_names=["u"])
    settle(bench, one)
    assert one.owned.keys() == {U}
    assert not group_of(bench).resolved
    assert dict(group_of(bench).readers) == {"u": 1}, "offsets of what nobody reads any more expire"


def test_no_offset_expires_while_it_is_not_known_what_an_expression_reads() -> None:
    bench = Bench()
    assert code(commit(bench, 5)) is ErrorCode.NONE
    bench.wait(8 * DAY_MS)
    one = Reader(bench, "one", "t")
    one.join()
    assert not group_of(bench).resolved
    bench.shard.expire()
    settle(bench, one)
    bench.shard.expire()
    assert offset(bench) == (5, 0)


def test_with_the_last_member_that_needs_it_an_expression_goes() -> None:
    bench = Bench()
    one, two, three = Reader(bench, "one", "t"), Reader(bench, "two", "t"), Member(bench, "three", ("u",))
    settle(bench, one, two, three)
    one.leave()
    assert group_of(bench).resolved.keys() == {"t"}
    two.leave()
    assert not group_of(bench).resolved
    assert dict(group_of(bench).readers) == {"u": 1}
    three.leave()
    bench.wait(20 * 60_000)
    assert bench.shard.contents() == bench.another().shard.contents()


def test_nothing_is_left_of_a_group_that_is_deleted() -> None:
    bench = Bench()
    one = Reader(bench, "one", "t")
    settle(bench, one)
    one.beat(subscribed_topic_regex="", subscribed_topic_names=["u"])
    one.leave()
    bench.shard.delete(["g"], lambda told: None)
    assert bench.shard.consumers.find("g") is None
    assert bench.another().shard.consumers.find("g") is None
    assert not bench.reminders


def test_another_coordinator_goes_on_and_finds_what_came_meanwhile() -> None:
    bench = Bench()
    one = Reader(bench, "one", "t|v.*")
    settle(bench, one)
    v = create(bench, "v1")
    other = bench.another()
    assert other.shard.contents() == bench.shard.contents()
    one.bench = other
    settle(other, one)
    assert one.owned.keys() == {T, v}


def test_what_could_not_be_written_is_found_again_when_the_member_is_heard_from() -> None:
    bench = Bench()
    one = Reader(bench, "one", "t")
    one.join()
    bench.commits = False
    bench.wait(1)
    bench.fail()
    bench.commits = True
    assert not group_of(bench).resolved
    settle(bench, one)
    assert one.owned == {T: frozenset(range(4))}


def test_a_topic_that_could_not_be_written_is_found_again_soon() -> None:
    """There are too few replicas in sync for a while, say."""
    bench = Bench()
    one = Reader(bench, "one", "t|v.*")
    settle(bench, one)
    bench.wait(ROUND_PAUSE_MS)
    bench.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    v = create(bench, "v1")
    bench.wait(ROUND_PAUSE_MS)
    bench.refuses = ErrorCode.NONE
    bench.wait(ROUND_PAUSE_MS)
    settle(bench, one)
    assert one.owned.keys() == {T, v}


def test_a_member_whose_expression_is_resolved_costs_no_record() -> None:
    bench = Bench()
    one = Reader(bench, "one", "t")
    settle(bench, one)
    before = len(bench.log)
    assert beat(bench, "one", one.epoch).error is ErrorCode.NONE
    bench.wait(INTERVAL_MS)
    assert len(bench.log) == before


def test_a_group_has_so_many_expressions_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "REGEXES_MAX", 2)
    bench = Bench()
    members = [Reader(bench, each, each) for each in ("t", "u")]
    assert [each.join() for each in members] == [ErrorCode.NONE, ErrorCode.NONE]
    assert Reader(bench, "v", "v").join() is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert Reader(bench, "v", "t").join() is ErrorCode.NONE


def test_one_that_cannot_be_written_keeps_no_other_out() -> None:
    bench = Bench()
    one, two = Reader(bench, "one", "t"), Reader(bench, "two", "u")
    one.join()
    two.join()
    write = bench.write

    def refuse_t(records: Sequence[Record], done: Done) -> None:
        if any(each.key.endswith(b"\0\1t") for each in records):
            done(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            write(records, done)

    bench.write = refuse_t  # type: ignore[method-assign]
    settle(bench, one, two)
    assert two.owned.keys() == {U}
    assert not one.owned
    epoch = group_of(bench).epoch
    settle(bench, one, two)
    assert group_of(bench).epoch == epoch


def with_many_expressions(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Four, in the middle of the turns in which what they match is written."""
    monkeypatch.setattr(patterns, "NAMES_A_TURN", 1)
    bench = Bench()
    for regex in ("t", "t|u", "u", "v|t"):
        join(bench, f"reads {regex}", None, subscribed_topic_regex=regex)
    bench.wait(0)
    return bench


def test_what_a_round_finds_is_written_over_turns_where_it_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred expressions that match thousands of topics would hold everybody: with each the whole group's topics are gone through."""
    bench = with_many_expressions(monkeypatch)
    group = group_of(bench)
    assert set(group.resolved) == {"t", "t|u", "u"}, "the first alone, then one, and with the bench's next turn another"
    bench.wait(10)
    assert group.resolved["v|t"].topics == {"t"}
    epoch = group.epoch
    bench.wait(ROUND_PAUSE_MS)
    assert group.epoch == epoch


def test_what_is_left_to_be_written_is_not_where_nobody_needs_it_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = with_many_expressions(monkeypatch)
    beat(bench, "reads v|t", -1)
    bench.wait(10)
    assert set(group_of(bench).resolved) == {"t", "t|u", "u"}


def test_a_shard_that_ends_leaves_no_timer() -> None:
    bench = Bench()
    one = Reader(bench, "one", "t")
    one.join()
    for _ in bench.shard.end(ErrorCode.NOT_COORDINATOR):
        pass
    assert not bench.reminders

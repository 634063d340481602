"""ConsumerGroupHeartbeat of a member: which epoch counts, and what it is told (KIP-848; kraft.md 5.3)."""

from typing import Any

from ottla.broker.coordinator.decisions.groups.consumer.member import MemberState
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.consumer.consumer_bench import (
    INTERVAL_MS,
    REBALANCE_MS,
    Member,
    T,
    U,
    assigned,
    beat,
    group_of,
    join,
    pair,
    settle,
)
from tests.unit.broker.coordinator.groups.group_bench import Bench


def one_has_all() -> tuple[Bench, Member, Member]:
    """And has to give half of it to the other, who has just come."""
    bench = Bench()
    one, two = Member(bench, "one"), Member(bench, "two")
    one.join()
    bench.wait(INTERVAL_MS)
    two.join()
    return bench, one, two


def test_who_is_not_a_member_is_told_so() -> None:
    bench = Bench()
    assert beat(bench, "m", 3).error is ErrorCode.UNKNOWN_MEMBER_ID
    pair(bench)
    assert beat(bench, "m", 3).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(bench, "m", -1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(bench, "m", -1, group="nix").error is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_epoch_that_was_not_given_is_fenced() -> None:
    bench = Bench()
    one, two = pair(bench)
    settle([one, two, Member(bench, "three")])
    assert beat(bench, "one", one.epoch + 1, owned=one.owned).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert beat(bench, "one", one.epoch - 2, owned={}).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert beat(bench, "one", one.epoch, owned=one.owned).error is ErrorCode.NONE


def test_an_answer_that_was_lost_is_given_again_to_who_has_nothing_but_what_it_was_given() -> None:
    bench, one, _ = one_has_all()
    one.beat()
    before = one.epoch
    beat(bench, "one", before, owned=one.owned)  # its answer, with the next epoch, is lost
    full: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": ["t"]}
    unsure: tuple[dict[str, Any], ...] = ({}, {"owned": {T: range(4)}})
    for said in unsure:
        assert beat(bench, "one", before, **said).error is ErrorCode.FENCED_MEMBER_EPOCH
    asked = beat(bench, "one", before, owned=one.owned, **full)
    assert (asked.said.member_epoch, assigned(asked)) == (before + 1, {T: sorted(one.owned[T])})


def test_who_comes_with_the_epoch_before_is_told_what_it_has_not_heard() -> None:
    """It said everything on a new connection and was told; then its request before that came, from the old one, and took the answer with it."""
    bench, one, _ = one_has_all()
    one.beat()
    before = one.epoch
    late = beat(bench, "one", before, owned=one.owned)
    asked = beat(bench, "one", before, owned=one.owned)
    assert asked.said.member_epoch == late.said.member_epoch > before
    assert assigned(asked) == {T: sorted(one.owned[T])}


def test_who_lacks_what_it_was_given_is_told_of_it_until_it_has_it() -> None:
    bench, one, two = one_has_all()
    one.beat()
    one.beat()
    late = beat(bench, "two", two.epoch, owned={})
    assert late.said.member_epoch == two.epoch, "only partitions were given since"
    for _ in range(2):
        told = beat(bench, "two", two.epoch, owned={T: []})
        assert assigned(told) == assigned(late) == {T: sorted({0, 1, 2, 3} - one.owned[T])}
    assert beat(bench, "two", two.epoch).said.assignment is None, "it says nothing of what it has"
    two.hear(told)
    assert beat(bench, "two", two.epoch, owned=two.owned).said.assignment is None


def test_who_has_still_what_it_was_to_give_up_is_told_again() -> None:
    bench, one, _ = one_has_all()
    for _ in range(2):
        asked = beat(bench, "one", one.epoch, owned=one.owned)
        assert len(assigned(asked)[T]) == 2
        assert group_of(bench).members["one"].state is MemberState.UNREVOKED_PARTITIONS


def test_a_member_that_was_fenced_joins_again_under_its_id() -> None:
    bench = Bench()
    one, two = pair(bench)
    epoch = group_of(bench).epoch
    asked = join(bench, "one")
    assert assigned(asked) == {T: sorted(one.owned[T])}
    assert group_of(bench).epoch == epoch, "nobody else hears of it"
    assert two.beat() is ErrorCode.NONE


def test_a_member_that_joins_again_while_it_gives_up_has_given_up() -> None:
    bench, one, two = one_has_all()
    beat(bench, "one", 1, owned=one.owned)
    assert group_of(bench).members["one"].state is MemberState.UNREVOKED_PARTITIONS
    one.join()
    two.beat()
    assert len(two.owned[T]) == 2


def test_the_assignment_is_told_when_it_has_changed_or_everything_was_said() -> None:
    bench = Bench()
    one, _ = pair(bench)
    assert beat(bench, "one", one.epoch, owned=one.owned).said.assignment is None
    full = beat(
        bench, "one", one.epoch, owned=one.owned, rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_names=["t"]
    )
    assert assigned(full) == {T: sorted(one.owned[T])}


def test_what_is_left_out_has_not_changed() -> None:
    bench = Bench()
    join(bench, "one", rack_id="r", server_assignor="range")
    before = group_of(bench).members["one"]
    beat(bench, "one", 1)
    assert group_of(bench).members["one"] == before
    assert (before.rack_id, before.assignor, before.rebalance_timeout_ms) == ("r", "range", REBALANCE_MS)
    assert before.topics == {"t"}


def test_a_topic_that_a_member_does_not_read_any_more_goes_to_another() -> None:
    bench = Bench()
    one, two = Member(bench, "one", ("t", "u")), Member(bench, "two", ("t", "u"))
    settle([one, two])
    one.hear(beat(bench, "one", one.epoch, owned=one.owned, subscribed_topic_names=["t"]))
    assert U not in one.owned, "it does not wait for the target"
    settle([one, two])
    assert two.owned[U] == frozenset(range(4))

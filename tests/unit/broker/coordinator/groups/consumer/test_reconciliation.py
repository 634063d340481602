"""One member's way to its target (KIP-848), without anything around it."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from ottla.broker.coordinator.decisions.groups.consumer.member import ConsumerMember, MemberState
from ottla.broker.coordinator.decisions.groups.consumer.reconciliation import Aim, Owned, reconciled

A, B = b"a" * 16, b"b" * 16
STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS


def member(epoch: int = 5, state: MemberState = STABLE, assigned: str = "", revoking: str = "") -> ConsumerMember:
    return ConsumerMember(
        "m", epoch=epoch, previous_epoch=4, state=state, assigned=held(assigned), revoking=held(revoking)
    )


def held(text: str, epoch: int = 3) -> dict[bytes, dict[int, int]]:
    """ "a12 b0": partitions 1 and 2 of a, 0 of b."""
    return {word[:1].encode() * 16: {int(each): epoch for each in word[1:]} for word in text.split()}


def owned(text: str) -> Owned:
    return {topic: frozenset(partitions) for topic, partitions in held(text).items()}


def aim(target: str, epoch: int = 6, *, taken: str = "", topics: str = "ab") -> Aim:
    elsewhere = held(taken)
    return Aim(
        epoch,
        {topic: frozenset(each) for topic, each in held(target).items()},
        {each.encode() * 16 for each in topics},
        lambda topic, partition: partition not in elsewhere.get(topic, {}),
    )


def shape(found: ConsumerMember) -> tuple[MemberState, int, str, str]:
    return found.state, found.epoch, _text(found.assigned), _text(found.revoking)


def _text(parts: Mapping[bytes, Mapping[int, int]]) -> str:
    return " ".join(topic[:1].decode() + "".join(map(str, sorted(each))) for topic, each in sorted(parts.items()))


def test_a_member_that_has_come_to_its_target_stays_as_it_is() -> None:
    before = member(6, assigned="a12")
    assert reconciled(before, aim("a12"), None) is before


def test_a_new_member_is_given_what_is_free_of_its_target() -> None:
    assert shape(reconciled(member(0), aim("a12 b0"), {})) == (STABLE, 6, "a12 b0", "")
    assert shape(reconciled(member(0), aim("a12 b0", taken="a1"), {})) == (UNRELEASED, 6, "a2 b0", "")
    assert shape(reconciled(member(0), aim("a12", taken="a12"), {})) == (UNRELEASED, 6, "", "")
    assert shape(reconciled(member(0), aim(""), {})) == (STABLE, 6, "", "")


def test_what_is_given_says_in_which_epoch_and_what_is_kept_goes_on_saying_it() -> None:
    found = reconciled(member(assigned="a1"), aim("a12"), owned("a1"))
    assert found.assigned == {A: {1: 3, 2: 6}}


def test_a_member_stays_in_its_epoch_until_it_says_that_it_gave_up() -> None:
    before = member(assigned="a12 b0")
    told = reconciled(before, aim("a1"), owned("a12 b0"))
    assert shape(told) == (UNREVOKED, 5, "a1", "a2 b0")
    assert told.previous_epoch == 5
    for still in (None, owned("a12"), owned("b0")):
        assert reconciled(told, aim("a1"), still) is told
    assert shape(reconciled(told, aim("a1"), owned("a1"))) == (STABLE, 6, "a1", "")


def test_a_member_that_does_not_say_what_it_has_may_have_all_of_it() -> None:
    assert reconciled(member(assigned="a1"), aim("b0"), None).state is UNREVOKED


def test_a_member_that_has_it_no_more_need_not_be_told() -> None:
    assert shape(reconciled(member(assigned="a12"), aim("a1"), owned("a1"))) == (STABLE, 6, "a1", "")


def test_nothing_is_given_before_all_is_given_up() -> None:
    told = reconciled(member(assigned="a1"), aim("b0"), owned("a1"))
    assert shape(told) == (UNREVOKED, 5, "", "a1")


def test_while_it_gives_up_the_target_may_change_again() -> None:
    giving_up = member(state=UNREVOKED, assigned="a1", revoking="a2")
    assert shape(reconciled(giving_up, aim("b0", 7), owned("a1"))) == (UNREVOKED, 5, "", "a1")
    assert shape(reconciled(giving_up, aim("a12", 7), owned("a1"))) == (STABLE, 7, "a12", "")


def test_what_others_release_is_given_later() -> None:
    waiting = member(6, UNRELEASED, assigned="a1")
    assert reconciled(waiting, aim("a12", taken="a2"), None).state is UNRELEASED
    assert shape(reconciled(waiting, aim("a12"), None)) == (STABLE, 6, "a12", "")


def test_who_waits_for_others_follows_the_latest_target() -> None:
    waiting = member(6, UNRELEASED, assigned="a1")
    assert shape(reconciled(waiting, aim("b0", 7), owned("a1"))) == (UNREVOKED, 6, "", "a1")


def test_topics_that_it_does_not_subscribe_to_are_not_given_and_are_given_up_at_once() -> None:
    assert shape(reconciled(member(0), aim("a1 b0", topics="a"), {})) == (STABLE, 6, "a1", "")
    settled = member(6, assigned="a1 b0")
    told = reconciled(settled, aim("a1 b0", topics="a"), owned("a1 b0"))
    assert shape(told) == (UNREVOKED, 6, "a1", "b0")
    assert shape(reconciled(settled, aim("a1 b0", topics="a"), owned("a1"))) == (STABLE, 6, "a1", "")
    giving_up = member(state=UNREVOKED, assigned="a1 b0", revoking="b1")
    assert shape(reconciled(giving_up, aim("", topics="a"), owned("b1"))) == (UNREVOKED, 5, "a1", "b01")


def test_a_state_of_a_newer_node_begins_anew() -> None:
    found = reconciled(replace(member(assigned="a1"), state=MemberState.UNKNOWN), aim("a2"), {})
    assert shape(found) == (STABLE, 6, "a2", "")


@pytest.mark.parametrize("state", [STABLE, UNREVOKED, UNRELEASED])
def test_reconciling_again_without_news_changes_nothing(state: MemberState) -> None:
    first = reconciled(member(state=state, assigned="a12", revoking="b0"), aim("a2 b1", taken="b1"), owned("a12 b0"))
    assert reconciled(first, aim("a2 b1", taken="b1"), owned("a12 b0")) == first

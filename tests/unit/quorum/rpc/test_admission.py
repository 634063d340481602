"""Who has to make room at the controllers' door."""

import pytest

from ottla.quorum.rpc.admission import Admission, DoorLimits


def test_strangers_give_way_to_the_next_the_oldest_first() -> None:
    door: Admission[str] = Admission(DoorLimits(in_all=10, per_address=2))
    assert [door.enter(each, "a") for each in ("1", "2", "3", "4")] == [None, None, "1", "2"]
    assert len(door) == 2


def test_an_address_gives_way_to_itself_alone_while_there_is_room() -> None:
    door: Admission[str] = Admission(DoorLimits(in_all=10, per_address=2))
    assert [door.enter(each, "a") for each in ("1", "2")] == [None, None]
    assert door.enter("peer", "b") is None
    assert door.enter("3", "a") == "1"


def test_when_all_is_full_the_address_with_most_strangers_gives_way() -> None:
    door: Admission[str] = Admission(DoorLimits(in_all=5, per_address=4))
    for each in ("1", "2", "3"):
        door.enter(each, "flood")
    for each in ("x", "y"):
        door.enter(each, each)
    assert door.enter("peer", "b") == "1"


def test_who_has_shown_where_it_belongs_makes_no_room() -> None:
    door: Admission[str] = Admission(DoorLimits(in_all=3, per_address=2))
    for each in ("1", "2"):
        door.enter(each, "a")
        door.know(each, "a")
    assert door.enter("3", "a") == "3", "then the next one is turned away"
    assert door.enter("4", "b") is None
    assert door.enter("5", "c") == "4", "and strangers go wherever they are"
    door.know("5", "c")
    assert door.enter("6", "d") == "6"
    assert len(door) == 3


def test_who_belongs_nowhere_any_more_is_a_stranger_again() -> None:
    door: Admission[str] = Admission(DoorLimits(in_all=1, per_address=1))
    door.enter("1", "a")
    door.know("1", "a")
    door.forget("1", "a")
    assert door.enter("2", "b") == "1"


def test_who_left_leaves_its_place_once() -> None:
    door: Admission[str] = Admission(DoorLimits(in_all=2, per_address=2))
    door.enter("1", "a")
    door.enter("2", "a")
    door.know("2", "a")
    for each in ("1", "1", "2"):
        door.leave(each, "a")
    assert len(door) == 0
    door.know("1", "a")
    door.forget("2", "a")
    assert len(door) == 0


@pytest.mark.parametrize(("descriptors", "limits"), [(1 << 20, (2000, 1000)), (1200, (100, 50)), (200, (16, 12))])
def test_the_door_takes_a_share_of_the_descriptors(descriptors: int, limits: tuple[int, int]) -> None:
    assert DoorLimits.within(descriptors) == limits

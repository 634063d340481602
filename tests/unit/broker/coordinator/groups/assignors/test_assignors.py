"""The server-side assignors: who gets what, evenly, and who keeps it."""

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from ottla.broker.coordinator.decisions.groups.assignors import ASSIGNORS, Assignment, MemberSpec, pieces
from ottla.broker.coordinator.decisions.groups.assignors.pieces import Pace, at_once

Assign = Callable[[Mapping[str, MemberSpec], Mapping[bytes, int]], dict[str, Assignment]]


def whole(assignor: str) -> Assign:
    """Without pauses."""
    return lambda members, counts: at_once(ASSIGNORS[assignor](members, counts, Pace()))


A, B, C = (bytes([each]) * 16 for each in range(1, 4))
UNIFORM, RANGE = whole("uniform"), whole("range")
DRAWN = settings(max_examples=60, deadline=None)
BOTH = pytest.mark.parametrize("assign", [whole(each) for each in ASSIGNORS], ids=ASSIGNORS)


def members_of(*names: str, topics: frozenset[bytes] = frozenset({A})) -> dict[str, MemberSpec]:
    return {each: MemberSpec(topics) for each in names}


def kept(members: Mapping[str, MemberSpec], targets: Mapping[str, Assignment]) -> dict[str, MemberSpec]:
    """The same members after they got these targets."""
    return {each: member._replace(target=targets.get(each, {})) for each, member in members.items()}


def load(target: Assignment) -> int:
    return sum(map(len, target.values()))


def of(*partitions: int) -> frozenset[int]:
    return frozenset(partitions)


# --- both -------------------------------------------------------------------------------------------------------------

_topics = some.sampled_from([A, B, C])
_counts = some.dictionaries(_topics, some.integers(0, 7))
_targets = some.dictionaries(_topics, some.frozensets(some.integers(0, 8), min_size=1))
_specs = some.builds(
    MemberSpec, some.frozensets(_topics), _targets, some.sampled_from([None, None, "one", "two"]), some.none()
)
_groups = some.dictionaries(some.sampled_from([f"m{each}" for each in range(7)]), _specs)


@BOTH
@DRAWN
@given(_groups, _counts)
def test_every_partition_of_a_topic_with_subscribers_has_one_owner_that_subscribes(
    assign: Assign, members: dict[str, MemberSpec], counts: dict[bytes, int]
) -> None:
    targets = assign(members, counts)

    assert targets.keys() == members.keys()
    owners: dict[tuple[bytes, int], str] = {}
    for member_id, target in targets.items():
        assert target.keys() <= members[member_id].topics
        for topic, partitions in target.items():
            assert partitions, "a topic without partitions is not named"
            for each in partitions:
                assert owners.setdefault((topic, each), member_id) == member_id
    read = {topic for member in members.values() for topic in member.topics if topic in counts}
    assert owners.keys() == {(topic, each) for topic in read for each in range(counts[topic])}


@BOTH
@DRAWN
@given(_groups, _counts)
def test_the_order_in_which_members_are_known_changes_nothing(
    assign: Assign, members: dict[str, MemberSpec], counts: dict[bytes, int]
) -> None:
    turned_round = dict(reversed(members.items()))

    assert assign(members, counts) == assign(turned_round, dict(reversed(counts.items())))


@BOTH
@DRAWN
@given(_groups, _counts)
def test_a_group_that_did_not_change_keeps_its_assignment(
    assign: Assign, members: dict[str, MemberSpec], counts: dict[bytes, int]
) -> None:
    targets = assign(members, counts)

    assert assign(kept(members, targets), counts) == targets


@BOTH
def test_nobody_reads_for_a_group_without_members(assign: Assign) -> None:
    assert assign({}, {A: 3}) == {}


@pytest.mark.parametrize("name", ASSIGNORS)
@DRAWN
@given(_groups, _counts)
def test_what_is_done_in_small_pieces_is_the_same(
    name: str, members: dict[str, MemberSpec], counts: dict[bytes, int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE_STEPS", 0.01)
        slowly = ASSIGNORS[name](members, counts, pieces.Pace())
        found = at_once(slowly)

    assert found == whole(name)(members, counts)


@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_large_group_takes_many_pieces(name: str) -> None:
    topics = frozenset({A, B, C})
    members = {f"m{each:04d}": MemberSpec(topics) for each in range(3_000)}
    steps = ASSIGNORS[name](members, {A: 3_000, B: 2_000, C: 10}, Pace())

    assert any(True for _ in steps)


# --- uniform ----------------------------------------------------------------------------------------------------------


@DRAWN
@given(_groups, _counts)
def test_nobody_has_two_more_than_another_who_could_take_one(
    members: dict[str, MemberSpec], counts: dict[bytes, int]
) -> None:
    targets = UNIFORM(members, counts)

    for owner, target in targets.items():
        for topic in target:
            for other, member in members.items():
                if topic in member.topics:
                    assert load(targets[owner]) - load(targets[other]) < 2, (owner, other)


@DRAWN
@given(some.integers(1, 7), _counts, some.data())
def test_among_members_with_the_same_topics_no_partition_moves_that_need_not(
    number: int, counts: dict[bytes, int], data: some.DataObject
) -> None:
    """Those move of which a member has more than its share, or those that the members with less lack, whichever are more."""
    topics = frozenset(counts)
    places = [(topic, each) for topic in sorted(counts) for each in range(counts[topic])]
    before: list[dict[bytes, frozenset[int]]] = [{} for _ in range(number)]
    for topic, partition in places:
        owner = data.draw(some.none() | some.integers(0, number - 1))
        if owner is not None:
            before[owner][topic] = before[owner].get(topic, frozenset()) | {partition}
    members = {f"m{each}": MemberSpec(topics, had) for each, had in enumerate(before)}

    targets = UNIFORM(members, counts)

    share, left_over = divmod(len(places), number)
    free = len(places) - sum(map(load, before))
    lacking = sum(max(share - load(had), 0) for had in before) - free
    too_many = sum(max(load(had) - share - bool(left_over), 0) for had in before)
    least = max(lacking, too_many, sum(max(load(had) - share, 0) for had in before) - left_over, 0)
    lost = sum(
        len(partitions - targets[each].get(topic, frozenset()))
        for each, member in members.items()
        for topic, partitions in member.target.items()
    )
    assert lost == least


def test_members_share_every_topic_not_one_topic_each() -> None:
    targets = UNIFORM(members_of("m1", "m2", topics=frozenset({A, B})), {A: 2, B: 2})

    assert [sorted(target) for target in targets.values()] == [[A, B], [A, B]]


def test_a_new_member_takes_its_share_from_those_that_have_most() -> None:
    members = {"m1": MemberSpec(frozenset({A}), {A: of(0, 1, 2, 3)}), "m2": MemberSpec(frozenset({A}), {A: of(4, 5)})}

    targets = UNIFORM({**members, "m3": MemberSpec(frozenset({A}))}, {A: 6})

    assert targets["m1"][A] < of(0, 1, 2, 3)
    assert targets["m2"] == {A: of(4, 5)}


def test_what_a_member_that_left_had_goes_to_the_others_and_nothing_else_moves() -> None:
    members = {"m1": MemberSpec(frozenset({A}), {A: of(0, 3)}), "m2": MemberSpec(frozenset({A}), {A: of(1, 4)})}

    targets = UNIFORM(members, {A: 6})

    assert targets["m1"][A] > of(0, 3)
    assert targets["m2"][A] > of(1, 4)


def test_a_partition_that_two_members_had_stays_with_one_of_them() -> None:
    members = {each: MemberSpec(frozenset({A}), {A: of(0, 1)}) for each in ("m1", "m2")}

    assert UNIFORM(members, {A: 2}) == {"m1": {A: of(0)}, "m2": {A: of(1)}}


def test_a_topic_that_only_the_busiest_may_read_makes_way_for_it_elsewhere() -> None:
    """m1 alone reads B, so m2 gets more of A; what m1 has of it already moves."""
    members = {
        "m1": MemberSpec(frozenset({A, B}), {A: of(0, 1, 2)}),
        "m2": MemberSpec(frozenset({A}), {A: of(3, 4, 5)}),
    }

    targets = UNIFORM(members, {A: 6, B: 2})

    assert targets["m1"][B] == of(0, 1)
    assert load(targets["m2"]) == 4


def test_an_unevenness_that_moves_on_from_topic_to_topic_is_evened_out() -> None:
    """m1 has too many of A, of which m2 takes some; then m2 has too many of B for m3."""
    members = {
        "m1": MemberSpec(frozenset({A}), {A: of(0, 1, 2, 3, 4, 5)}),
        "m2": MemberSpec(frozenset({A, B}), {B: of(0, 1, 2)}),
        "m3": MemberSpec(frozenset({B})),
    }

    targets = UNIFORM(members, {A: 6, B: 3})

    assert [load(targets[each]) for each in members] == [4, 3, 2]


# --- range ------------------------------------------------------------------------------------------------------------


def test_range_gives_neighbours_and_the_first_members_what_is_left_over() -> None:
    assert RANGE(members_of("m1", "m2", "m3"), {A: 7}) == {
        "m1": {A: of(0, 1, 2)},
        "m2": {A: of(3, 4)},
        "m3": {A: of(5, 6)},
    }


def test_range_cuts_topics_with_as_many_partitions_in_the_same_way() -> None:
    targets = RANGE(members_of("m1", "m2", topics=frozenset({A, B})), {A: 5, B: 5})

    assert all(target[A] == target[B] for target in targets.values())


def test_range_leaves_the_last_members_without_where_partitions_are_too_few() -> None:
    assert RANGE(members_of("m1", "m2", "m3"), {A: 2}) == {"m1": {A: of(0)}, "m2": {A: of(1)}, "m3": {}}


def test_range_cuts_a_topic_among_those_that_subscribe_to_it() -> None:
    members = {**members_of("m1", "m3"), **members_of("m2", topics=frozenset({A, B}))}

    targets = RANGE(members, {A: 3, B: 2})

    assert targets == {"m1": {A: of(0)}, "m2": {A: of(1), B: of(0, 1)}, "m3": {A: of(2)}}


def test_range_puts_static_members_first_by_their_instances() -> None:
    """A process that comes back with another member id reads what it read."""
    ids = {"m0": None, "z9": "beta", "a1": "alpha"}
    members = {each: MemberSpec(frozenset({A}), {}, instance) for each, instance in ids.items()}
    again = {"new" if each == "z9" else each: member for each, member in members.items()}

    targets = RANGE(members, {A: 3})

    assert targets == {"a1": {A: of(0)}, "z9": {A: of(1)}, "m0": {A: of(2)}}
    assert RANGE(again, {A: 3})["new"] == targets["z9"]

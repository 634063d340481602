"""Consumer groups of clients that know nothing of us, whose members come, go, die and sleep.

Longer: `python -m tests.chaos.groups.trouble --times 10`.
"""

from collections.abc import Iterator

import pytest

from ottla.testing.processes import ProcessCluster
from tests.chaos.groups import history
from tests.chaos.groups.diary import Entry
from tests.chaos.groups.members import COOPERATIVE, KINDS
from tests.chaos.groups.trouble import SETTINGS, groups, trouble


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    with ProcessCluster(nodes=3, settings=SETTINGS) as running:
        yield running


def test_every_record_is_read_in_order_whoever_joins_leaves_dies_or_sleeps(cluster: ProcessCluster) -> None:
    trouble(cluster, list(KINDS), times=2, seed=12)


def test_only_partitions_that_have_to_move_stop(cluster: ProcessCluster) -> None:
    """A third member comes and goes again: the others' partitions go on meanwhile, where the protocol lets them."""
    with groups(cluster, ["librdkafka-eager", *COOPERATIVE], seed=1) as (found, _):
        eager, *cooperative = found
        for group in found:
            group.settle()
        begun = {group: len(group.entries()) for group in found}
        comers = [(group, group.join()) for group in found]
        for group in found:
            group.settle()
        for group, comer in comers:
            group.leave(comer)
        for group in found:
            group.settle()
        for group in cooperative:
            entries = group.entries()
            moved = [each for each in entries if each.what in ("assigned", "revoked", "lost")]
            assert history.stopped_in_vain(entries) == [], moved
            assert read_beside(entries, begun[group]) > 0
        assert len(history.stopped_in_vain(eager.entries())) >= 2, "so that what is measured is there to be seen"


def read_beside(entries: list[Entry], begun: int) -> int:
    """Records of partitions that stay, while others have no owner."""
    moving: set[int] = set()
    count = 0
    for each in entries[begun:]:
        if each.what in ("revoked", "lost"):
            moving.add(each.partition)
        elif each.what == "assigned":
            moving.discard(each.partition)
        elif each.what == "record" and moving:
            count += 1
    return count


def test_what_is_read_while_a_partition_moves_is_counted() -> None:
    kept, moved = Entry(3, "a", "record", 0, 5, 5), Entry(2, "a", "revoked", 1)
    assert read_beside([moved, kept, Entry(4, "b", "assigned", 1), Entry(5, "a", "record", 0, 6, 6)], 0) == 1


GOOD = [
    Entry(1, "a", "assigned", 0),
    Entry(2, "a", "record", 0, 0, 0),
    Entry(3, "a", "record", 0, 1, 1),
    Entry(4, "a", "committed", 0, 2),
    Entry(5, "a", "record", 0, 2, 2),
    Entry(6, "b", "assigned", 0),
    Entry(7, "b", "record", 0, 2, 2),
    Entry(8, "b", "record", 0, 3, 3),
]


def test_a_history_in_which_a_record_is_read_twice_is_sound() -> None:
    history.check_all(GOOD, 1, 5)


@pytest.mark.parametrize(
    ("at", "entry", "words"),
    [
        (7, Entry(8, "b", "record", 0, 4, 4), "was not given 3"),
        (6, Entry(7, "b", "record", 0, 1, 1), "2 was committed before"),
        (2, Entry(3, "a", "record", 0, 0, 0), "offset 0 was given again"),
        (7, Entry(8, "b", "record", 0, 3, 4), "offset 3 was '0:4' and '0:3'"),
        (6, Entry(7, "b", "record", 0, 4, 4), "nobody had read offset 3"),
    ],
)
def test_a_history_in_which_something_is_wrong_says_what(at: int, entry: Entry, words: str) -> None:
    with pytest.raises(AssertionError) as raised:
        history.check_all([*GOOD[:at], entry, *GOOD[at + 1 :]], 1, 5)
    assert words in str(raised.value)

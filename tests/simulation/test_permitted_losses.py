"""What the simulation lets an election lose: exactly what the elected leader lacks, and nothing anywhere else."""

import pytest
from msgspec import structs

from ottla.quorum.metadata.views import NO_LEADER, RECOVERING, PartitionView
from ottla.testing.simulation.committed import Batch, CommittedLog
from ottla.testing.simulation.losses import Losses
from ottla.testing.simulation.workload import BrokenPromise, History, check_history

KEY = (b"t" * 16, 0)
LED = PartitionView(
    replicas=(1, 2), isr=(1,), leader=1, leader_epoch=3, partition_epoch=5, directories=(b"a" * 16, b"b" * 16)
)
BATCHES = [Batch(offset, offset, 3, offset) for offset in range(6)]


def committed(count: int = 6) -> CommittedLog:
    log = CommittedLog()
    log.batches += BATCHES[:count]
    return log


def test_what_the_new_leader_lacks_is_lost_and_no_more() -> None:
    log = committed()
    log.branch(4, 0, BATCHES[:4])
    assert (log.end, [log.may_lack(offset) for offset in range(7)]) == (4, [0, 0, 0, 0, 1, 1, 0])


def test_a_history_parts_where_the_new_leader_has_something_else() -> None:
    log = committed()
    log.branch(4, 0, [*BATCHES[:3], Batch(3, 3, 2, 99), Batch(4, 4, 2, 98)])
    assert (log.end, log.may_lack(2), log.may_lack(3)) == (3, 0, 1)


def test_what_is_deleted_is_not_lost() -> None:
    log = committed()
    log.branch(4, 3, BATCHES[3:])
    assert (log.end, log.lost) == (6, [])


def test_a_leader_that_has_not_heard_of_it_loses_what_it_commits() -> None:
    log = committed(4)
    log.branch(4, 0, BATCHES[:4])
    assert log.left_by(3) is not None
    assert log.left_by(4) is None
    log.lose(BATCHES[4:])
    log.lose(BATCHES[4:])
    assert [log.may_lack(offset) for offset in (3, 4, 5)] == [0, 1, 1]


def test_no_more_may_be_missing_than_was_lost_there() -> None:
    history = History("t", 0, acknowledged=[(0, 0), (1, 1), (2, 1)])
    assert check_history(history, [(0, 0)], lambda offset: 2 * (offset == 1)) == 2
    with pytest.raises(BrokenPromise, match="record 2 was acknowledged at offset 1; there is nothing"):
        check_history(history, [(0, 0)], lambda offset: offset == 1)
    with pytest.raises(BrokenPromise, match="record 1"):
        check_history(history, [(0, 0)])


def unclean(leader: int = 2, epoch: int = 4) -> PartitionView:
    return structs.replace(
        LED, isr=(leader,), leader=leader, leader_epoch=epoch, leader_recovery_state=RECOVERING, partition_epoch=6
    )


def test_an_unclean_election_permits_it_once_also_when_who_was_elected_dies_first() -> None:
    losses = Losses()
    losses.may_elect = lambda topic: topic == "wagers"
    losses.elected("wagers", KEY, LED, unclean())
    assert losses.is_chosen(KEY, 2), "it may be taken out, and come back, before it leads"
    assert not losses.permits(KEY, 1, 3, 0)
    assert losses.overtakes(KEY, 3)
    assert losses.permits(KEY, 2, 5, 0)
    assert not losses.is_chosen(KEY, 2)
    assert not losses.permits(KEY, 2, 6, 0)


@pytest.mark.parametrize(
    ("topic", "before", "view"),
    [
        ("flights", LED, unclean()),
        ("wagers", structs.replace(LED, isr=(1, 2)), unclean()),
        ("wagers", structs.replace(LED, elr=(2,)), unclean()),
        ("wagers", LED, structs.replace(LED, leader=NO_LEADER)),
    ],
)
def test_nothing_else_permits_it(topic: str, before: PartitionView, view: PartitionView) -> None:
    losses = Losses()
    losses.may_elect = lambda topic: topic == "wagers"
    losses.elected(topic, KEY, before, view)
    assert not losses.is_chosen(KEY, 2)
    assert not losses.permits(KEY, 2, 4, 0)


def test_a_power_cut_of_all_permits_what_was_not_on_stable_storage() -> None:
    losses = Losses()
    for end, permitted in ((3, False), (4, True)):
        losses.power_was_cut(KEY, {1: 4})
        assert losses.permits(KEY, 1, 5, end) is permitted
    losses.power_was_cut(KEY, {1: 4})
    assert not losses.permits(KEY, 2, 5, 9)


def test_who_was_elected_uncleanly_is_alone_until_somebody_comes_or_another_is_elected() -> None:
    losses = Losses()
    losses.may_elect = lambda topic: True
    view = unclean()
    assert not losses.is_alone_since(KEY, view), "nobody decided it"
    losses.elected("wagers", KEY, LED, view)
    assert losses.is_alone_since(KEY, view)
    assert losses.is_alone_since(KEY, structs.replace(view, leader=NO_LEADER, leader_epoch=5)), "it died"
    assert not losses.is_alone_since(KEY, structs.replace(view, isr=(2, 1)))
    assert not losses.is_alone_since(KEY, structs.replace(view, leader_epoch=5))

"""The low watermark: where all live replicas' logs begin. Who deletes records waits until it has passed them."""

from msgspec.structs import replace

from ottla.broker.replication.decisions.leader import PartitionLeader
from tests.unit.broker.replication.leader_bench import fetch, lead_again, make_leader


def told(leader: PartitionLeader, **starts: int) -> PartitionLeader:
    """``told(leader, b2=40)``: broker 2 fetched, and its log begins at 40."""
    for name, start in starts.items():
        broker = int(name[1:])
        fetch(leader, broker, 100)
        leader.replicas[broker].log_start_offset = start
    return leader


def test_it_is_the_lowest_start_of_all_replicas() -> None:
    assert told(make_leader(), b2=40, b3=60).low_watermark(50) == 40
    assert told(make_leader(), b2=70, b3=60).low_watermark(50) == 50


def test_it_is_not_known_before_every_live_follower_has_told() -> None:
    assert told(make_leader(), b2=40).low_watermark(50) == -1


def test_whoever_is_fenced_or_gone_is_not_waited_for() -> None:
    leader = told(make_leader(), b2=40)
    brokers = dict(leader.brokers)
    leader.brokers = {**brokers, 3: replace(brokers[3], fenced=True)}
    assert leader.low_watermark(50) == 40
    leader.brokers = {number: brokers[number] for number in (1, 2)}
    assert leader.low_watermark(50) == 40


def test_it_is_our_own_start_where_nobody_follows() -> None:
    assert make_leader(isr=(1,), replicas=(1,)).low_watermark(50) == 50


def test_what_was_told_in_an_earlier_epoch_counts_no_more() -> None:
    """The follower may have lost its log since, and begun anew elsewhere."""
    leader = told(make_leader(), b2=40, b3=60)
    lead_again(leader, epoch=6, partition_epoch=9, isr=(1, 2, 3))
    assert leader.low_watermark(50) == -1

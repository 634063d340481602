"""The simulated world that the core is tested in does what it says: its disk, its clock, its network, its book of promises."""

from random import Random

import pytest

from ottla.quorum.raft.instructions import CommitAdvanced, LeaderChanged
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.voters import VoterSet
from ottla.testing.raft.clock import DriftingClock
from ottla.testing.raft.cluster import RaftCluster
from ottla.testing.raft.disk import FaultyDisk
from ottla.testing.raft.faults import FaultEvent, FaultKind
from ottla.testing.raft.invariants import InvariantViolation
from ottla.testing.raft.memory import Entry, Snapshot
from ottla.testing.raft.network import FAIR, Network
from ottla.testing.raft.promises import Append, Promises
from ottla.testing.raft.seeds import RunFailure, plan_of, run_seed


def record(number: int, epoch: int = 1) -> Entry:
    return Entry(epoch, number.to_bytes(8, "big"))


def disk_of(records: int, synced: int) -> FaultyDisk:
    disk = FaultyDisk(VoterSet())
    disk.entries += [record(number) for number in range(records)]
    disk.durable_end = synced
    return disk


def crashed(seed: int, *, power: bool = False) -> FaultyDisk:
    disk = disk_of(records=10, synced=4)
    disk.lose(Random(seed), power=power)
    return disk


def test_what_was_synced_survives_every_crash() -> None:
    for seed in range(50):
        disk = crashed(seed)
        disk.recover()
        assert disk.entries[:4] == [record(number) for number in range(4)]


def test_a_crash_may_keep_all_some_or_nothing_of_the_rest() -> None:
    ends = set()
    for seed in range(50):
        disk = crashed(seed)
        disk.recover()
        ends.add(disk.end)

    assert ends == {4, 7, 10}


def test_a_torn_batch_is_on_the_disk_and_whole_ones_may_lie_behind_it() -> None:
    torn = [entry for seed in range(50) for entry in crashed(seed).entries if len(entry.payload) < 8]
    behind = [
        crashed(seed) for seed in range(50) if any(len(entry.payload) < 8 for entry in crashed(seed).entries[:-1])
    ]

    assert torn
    assert behind


def test_recovery_cuts_the_log_at_a_torn_batch() -> None:
    for seed in range(50):
        disk = crashed(seed)
        disk.recover()
        assert disk.entries == [record(number) for number in range(disk.end)]
        assert disk.durable_end == disk.end


def test_a_power_cut_may_undo_a_truncation_that_was_not_synced() -> None:
    ends = set()
    for seed in range(50):
        disk = disk_of(records=6, synced=6)
        disk.truncate(3)
        disk.entries.append(record(99, epoch=2))
        disk.lose(Random(seed), power=True)
        disk.recover()
        ends.add((disk.end, disk.entries[-1]))

    assert (6, record(5)) in ends
    assert (3, record(2)) in ends


def test_a_synced_truncation_is_not_undone() -> None:
    for seed in range(20):
        disk = disk_of(records=6, synced=6)
        disk.truncate(3)
        disk.synced(3, disk.truncations)
        disk.lose(Random(seed), power=True)
        assert disk.end == 3


def test_a_sync_from_before_a_truncation_vouches_for_nothing_after_it() -> None:
    disk = disk_of(records=6, synced=0)
    before = disk.truncations
    disk.truncate(3)
    disk.entries.append(record(7, epoch=2))
    disk.synced(6, before)

    assert disk.durable_end == 0


def test_a_snapshot_beyond_the_recovered_log_replaces_it() -> None:
    disk = disk_of(records=10, synced=4)
    disk.received = Snapshot(OffsetAndEpoch(12, 3), (), None)
    disk.recover()

    assert (disk.start, disk.end, disk.base_epoch) == (12, 12, 3)


def test_a_clock_runs_at_its_rate_and_jumps_ahead() -> None:
    clock = DriftingClock(2.0)
    clock.run_at(1_000_000, 0.5)
    clock.jump(3_000_000)

    assert clock.now_ms(500_000 + 1_000_000) == 2000 + 250 + 3000


def test_a_clock_shows_the_time_when_it_said_it_would() -> None:
    clock = DriftingClock(0.93)
    clock.run_at(123_456, 1.07)

    due_us = clock.true_us(700)
    assert clock.now_ms(due_us) >= 700
    assert clock.now_ms(due_us - 3000) < 700


def network() -> Network:
    return Network(Random(0), FAIR, (1, 2, 3))


def test_a_cut_is_one_way() -> None:
    cut = network()
    cut.cut(FaultEvent(0, FaultKind.CUT, 1, 2))

    assert not cut.passes(1, 2)
    assert cut.passes(2, 1)
    assert cut.passes(1, 3)


@pytest.mark.parametrize(
    ("kind", "out", "back"), [("isolate", False, False), ("mute", False, True), ("deafen", True, False)]
)
def test_a_node_is_cut_off_in_one_direction_or_both(kind: str, out: bool, back: bool) -> None:
    cut = network()
    cut.cut(FaultEvent(0, FaultKind(kind), 1))

    assert (cut.passes(1, 2), cut.passes(2, 1)) == (out, back)
    cut.heal(1)
    assert (cut.passes(1, 2), cut.passes(2, 1)) == (True, True)


def test_healing_one_node_leaves_the_cuts_of_another() -> None:
    cut = network()
    cut.cut(FaultEvent(0, FaultKind.MUTE, 1))
    cut.cut(FaultEvent(0, FaultKind.MUTE, 2))
    cut.heal(1)

    assert cut.passes(1, 3)
    assert not cut.passes(2, 3)


def append(epoch: int = 1) -> Append:
    return Append(0, epoch, 5, (b"a" * 8, b"b" * 8))


def committed(*payloads: bytes) -> list[Entry]:
    return [record(0)] * 5 + [Entry(1, payload) for payload in payloads]


def test_an_append_is_open_until_it_is_committed() -> None:
    promises = Promises()
    promises.appended(1, append())
    promises.told(1, CommitAdvanced(6), committed(b"a" * 8))

    assert promises.open(1) == [append()]
    promises.told(1, CommitAdvanced(7), committed(b"a" * 8, b"b" * 8))
    assert promises.open(1) == []


def test_an_append_ends_with_the_leadership_or_the_process() -> None:
    promises = Promises()
    promises.appended(1, append())
    promises.told(1, LeaderChanged(2, 3), [])
    promises.appended(2, append())
    promises.process_died(2)

    assert promises.open(1) == []
    assert promises.appends == {"committed": 0, "lost leadership": 1, "process died": 1}


def test_to_call_committed_what_is_not_is_a_violation() -> None:
    promises = Promises()
    promises.appended(1, append())

    with pytest.raises(InvariantViolation, match="acknowledged means committed"):
        promises.told(1, CommitAdvanced(7), committed(b"a" * 8, b"c" * 8))


def paused_leader() -> tuple[RaftCluster, int]:
    cluster = RaftCluster(1, weather=FAIR)
    cluster.start_all()
    cluster.run(500)
    leader = cluster.leader()
    assert leader is not None
    cluster.inflict(FaultEvent(0, FaultKind.PAUSE, leader.id, amount=1_000_000))
    return cluster, leader.id


def test_a_paused_node_does_nothing_and_then_all_at_once() -> None:
    cluster, paused = paused_leader()
    replica = cluster.nodes[paused].replica
    assert replica is not None
    before = replica.core.state.now_ms
    cluster.run(900)
    assert replica.core.state.now_ms == before
    assert cluster.nodes[paused].held

    cluster.run(200)
    assert cluster.nodes[paused].held is None
    assert replica.core.state.now_ms > before


def test_a_process_may_die_between_two_instructions() -> None:
    cluster = RaftCluster(1, weather=FAIR)
    cluster.start_all()
    cluster.run(500)
    leader = cluster.leader()
    assert leader is not None
    epoch, end = leader.disk.election.epoch, leader.disk.end
    cluster.inflict(FaultEvent(0, FaultKind.CRASH_AMID, leader.id, amount=1))
    cluster.append()

    assert leader.replica is None  # it had appended and not begun to sync
    assert (leader.disk.election.epoch, leader.disk.durable_end) == (epoch, end)


def test_a_failing_seed_tells_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.quorum.raft.rules.committed_offset", max)

    with pytest.raises(RunFailure, match=r"python -m ottla.testing.raft.run --seed 1\b"):
        run_seed(1)


def test_a_plan_follows_from_its_seed() -> None:
    assert plan_of(3) == plan_of(3)
    assert plan_of(3) != plan_of(5)


def quiet_cluster(*, formatted: bool) -> RaftCluster:
    cluster = RaftCluster(1, 3, formatted=formatted, weather=FAIR)
    cluster.start_all()
    assert cluster.run_until(lambda: bool(cluster.append()), 1000)
    cluster.run(1000)
    return cluster


def test_a_lost_disk_comes_back_as_another_replica() -> None:
    cluster = quiet_cluster(formatted=True)
    old = cluster.nodes[2].key
    cluster.inflict(FaultEvent(0, FaultKind.WIPE, 2, amount=1000))
    cluster.inflict(FaultEvent(0, FaultKind.WIPE, 3, amount=1000))
    cluster.run(1500)

    assert cluster.nodes[2].key != old
    assert cluster.nodes[2].disk.static == VoterSet(), "who votes the others tell"
    assert cluster.nodes[3].wipes == 0, "the majority keeps its disks"


def test_a_static_voter_loses_its_disk_only_while_the_others_hold_everything() -> None:
    cluster = quiet_cluster(formatted=False)
    cluster.stop(cluster.nodes[3], silently=True)
    cluster.inflict(FaultEvent(0, FaultKind.WIPE, 2, amount=1000))
    cluster.run(500)
    assert cluster.nodes[2].wipes == 0
    cluster.start(cluster.nodes[3])
    cluster.run(500)

    assert cluster.nodes[2].wipes == 1

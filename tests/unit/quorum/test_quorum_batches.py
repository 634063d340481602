from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.batch import CorruptBatchError, headers
from ottla.log.records import ControlType, control_type_of, decode_records
from ottla.quorum.accumulator import BatchAccumulator
from ottla.quorum.batches import committed_batches, encode_values, parse_batches
from ottla.quorum.control_records import UnreadableLevelError, control_batch, decode_voters, encode_voters
from ottla.quorum.election_store import ElectionStore, QuorumStateError
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.instructions import AppendControl, KRaftVersion, LeaderChange, Voters
from ottla.quorum.raft.messages import BatchInfo
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.quorum.synced_mark import SyncedMark
from ottla.runtime.errors import KafkaError
from ottla.runtime.key_value import DamagedStoreError
from ottla.testing.quorum.memory import MemoryStore

DIRECTORY = bytes(range(16))
VOTERS = VoterSet.of(
    [Voter(ReplicaKey(1, DIRECTORY), Endpoint("one", 9093)), Voter(ReplicaKey(2), Endpoint("two.example", 65535))]
)


def test_a_batch_says_what_it_holds_and_what_caused_it() -> None:
    data = encode_values([b"a", b"b"], 7, 3, 1000, "create topic t") + encode_values([b"c"], 9, 3, 1001, "")
    parsed = parse_batches(bytes(data))
    told = list(committed_batches(bytes(data), 7))

    assert parsed.batches == (BatchInfo(7, 8, 3), BatchInfo(9, 9, 3))
    assert [(batch.base_offset, batch.last_offset, batch.epoch) for batch in told] == [(7, 8, 3), (9, 9, 3)]
    assert [batch.records for batch in told] == [[b"a", b"b"], [b"c"]]
    assert [batch.cause for batch in told] == ["create topic t", ""]
    assert [batch.append_time_ms for batch in told] == [1000, 1001]


def test_a_batch_cut_off_is_left_out() -> None:
    first, second = encode_values([b"a"], 0, 1, 0, ""), encode_values([b"b"], 1, 1, 0, "")
    parsed = parse_batches(bytes(first + second[:-1]))

    assert parsed.data == bytes(first)
    assert len(parsed.batches) == 1


def test_a_damaged_batch_is_refused() -> None:
    data = encode_values([b"abc"], 0, 1, 0, "")
    data[-2] ^= 1
    with pytest.raises(CorruptBatchError):
        parse_batches(bytes(data))


def test_what_was_delivered_is_not_told_again() -> None:
    data = encode_values([b"a"], 0, 1, 0, "") + encode_values([b"b"], 1, 1, 0, "")

    assert [batch.base_offset for batch in committed_batches(bytes(data), 1)] == [1]


def test_control_batches_move_the_offset_and_carry_no_records() -> None:
    change = LeaderChange(1, (ReplicaKey(1, DIRECTORY), ReplicaKey(2)), (1,))
    data = bytes(control_batch(AppendControl(4, 2, (change, Voters(VOTERS))), 99))
    [told] = committed_batches(data, 0)
    [parsed] = parse_batches(data).batches

    assert (told.base_offset, told.last_offset, told.records) == (4, 5, [])
    assert parsed == BatchInfo(4, 5, 2, VOTERS)
    [(position, header)] = headers(data)
    kinds = [control_type_of(record.key) for record in decode_records(data, header, position=position)]
    assert kinds == [ControlType.LEADER_CHANGE, ControlType.KRAFT_VOTERS]


def test_a_leader_change_has_kafkas_bytes() -> None:
    change = LeaderChange(1, (ReplicaKey(1, DIRECTORY),), (1,))
    data = bytes(control_batch(AppendControl(0, 1, (change,)), 0))
    [(position, header)] = headers(data)
    [record] = decode_records(data, header, position=position)
    voter = b"\0\0\0\1" + b"\0"

    assert record.key == b"\0\0\0\2"
    assert record.value == b"\0\0" + b"\0\0\0\1" + b"\2" + voter + b"\2" + voter + b"\0"


def test_kraft_version_has_kafkas_bytes() -> None:
    data = bytes(control_batch(AppendControl(0, 1, (KRaftVersion(1), Voters(VOTERS))), 0))
    [(position, header)] = headers(data)
    first, second = decode_records(data, header, position=position)

    assert (first.key, first.value) == (b"\0\0\0\5", b"\0\0" + b"\0\1" + b"\0")
    assert control_type_of(second.key) == ControlType.KRAFT_VOTERS
    assert parse_batches(data).batches[0].voters == VOTERS


def test_a_level_of_kraft_version_that_only_newer_software_reads_stops_the_node() -> None:
    data = bytes(control_batch(AppendControl(0, 1, (KRaftVersion(2), Voters(VOTERS))), 0))

    with pytest.raises(UnreadableLevelError, match=r"at level 2 and this node reads 0 to 1: upgrade it"):
        parse_batches(data)


KEYS = st.builds(ReplicaKey, st.integers(0, 2**31 - 1), st.none() | st.binary(min_size=16, max_size=16).filter(any))
MEMBERS = st.builds(Voter, KEYS, st.builds(Endpoint, st.text(max_size=300), st.integers(0, 65535)))


@given(st.lists(MEMBERS, min_size=1, max_size=5, unique_by=lambda voter: voter.key.id))
def test_voter_sets_survive_encoding(members: list[Voter]) -> None:
    voters = VoterSet.of(members)

    assert decode_voters(encode_voters(voters)) == voters


@given(st.binary(max_size=60))
def test_garbage_is_no_voter_set(data: bytes) -> None:
    with suppress(KafkaError):
        decode_voters(data)


@pytest.mark.parametrize(
    "value",
    [
        encode_voters(VoterSet()),
        b"\0\0" + b"\xff" * 100_000,
        encode_voters(VOTERS)[:-30],
        encode_voters(VoterSet(VOTERS.voters * 2)),
    ],
    ids=["nobody", "a number without end", "cut off", "one twice"],
)
def test_what_cannot_be_a_voter_set_is_refused(value: bytes) -> None:
    with pytest.raises(KafkaError, match="voters record"):
        decode_voters(value)


def test_the_accumulator_gives_offsets_and_drains_all_at_once() -> None:
    accumulator = BatchAccumulator(epoch=3, next_offset=10, batch_bytes_max=10_000)

    assert accumulator.append([b"a", b"b"], 5, "x") == 11
    assert accumulator.append([b"c"], 6, "") == 12
    event, committable = accumulator.drain()
    assert event.batches == (BatchInfo(10, 11, 3), BatchInfo(12, 12, 3))
    assert parse_batches(event.data).batches == event.batches
    assert list(committed_batches(event.data, 0)) == committable
    assert not accumulator
    assert accumulator.next_offset == 13


def test_the_election_state_is_kept_durably() -> None:
    store = MemoryStore()
    state = ElectionState(7, None, ReplicaKey(2, DIRECTORY))

    assert election_store(store).load(0) == ElectionState()
    election_store(store).save(state)
    assert election_store(store).load(0) == state
    assert store.durable_writes == 1


def election_store(store: MemoryStore, cluster_id: str = "mine", node_id: int = 1) -> ElectionStore:
    return ElectionStore(store, cluster_id, node_id)


@pytest.mark.parametrize("position", range(12))
def test_an_election_state_with_a_bit_flipped_is_not_believed(position: int) -> None:
    """Another epoch, or another vote, would be given away: two leaders in one epoch."""
    store = MemoryStore()
    election_store(store).save(ElectionState(7, None, ReplicaKey(2, DIRECTORY)))
    data = bytearray(store.pairs[b"quorum/election"])
    data[position * len(data) // 12] ^= 4
    store.write([(b"quorum/election", bytes(data))], durable=True)
    with pytest.raises(QuorumStateError, match=r"damaged.* remove-controller"):
        election_store(store).load(0)


@pytest.mark.parametrize("other", [("theirs", 1), ("mine", 2)], ids=["cluster", "node"])
def test_the_election_state_of_another_is_not_believed(other: tuple[str, int]) -> None:
    store = MemoryStore()
    election_store(store).save(ElectionState(7, 1, None))
    with pytest.raises(QuorumStateError, match="another node's"):
        election_store(store, *other).load(0)


def test_a_log_without_an_election_state_has_lost_it() -> None:
    with pytest.raises(QuorumStateError, match="there is none"):
        election_store(MemoryStore()).load(1)


def test_a_store_that_cannot_be_read_is_no_empty_one() -> None:
    class Unreadable(MemoryStore):
        def get(self, key: bytes) -> bytes | None:
            raise DamagedStoreError("/metadata/quorum-state: MDB_CORRUPTED")

    with pytest.raises(QuorumStateError, match="MDB_CORRUPTED"):
        election_store(Unreadable()).load(0)
    with pytest.raises(QuorumStateError, match="MDB_CORRUPTED"):
        SyncedMark(Unreadable())


def test_the_mark_of_the_synced_log_rises_by_itself_and_falls_durably() -> None:
    store = MemoryStore()
    mark = SyncedMark(store)
    mark.raise_to(9)
    mark.raise_to(7)
    mark.raise_to(11)
    assert (SyncedMark(store).offset, store.durable_writes) == (11, 1), "only the first is waited for"

    mark.cut_at(11)
    assert (SyncedMark(store).offset, store.durable_writes) == (11, 1)
    mark.cut_at(10)
    assert (SyncedMark(store).offset, store.durable_writes) == (0, 2)

    mark.begin(5)
    assert (SyncedMark(store).offset, store.durable_writes) == (5, 3)
    mark.begin(4)
    assert SyncedMark(store).offset == 5


def test_a_mark_that_cannot_be_read_is_no_zero() -> None:
    store = MemoryStore()
    store.write([(b"quorum/log-synced", b"1")], durable=True)
    with pytest.raises(QuorumStateError, match="damaged"):
        SyncedMark(store)

"""The records of `__transaction_state`, as Kafka writes and reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.coordinator.decisions.effects import Record
from ottla.broker.coordinator.decisions.transactions import transitions
from ottla.broker.coordinator.decisions.transactions.transaction import (
    BEFORE,
    LAST_EPOCH,
    NOTHING,
    State,
    Transaction,
)
from ottla.broker.coordinator.decisions.transactions.transaction_records import read, record, tombstone
from ottla.broker.wire.codec import encoder
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.messages.transaction_log_key import TransactionLogKey
from ottla.broker.wire.messages.transaction_log_value import PartitionsSchema, TransactionLogValue
from tests.unit.broker.coordinator.transactions.transaction_bench import Bench

FULL = Transaction(
    producer_id=5,
    epoch=7,
    timeout_ms=60_000,
    state=State.PREPARE_COMMIT,
    updated_ms=200,
    started_ms=100,
    partitions={"u": frozenset((2, 0)), "t": frozenset((1,))},
    next_producer_id=6,
    last_epoch=6,
    client_version=2,
)


def again(transaction: Transaction, version: int) -> Transaction:
    """Written and read."""
    written = record("x", transaction, version)
    found = read(Record(written.key, written.value))
    assert found is not None
    name, restored = found
    assert name == "x"
    assert restored is not None
    return restored


def test_what_is_written_is_read_again() -> None:
    assert again(FULL, 2) == FULL
    plain = transitions.replace(FULL, next_producer_id=-1, last_epoch=-1, client_version=0)
    assert again(plain, 0) == plain


def test_the_bytes_are_those_of_kafka() -> None:
    """Version 0: no tags; the partitions of an empty transaction are null."""
    empty = Transaction(producer_id=5, epoch=7, timeout_ms=60_000, state=State.EMPTY, updated_ms=200)
    written = record("x", empty, 0)
    assert written.key == b"\0\0" + b"\0\1x"
    assert written.value == bytes.fromhex(
        "0000" + "0000000000000005" + "0007" + "0000ea60" + "00" + "ffffffff" + "00000000000000c8" + "f" * 16
    )
    assert (record("x", empty, 1).value or b"")[:2] == b"\0\1"


LONG = st.integers(-(2**63), 2**63 - 1)
EPOCH = st.integers(-1, 32_767)
PARTITIONS = st.dictionaries(
    st.text(min_size=1, max_size=200), st.frozensets(st.integers(0, 2**31 - 1), max_size=150), max_size=4
)
TRANSACTIONS = st.builds(
    Transaction,
    producer_id=LONG,
    epoch=EPOCH,
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from(list(BEFORE)),
    updated_ms=LONG,
    started_ms=LONG,
    partitions=PARTITIONS,
    previous_producer_id=st.just(-1) | LONG,
    next_producer_id=st.just(-1) | LONG,
    client_version=st.integers(0, 2),
)


@given(TRANSACTIONS, st.text(min_size=1, max_size=300), st.integers(0, 2))
def test_the_bytes_are_those_of_the_generated_messages(transaction: Transaction, name: str, version: int) -> None:
    tagged = version >= 1 or transaction.client_version >= 2
    empty = transaction.state is State.EMPTY
    topics = sorted(transaction.partitions.items())
    message = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if empty else [PartitionsSchema(topic, sorted(all_)) for topic, all_ in topics],
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
    )
    if tagged:
        message.previous_producer_id = transaction.previous_producer_id
        message.next_producer_id = transaction.next_producer_id
        message.client_transaction_version = transaction.client_version
    value = tagged.to_bytes(2) + b"".join(encoder(TransactionLogValue, int(tagged))(message))
    key = b"\0\0" + b"".join(encoder(TransactionLogKey, 0)(TransactionLogKey(name)))
    assert record(name, transaction, version) == Record(key, value, (name, transaction))


def test_what_only_tags_can_say_is_written_with_them_whatever_the_cluster_s_version() -> None:
    """It may be going back, with transactions under way."""
    assert again(FULL, 0) == FULL


def test_a_tombstone_says_that_the_id_is_gone() -> None:
    written = tombstone("x")
    assert written.value is None
    assert read(Record(written.key, None)) == ("x", None)


def test_a_kind_of_record_that_is_not_known_is_passed_over() -> None:
    assert read(Record(b"\0\7new", b"")) is None
    bench = Bench()
    bench.shard.replay(Record(b"\0\7new", b""), 0)()
    assert not bench.shard.contents()


@pytest.mark.parametrize("state", [State.DEAD, State.PREPARE_EPOCH_FENCE, 99])
def test_a_state_that_no_record_has_makes_no_sense(state: int) -> None:
    written = record("x", FULL, 2)
    value = bytearray(written.value or b"")
    value[16] = state
    with pytest.raises(ValueError, match=str(state if state == 99 else State(state).name)):
        read(Record(written.key, bytes(value)))


def test_a_record_cut_off_makes_no_sense() -> None:
    written = record("x", FULL, 2)
    with pytest.raises(WireError):
        read(Record(written.key, (written.value or b"")[:9]))


@pytest.mark.parametrize(
    ("changes", "last_epoch"),
    [
        ({}, 6),
        ({"state": State.COMPLETE_ABORT}, 6),
        ({"state": State.ONGOING}, -1),
        ({"state": State.EMPTY, "partitions": NOTHING}, -1),
        ({"client_version": 0, "next_producer_id": -1}, -1),
        ({"state": State.COMPLETE_COMMIT, "epoch": 0, "previous_producer_id": 4, "next_producer_id": -1}, LAST_EPOCH),
        ({"state": State.COMPLETE_COMMIT, "epoch": 0, "next_producer_id": -1}, -1),
    ],
)
def test_with_which_epoch_a_transaction_was_ended_is_known_where_it_follows_from_the_record(
    changes: dict[str, object], last_epoch: int
) -> None:
    assert again(transitions.replace(FULL, **changes), 2).last_epoch == last_epoch


# --- states -----------------------------------------------------------------------------------------------------------


def test_states_have_kafka_s_names() -> None:
    assert [state.told for state in State] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


@pytest.mark.parametrize("state", list(BEFORE))
@pytest.mark.parametrize("before", list(BEFORE))
def test_no_state_is_reached_from_one_that_it_does_not_follow(before: State, state: State) -> None:
    known = transitions.replace(FULL, state=before)
    makers = {
        State.EMPTY: lambda: transitions.bumped(known, 1, 1, epoch=8, last_epoch=7),
        State.ONGOING: lambda: transitions.extended(known, {}, 0, 1),
        State.PREPARE_COMMIT: lambda: transitions.prepared(
            known, is_commit=True, client_version=2, next_producer_id=-1, now_ms=1
        ),
        State.PREPARE_ABORT: lambda: transitions.fenced(known, 2, 1),
        State.COMPLETE_COMMIT: lambda: transitions.completed(known, 1),
        State.COMPLETE_ABORT: lambda: transitions.completed(known, 1),
    }
    if before in BEFORE[state]:
        assert makers[state]().state is state
    elif state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT) and before in BEFORE[State.COMPLETE_COMMIT]:
        assert makers[state]().state is State.COMPLETE_COMMIT
    elif not (state is State.COMPLETE_COMMIT and before is State.PREPARE_ABORT):
        with pytest.raises(transitions.IllegalTransitionError):
            makers[state]()


def test_time_that_goes_back_does_not_make_an_id_older() -> None:
    assert transitions.extended(transitions.replace(FULL, state=State.ONGOING), {}, 0, 1).updated_ms == 200

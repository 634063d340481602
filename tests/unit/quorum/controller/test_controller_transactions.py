"""Changes that do not fit one batch: nothing comes between their records, and they are whole or not at all."""

import pytest

from ottla.quorum.controller.batches import into_batches
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.listener import LeaderAndEpoch
from ottla.runtime.errors import ErrorCode, KafkaError
from tests.unit.quorum.controller.controller_bench import OTHER, Bench, create, kinds, records


def test_a_large_topic_is_one_transaction_of_bounded_batches() -> None:
    bench = Bench(records_per_batch_max=100).lead().commit()
    bench.broker(1)
    before = len(bench.quorum.log)
    answers = bench.ask(**create("large", 1000))
    bench.turns(11)
    written = bench.quorum.log[before:]
    assert [len(batch.records) for batch in written] == [100] * 10 + [3]
    assert kinds(written)[0][:2] == ["begin_transaction", "topic"]
    assert kinds(written)[-1][-1] == "end_transaction"
    bench.commit(10)
    assert (answers, list(bench.loader.image.topics_by_name)) == ([], [])
    bench.commit()
    assert len(answers) == 1
    assert len(bench.loader.image.topics_by_name["large"].partitions) == 1000


def test_the_next_controller_aborts_a_transaction_that_was_left_open() -> None:
    bench = Bench(records_per_batch_max=100).lead().commit()
    bench.broker(1)
    bench.ask(**create("large", 1000))
    bench.turns(11).commit(5)
    bench.follow()
    assert bench.loader.in_transaction
    bench.lead(3)
    assert kinds(bench.quorum.log)[-1] == ["abort_transaction"]
    answers = bench.ask(**create("large", 10))
    bench.commit()
    assert answers[0].create_topics.topics[0].error_code == ErrorCode.NONE
    assert len(bench.loader.image.topics_by_name["large"].partitions) == 10


def test_a_large_topic_is_appended_batch_by_batch_over_turns_of_the_loop() -> None:
    bench = Bench(records_per_batch_max=100).lead().commit()
    bench.broker(1)
    before = len(bench.quorum.log)
    bench.ask(**create("large", 1000))
    grown = []
    for _ in range(20):
        grown.append(len(bench.quorum.log) - before)
        bench.loop.advance(1)
    assert list(dict.fromkeys(grown)) == list(range(12)), "never two in one turn"


def test_nothing_comes_between_the_records_of_a_transaction() -> None:
    bench = Bench(records_per_batch_max=100, session_timeout_ms=9000).lead().commit()
    epoch = bench.broker(1)
    bench.broker(2)
    large = bench.ask(**create("large", 1000))
    bench.turns(3)
    same, other = bench.ask(**create("large")), bench.ask(**create("other"))
    bench.heartbeat(1, epoch)
    bench.turns(8).commit()
    assert [each.create_topics.topics[0].error_code for each in (*large, *same, *other)] == [
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.NONE,
    ]
    causes = [batch.cause for batch in bench.quorum.log]
    assert kinds(bench.quorum.log[-2:-1])[0][-1] == "end_transaction", "the other topic follows the whole transaction"
    assert causes[-12:] == ["create_topics by a test"] * 12
    assert bench.answers[-1].error_code == ErrorCode.NONE


def test_a_heartbeat_that_has_to_wait_counts_before_anybody_is_fenced() -> None:
    bench = Bench(records_per_batch_max=10, session_timeout_ms=9000).lead().commit()
    epoch = bench.broker(1)
    bench.loop.advance(8_990)
    bench.ask(**create("large", 1000))
    bench.heartbeat(1, epoch)
    bench.loop.advance(100)
    assert not bench.commit().is_fenced(1)


def test_a_fencing_waits_for_the_end_of_a_transaction() -> None:
    bench = Bench(records_per_batch_max=100, session_timeout_ms=9000).lead().commit()
    bench.broker(1)
    visit = bench.controller.open()
    bench.broker(2, visit.handle)
    visit.ended()
    bench.loop.advance(495)
    bench.ask(**create("large", 1000))
    bench.turns(2)
    bench.loop.now += 0.010  # the suspicion is due, and the transaction under way
    bench.turns(3)
    bench.loop.advance(100)
    bench.commit()
    last = next(index for index, names in enumerate(kinds(bench.quorum.log)) if "end_transaction" in names)
    fenced = next(index for index, batch in enumerate(bench.quorum.log) if "is fenced" in batch.cause)
    assert fenced > last
    assert bench.is_fenced(2)


def test_a_leadership_lost_in_the_middle_of_a_transaction_is_told_to_all_who_wait() -> None:
    bench = Bench(records_per_batch_max=100).lead().commit()
    bench.broker(1)
    large = bench.ask(**create("large", 1000))
    bench.turns(3)
    behind = bench.ask(**create("behind"))
    bench.follow()
    bench.turns(20)
    assert [each.error_code for each in (*large, *behind)] == [ErrorCode.NOT_CONTROLLER] * 2
    bench.lead(3)
    again = bench.ask(**create("large", 1000))
    bench.turns(11).commit()
    assert again[0].create_topics.topics[0].error_code == ErrorCode.NONE


def test_a_controller_that_leaves_in_the_middle_of_a_transaction_appends_no_more_of_it() -> None:
    bench = Bench(records_per_batch_max=100).lead().commit()
    bench.broker(1)
    large = bench.ask(**create("large", 1000))
    bench.turns(3)
    before = len(bench.quorum.log)
    bench.controller.leave()
    bench.turns(20)

    assert ([each.error_code for each in large], len(bench.quorum.log)) == ([ErrorCode.NOT_CONTROLLER], before)


def test_a_quorum_that_refuses_in_the_middle_of_a_transaction_is_told_to_all_who_wait() -> None:
    bench = Bench(records_per_batch_max=100).lead().commit()
    bench.broker(1)
    large = bench.ask(**create("large", 1000))
    bench.turns(3)
    behind = bench.ask(**create("behind"))
    bench.quorum.leader = LeaderAndEpoch(OTHER, 2)  # the listener is told a moment later
    bench.turns(1)
    assert [each.error_code for each in (*large, *behind)] == [ErrorCode.NOT_CONTROLLER] * 2


def test_a_transaction_that_cannot_be_applied_gives_the_leadership_up(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(records_per_batch_max=100).lead().commit()
    bench.broker(1)
    large = bench.ask(**create("large", 1000))
    bench.turns(3)

    def broken(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(ControllerState, "replay", broken)
    bench.turns(1)
    assert [each.error_code for each in large] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert bench.quorum.resigned == [1]


def test_batches_are_bounded_by_records_and_by_bytes() -> None:
    def cut(count: int, size: int, *, atomic: bool) -> list[int]:
        batches = into_batches(records(count, size), atomic=atomic, records_max=5, bytes_max=1000, name="n")
        return [len(batch.encoded) for batch in batches]

    assert cut(0, 1, atomic=True) == []
    assert cut(5, 1, atomic=True) == [5]
    assert cut(6, 1, atomic=False) == [5, 1]
    assert cut(6, 1, atomic=True) == [5, 3], "with its beginning and its end"
    assert cut(4, 400, atomic=False) == [2, 2]
    with pytest.raises(KafkaError) as caught:
        cut(1, 1000, atomic=False)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION

"""KIP-227: epochs, what is sent, and who makes room for whom."""

from itertools import count

import pytest

from ottla.broker.fetch_tuples import FetchPartition
from ottla.broker.replication.decisions.fetch_session import EPOCH_MAX, FetchSession, SessionCache, next_epoch
from ottla.broker.replication.decisions.follower_session import SHORT_WAIT_MS, FollowerSession
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.testing.garbage import left_by

EVICTION_MS = 120_000
TOPIC = b"t" * 16


def wanted(index: int = 0, offset: int = 0) -> FetchPartition:
    return (index, -1, offset, -1, -1, 1 << 20, bytes(16), 0)


def make_cache(slots: int = 2) -> SessionCache:
    numbers = count(1)
    return SessionCache(slots, EVICTION_MS, lambda: next(numbers))


def create(cache: SessionCache, size: int = 1, *, privileged: bool = False, now_ms: int = 0) -> FetchSession:
    session, _ = cache.create(size, privileged=privileged, uses_ids=True, now_ms=now_ms)
    assert session is not None
    for index in range(size):
        session.want(TOPIC, wanted(index))
    return session


def resume_error(cache: SessionCache, session_id: int, epoch: int, *, uses_ids: bool = True) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        cache.resume(session_id, epoch, uses_ids=uses_ids, now_ms=0)
    return caught.value.code


def test_each_fetch_moves_the_epoch_on() -> None:
    cache = make_cache()
    session = create(cache)
    assert cache.resume(session.id, 1, uses_ids=True, now_ms=0) is session
    assert cache.resume(session.id, 2, uses_ids=True, now_ms=0) is session


def test_the_epoch_wraps_to_one() -> None:
    assert next_epoch(EPOCH_MAX) == 1


def test_an_unknown_session_is_an_error() -> None:
    assert resume_error(make_cache(), 99, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_ends_with_the_registration_of_the_broker_that_opened_it() -> None:
    cache = make_cache()
    session, _ = cache.create(1, privileged=True, uses_ids=True, now_ms=0, broker_epoch=7)
    assert session is not None
    assert cache.outlived(session.id, 7) is None
    assert cache.resume(session.id, 1, uses_ids=True, now_ms=0) is session
    assert cache.outlived(session.id, 9) is session
    assert resume_error(cache, session.id, 2) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.outlived(session.id, 9) is None


def test_a_repeated_epoch_is_an_error() -> None:
    cache = make_cache()
    session = create(cache)
    cache.resume(session.id, 1, uses_ids=True, now_ms=0)
    assert resume_error(cache, session.id, 1) == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_names_in_a_session_of_ids_are_an_error() -> None:
    cache = make_cache()
    session = create(cache)
    assert resume_error(cache, session.id, 1, uses_ids=False) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_fetch_of_nothing_makes_no_session() -> None:
    assert make_cache().create(0, privileged=False, uses_ids=True, now_ms=0) == (None, None)


def test_a_full_cache_of_fresh_sessions_takes_no_more() -> None:
    cache = make_cache(1)
    create(cache)
    assert cache.create(5, privileged=True, uses_ids=True, now_ms=EVICTION_MS) == (None, None)


def test_a_session_unused_for_long_makes_room() -> None:
    cache = make_cache(1)
    old = create(cache)
    fresh, evicted = cache.create(1, privileged=False, uses_ids=True, now_ms=EVICTION_MS + 1)
    assert fresh is not None
    assert evicted is old


def test_the_least_recently_used_session_goes_first() -> None:
    cache = make_cache(2)
    first, second = create(cache), create(cache)
    cache.resume(first.id, 1, uses_ids=True, now_ms=50_000)
    _, evicted = cache.create(1, privileged=False, uses_ids=True, now_ms=EVICTION_MS + 1)
    assert evicted is second


def busy(cache: SessionCache, session: FetchSession) -> None:
    cache.resume(session.id, session.epoch, uses_ids=True, now_ms=EVICTION_MS)


def test_a_bigger_session_replaces_a_smaller_one_that_had_its_time() -> None:
    cache = make_cache(1)
    small = create(cache, 1)
    busy(cache, small)
    assert cache.create(2, privileged=False, uses_ids=True, now_ms=EVICTION_MS + 1)[1] is small


def test_a_session_of_the_same_size_is_not_replaced() -> None:
    cache = make_cache(1)
    busy(cache, create(cache, 2))
    assert cache.create(2, privileged=False, uses_ids=True, now_ms=EVICTION_MS + 1) == (None, None)


def test_a_follower_replaces_any_client() -> None:
    cache = make_cache(1)
    client = create(cache, 50)
    busy(cache, client)
    assert cache.create(1, privileged=True, uses_ids=True, now_ms=EVICTION_MS + 1)[1] is client


def test_a_client_never_replaces_a_follower() -> None:
    cache = make_cache(1)
    busy(cache, create(cache, 1, privileged=True))
    assert cache.create(50, privileged=False, uses_ids=True, now_ms=EVICTION_MS + 1) == (None, None)


def test_what_the_request_names_is_looked_at() -> None:
    session = create(make_cache(), 2)
    assert [entry.wanted[0] for entry in session.dirty] == [0, 1]


def test_a_partition_with_nothing_more_is_not_looked_at_again() -> None:
    session = create(make_cache(), 2)
    first, second = session.dirty
    session.served(first, exhausted=True)
    assert list(session.dirty) == [second]


def test_a_partition_with_more_waits_behind_the_others() -> None:
    session = create(make_cache(), 2)
    first, second = session.dirty
    session.served(first, exhausted=False)
    assert list(session.dirty) == [second, first]


def test_a_forgotten_partition_is_gone() -> None:
    session = create(make_cache(), 1)
    entry = session.forget((TOPIC, 0))
    assert entry is not None
    assert not session.dirty
    assert not session.partitions


def test_an_update_keeps_what_was_sent() -> None:
    session = create(make_cache(), 1)
    entry = session.partitions[TOPIC, 0]
    assert entry.has_news(5, 0)
    assert session.want(TOPIC, wanted(0, offset=9)) is entry
    assert not entry.has_news(5, 0)
    assert entry.has_news(6, 0)
    assert entry.has_news(6, 1)


def test_what_was_not_heard_is_told_again() -> None:
    entry = create(make_cache(), 1).partitions[TOPIC, 0]
    assert entry.has_news(5, 0)
    entry.was_not_heard()
    assert entry.has_news(5, 0)


# The follower's end.


def key(index: int) -> tuple[bytes, int]:
    return (TOPIC, index)


def test_the_first_request_names_all_and_asks_for_a_session() -> None:
    follower = FollowerSession()
    follower.put(key(0), wanted(0))
    follower.put(key(1), wanted(1))
    plan = follower.next_request()
    assert (plan.session_id, plan.epoch) == (0, 0)
    assert list(plan.partitions) == [key(0), key(1)]


def in_session(*indexes: int) -> FollowerSession:
    follower = FollowerSession()
    for index in indexes:
        follower.put(key(index), wanted(index))
    follower.next_request()
    follower.answered(0, 77)
    return follower


def test_within_a_session_only_changes_are_named() -> None:
    follower = in_session(0, 1)
    follower.put(key(1), wanted(1, offset=10))
    plan = follower.next_request()
    assert (plan.session_id, plan.epoch) == (77, 1)
    assert plan.partitions == {key(1): wanted(1, offset=10)}


def test_the_same_position_again_is_no_change() -> None:
    follower = in_session(0)
    follower.put(key(0), wanted(0))
    assert follower.next_request().partitions == {}


def test_a_removed_partition_is_forgotten_once() -> None:
    follower = in_session(0, 1)
    follower.remove(key(0))
    assert follower.next_request().forgotten == [key(0)]
    follower.answered(0, 77)
    assert follower.next_request().forgotten == []


def test_a_partition_removed_and_added_again_is_not_forgotten() -> None:
    follower = in_session(0)
    follower.remove(key(0))
    follower.put(key(0), wanted(0))
    plan = follower.next_request()
    assert plan.forgotten == []
    assert plan.partitions == {key(0): wanted(0)}


@pytest.mark.parametrize("error", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
def test_a_lost_session_starts_anew_with_everything(error: ErrorCode) -> None:
    follower = in_session(0, 1)
    follower.next_request()
    assert not follower.answered(error, 0)
    plan = follower.next_request()
    assert (plan.session_id, plan.epoch) == (0, 0)
    assert list(plan.partitions) == [key(0), key(1)]


def test_an_answer_speaks_of_what_its_request_asked() -> None:
    follower = in_session(0)
    assert follower.asked(key(0), number=1) == wanted(0)


def test_an_answer_does_not_speak_of_a_position_that_changed_since() -> None:
    follower = in_session(0)
    follower.put(key(0), wanted(0, offset=5))
    assert follower.asked(key(0), number=1) is None


def test_an_answer_does_not_speak_of_what_a_later_request_named() -> None:
    follower = in_session(0)
    follower.put(key(0), wanted(0, offset=5))
    follower.next_request()
    assert follower.asked(key(0), number=1) is None
    assert follower.asked(key(0), number=2) == wanted(0, offset=5)


def test_an_answer_does_not_speak_of_a_partition_that_left_and_came_back() -> None:
    follower = in_session(0)
    follower.remove(key(0))
    follower.put(key(0), wanted(0))
    assert follower.asked(key(0), number=1) is None


def test_each_request_in_a_session_has_the_next_epoch_even_before_the_last_is_answered() -> None:
    follower = in_session(0)
    assert [follower.next_request().epoch for _ in range(3)] == [1, 2, 3]


def test_without_room_for_a_session_every_request_names_all() -> None:
    follower = FollowerSession()
    follower.put(key(0), wanted(0))
    follower.next_request()
    assert follower.answered(0, 0)
    assert list(follower.next_request().partitions) == [key(0)]


def test_a_session_that_ended_is_not_left_to_the_collector() -> None:
    def fetch_once() -> None:
        cache = make_cache()
        create(cache, 3).end()

    assert not left_by(fetch_once)


LONGEST_MS = 500


def refused() -> FollowerSession:
    """Of two partitions, at a leader that has no room for its session."""
    follower = FollowerSession()
    follower.put(key(0), wanted(0))
    follower.put(key(1), wanted(1))
    follower.next_request()
    follower.answered(0, 0)
    return follower


def test_the_request_that_opens_a_session_does_not_wait() -> None:
    follower = FollowerSession()
    follower.put(key(0), wanted(0))
    assert follower.wait_ms(LONGEST_MS) == 0
    assert in_session(0).wait_ms(LONGEST_MS) == LONGEST_MS


def test_without_a_session_a_request_waits_shortly_while_a_partition_is_postponed() -> None:
    follower = refused()
    assert follower.wait_ms(LONGEST_MS) == LONGEST_MS
    follower.postpone(key(1))
    assert list(follower.next_request().partitions) == [key(0)]
    assert follower.wait_ms(LONGEST_MS) == SHORT_WAIT_MS
    assert follower.wait_ms(1) == 1
    follower.put(key(1), wanted(1))
    assert follower.wait_ms(LONGEST_MS) == LONGEST_MS


def test_nobody_waits_for_a_postponed_partition_that_is_followed_no_more() -> None:
    follower = refused()
    follower.postpone(key(1))
    follower.remove(key(1))
    assert follower.wait_ms(LONGEST_MS) == LONGEST_MS


def test_within_a_session_a_postponed_partition_shortens_no_wait() -> None:
    follower = in_session(0, 1)
    follower.postpone(key(1))
    assert follower.wait_ms(LONGEST_MS) == LONGEST_MS
    assert follower.next_request().forgotten == [key(1)]


def of_follower(cache: SessionCache, replica_id: int = 2, broker_epoch: int = 20) -> FetchSession:
    session, _ = cache.create(
        1, privileged=True, uses_ids=True, now_ms=0, replica_id=replica_id, broker_epoch=broker_epoch
    )
    assert session is not None
    return session


def test_a_follower_that_names_everything_anew_has_no_earlier_session() -> None:
    cache = make_cache(slots=4)
    first, others, consumer = of_follower(cache), of_follower(cache, 3), create(cache)
    assert cache.succeeded(2, 20) is first
    assert resume_error(cache, first.id, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    second = of_follower(cache)
    assert len(cache) == 3
    for session in (second, others, consumer):
        cache.resume(session.id, 1, uses_ids=True, now_ms=0)


def test_a_late_request_of_an_earlier_start_ends_no_session_of_the_later() -> None:
    cache = make_cache()
    session = of_follower(cache, broker_epoch=21)
    assert cache.succeeded(2, 20) is None
    assert cache.succeeded(2, 22) is session


def test_what_a_late_request_of_an_earlier_start_opened_hides_no_session_of_the_later() -> None:
    cache = make_cache(slots=4)
    session = of_follower(cache, broker_epoch=21)
    late = of_follower(cache, broker_epoch=20)
    assert cache.succeeded(2, 21) is session
    cache.remove(late.id)
    assert cache.succeeded(2, 21) is None


def test_a_session_that_went_otherwise_is_not_ended_again() -> None:
    cache = make_cache(slots=1)
    cache.remove(of_follower(cache).id)
    assert cache.succeeded(2, 20) is None
    of_follower(cache)
    evicting, evicted = cache.create(1, privileged=True, uses_ids=True, now_ms=EVICTION_MS + 1, replica_id=3)
    assert evicting is not None
    assert evicted is not None
    assert cache.succeeded(2, 20) is None
    assert cache.succeeded(3, 20) is evicting

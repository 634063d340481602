"""The throttle of replicas that catch up (KIP-73)."""

import pytest

from ottla.broker.replication.decisions.throttle import ASK_AGAIN_MS, ReplicationThrottle, names_replica
from ottla.runtime.settings.definitions import SettingError
from ottla.runtime.settings.topic import check_topic_setting


def test_without_a_rate_nothing_waits() -> None:
    throttle = ReplicationThrottle()
    throttle.passed(1 << 40, 0)
    assert (throttle.is_on, throttle.wait_ms(0)) == (False, 0)


def test_what_went_is_waited_for_at_the_rate() -> None:
    throttle = ReplicationThrottle(1000)
    assert throttle.wait_ms(5_000) == 0, "one answer goes at once"
    throttle.passed(300, 5_000)
    assert throttle.wait_ms(5_000) == 301
    throttle.passed(200, 5_100)
    assert throttle.wait_ms(5_200) == 301
    assert throttle.wait_ms(5_501) == 0


def test_idle_time_is_not_saved_up() -> None:
    throttle = ReplicationThrottle(1000)
    throttle.passed(500, 0)
    throttle.passed(500, 60_000)
    assert throttle.wait_ms(60_000) == 501


def test_a_long_wait_is_asked_for_again_and_a_new_rate_counts_from_then_on() -> None:
    throttle = ReplicationThrottle(10)
    throttle.passed(1_000_000, 0)
    assert throttle.wait_ms(0) == ASK_AGAIN_MS
    throttle.rate = 10_000_000
    assert throttle.wait_ms(0) == 101
    throttle.rate = 0
    assert throttle.wait_ms(10_000) == ASK_AGAIN_MS, "nothing goes at all"


def test_a_throttle_that_was_off_owes_nothing() -> None:
    throttle = ReplicationThrottle(10)
    throttle.passed(1_000_000, 0)
    throttle.rate = 2**63 - 1
    throttle.passed(1_000_000, 10)
    throttle.rate = 10
    assert throttle.wait_ms(20) == 0


@pytest.mark.parametrize(
    ("names", "named"), [(("*",), True), (("0:1", "3:2"), True), (("3:1", "2:2"), False), ((), False)]
)
def test_a_topic_names_the_replicas_that_are_throttled(names: tuple[str, ...], named: bool) -> None:
    assert names_replica(names, 3, 2) is named


@pytest.mark.parametrize("text", ["*", "", "0:1,1:2", "*,x"])
def test_lists_that_kafka_takes(text: str) -> None:
    check_topic_setting("leader.replication.throttled.replicas", text)


@pytest.mark.parametrize("text", ["none", "0", "0:1:2", "0:x", "0:1,*"])
def test_lists_that_kafka_refuses(text: str) -> None:
    with pytest.raises(SettingError, match="PARTITION:BROKER"):
        check_topic_setting("follower.replication.throttled.replicas", text)

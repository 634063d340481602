"""Subscriptions and assignments inside classic groups, as Java's and librdkafka's consumers write them."""

from time import process_time

import pytest

from ottla.broker.coordinator.decisions.groups.embedded_protocol import (
    GivenAssignment,
    Subscription,
    read_assignment,
    read_subscription,
    written_assignment,
)
from ottla.broker.wire.errors import WireError


def text(name: str) -> bytes:
    return len(name).to_bytes(2, "big") + name.encode()


def numbers(*values: int) -> bytes:
    return b"".join(each.to_bytes(4, "big", signed=True) for each in (len(values), *values))


TOPICS = numbers()[:3] + b"\1" + text("t")
OWNED = b"\0\0\0\1" + text("t") + numbers(0, 2)
NO_DATA = b"\xff\xff\xff\xff"


def test_a_subscription_of_the_first_version_has_topics_alone() -> None:
    assert read_subscription(b"\0\0" + TOPICS + NO_DATA) == Subscription(0, frozenset({"t"}), {}, -1, None)


def test_newer_ones_tell_what_a_member_goes_on_to_read_and_since_when() -> None:
    told = read_subscription(b"\0\3" + TOPICS + NO_DATA + OWNED + b"\0\0\0\7" + text("rack"))
    assert told == Subscription(3, frozenset({"t"}), {"t": frozenset({0, 2})}, 7, "rack")


def test_a_topic_that_is_named_for_each_of_its_partitions_counts_with_all_of_them() -> None:
    named = b"\0\0\0\2" + text("t") + numbers(0) + text("t") + numbers(2)
    assert read_assignment(b"\0\0" + named + NO_DATA).partitions == {"t": {0, 2}}
    assert read_subscription(b"\0\1" + TOPICS + NO_DATA + named).owned == {"t": {0, 2}}


def test_a_topic_that_is_named_thousands_of_times_holds_nobody_up() -> None:
    named = (40_000).to_bytes(4) + b"".join(text("t") + numbers(index) for index in range(40_000))
    begun = process_time()
    assert read_assignment(b"\0\0" + named + NO_DATA).partitions == {"t": set(range(40_000))}
    assert process_time() - begun < 3.0


def test_one_of_a_version_to_come_is_read_as_far_as_it_is_known() -> None:
    told = read_subscription(b"\0\x09" + TOPICS + NO_DATA + OWNED + b"\0\0\0\7" + text("rack") + b"more")
    assert told.version == 3
    assert told.topics == {"t"}


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\0", b"\0\0\0\0\0\5", b"\0\1" + TOPICS + NO_DATA], ids=repr)
def test_what_is_cut_off_is_refused(metadata: bytes) -> None:
    with pytest.raises(WireError):
        read_subscription(metadata)


def test_an_assignment_is_read_as_it_was_written() -> None:
    data = written_assignment(1, {"t": [2, 0], "a": {5}})
    assert data[:2] == b"\0\1"
    assert read_assignment(data) == GivenAssignment({"t": frozenset({0, 2}), "a": frozenset({5})}, False)


def test_an_assignment_of_a_version_to_come_is_written_in_one_that_is_known() -> None:
    assert written_assignment(99, {})[:2] == b"\0\3"


def test_nothing_assigned_is_an_assignment_too() -> None:
    assert read_assignment(b"") == GivenAssignment({}, False)


def test_data_of_an_assignor_of_its_own_is_seen() -> None:
    assert read_assignment(b"\0\0" + OWNED + b"\0\0\0\1x").has_user_data
    assert not read_assignment(b"\0\0" + OWNED + b"\0\0\0\0").has_user_data

"""How a follower's link to its leader is set up."""

import pytest

from ottla.broker.links.leader import STALL_MS, LinkedLeader, leaders
from tests.unit.broker.fake_timers import FakeTimers
from tests.unit.broker.handlers.conftest import Site


@pytest.mark.parametrize(
    ("timeout_ms", "wait_ms", "stall_ms"),
    [("30000", "500", STALL_MS), ("2000", "500", 2_000), ("500", "500", 1_000), ("30000", "10000", 20_000)],
)
def test_a_leader_may_be_silent_for_as_long_as_it_may_keep_a_fetch(
    timeout_ms: str, wait_ms: str, stall_ms: int
) -> None:
    """With less a link breaks at each fetch for which there is nothing. Kafka takes a timeout that is as long as the wait."""
    config = Site(replica_socket_timeout_ms=timeout_ms, replica_fetch_wait_max_ms=wait_ms).config
    leader = leaders(config, FakeTimers())(2, lambda: None, lambda by_leader: None)
    assert isinstance(leader, LinkedLeader)
    assert leader._link._settings.stall_ms == stall_ms

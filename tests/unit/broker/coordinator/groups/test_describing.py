"""What administrators are told of classic groups: DescribeGroups (15)."""

from ottla.broker.coordinator.decisions.groups.describing import described
from ottla.broker.wire.messages.describe_groups_response import DescribedGroup
from tests.unit.broker.coordinator.groups.group_bench import Bench


def described_of(bench: Bench) -> DescribedGroup:
    return described("g", bench.group, 6)


def assignments(bench: Bench) -> dict[str, bytes]:
    return {each.member_id: each.member_assignment for each in described_of(bench).members}


def test_while_a_group_rebalances_its_members_are_told_with_what_they_had() -> None:
    """Who joins cooperatively reads on, and others until their next heartbeat: administrators would find nobody who reads."""
    bench = Bench()
    first, second = bench.stable(2)
    had = assignments(bench)
    assert had == {first: f"of {first}".encode(), second: f"of {second}".encode()}
    bench.join(first)
    assert (described_of(bench).group_state, assignments(bench)) == ("PreparingRebalance", had)
    bench.join(second)
    assert (described_of(bench).group_state, assignments(bench)) == ("CompletingRebalance", had)


def test_while_a_group_rebalances_no_protocol_is_told() -> None:
    bench = Bench()
    first, _ = bench.stable(2)
    bench.join(first)
    told = described_of(bench)
    assert (told.protocol_type, told.protocol_data) == ("consumer", "")
    assert {each.member_metadata for each in told.members} == {b""}

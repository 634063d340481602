"""`ottla groups`: where a reset goes, and what words it takes. What it asks is held by tests/integration/test_groups.py."""

import pytest
from click.testing import CliRunner

from ottla.broker.wire.messages.describe_groups_response import DescribedGroupMember
from ottla.cli import group_requests
from ottla.cli.group_requests import Target
from ottla.cli.groups import groups


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        (Target(to_earliest=True), 10),
        (Target(to_latest=True), 90),
        (Target(to_offset=50), 50),
        (Target(to_offset=5), 10),
        (Target(to_offset=91), 90),
        (Target(shift_by=-7), 33),
        (Target(shift_by=-70), 10),
        (Target(shift_by=70), 90),
    ],
)
def test_a_reset_goes_where_it_is_told_within_what_there_is(target: Target, offset: int) -> None:
    assert target.offset(40, 10, 90) == offset


def test_a_shift_of_what_was_never_committed_begins_at_the_first_record() -> None:
    assert Target(shift_by=3).offset(None, 10, 90) == 13


@pytest.mark.parametrize("words", [[], ["--to-earliest", "--to-latest"], ["--shift-by", "1", "--to-offset", "2"]])
def test_a_reset_is_told_one_way_to_go(words: list[str]) -> None:
    told = CliRunner().invoke(groups, ["reset-offsets", "g", *words])
    assert told.exit_code == 2
    assert "write one of" in told.output


@pytest.mark.parametrize("assignment", [b"", b"\0", b"\0\1\xff", b"\0\0\0\0\0\7only"])
def test_an_assignment_of_another_kind_is_shown_as_none(assignment: bytes) -> None:
    assert group_requests._assigned(DescribedGroupMember(member_assignment=assignment)) == []

import pytest

from ottla.quorum.raft.transitions import TRANSITIONS, Cause, EpochRule, IllegalTransition, RoleName, check


@pytest.mark.parametrize("row", TRANSITIONS, ids=lambda row: f"{row.source}-{row.cause.name}-{row.target}")
def test_every_row_is_legal_with_its_epoch_only(row: tuple[RoleName, Cause, RoleName, EpochRule]) -> None:
    source, cause, target, rule = row
    legal = {EpochRule.SAME: {0}, EpochRule.NEXT: {1}, EpochRule.HIGHER: {1, 7}}[rule]

    for step in (-1, 0, 1, 7):
        if step in legal:
            check(source, 5, cause, target, 5 + step)
        else:
            with pytest.raises(IllegalTransition):
                check(source, 5, cause, target, 5 + step)


def test_nobody_becomes_leader_but_a_candidate_that_won() -> None:  # dissertation 3.4
    assert [(row.source, row.cause) for row in TRANSITIONS if row.target is RoleName.LEADER] == [
        (RoleName.CANDIDATE, Cause.VOTES_WON)
    ]


def test_nobody_becomes_candidate_without_pre_votes() -> None:  # KIP-996
    assert {row.source for row in TRANSITIONS if row.target is RoleName.CANDIDATE} == {RoleName.PROSPECTIVE}


def test_a_leader_never_follows_in_its_own_epoch() -> None:
    rules = [row.epoch for row in TRANSITIONS if row.source in (RoleName.LEADER, RoleName.RESIGNED)]
    followers = [row for row in TRANSITIONS if row.source is RoleName.LEADER and row.target is RoleName.FOLLOWER]

    assert rules
    assert all(row.epoch is EpochRule.HIGHER for row in followers)


def test_a_change_that_the_table_lacks_is_refused() -> None:
    with pytest.raises(IllegalTransition, match=r"Follower .* to Leader"):
        check(RoleName.FOLLOWER, 3, Cause.VOTES_WON, RoleName.LEADER, 3)

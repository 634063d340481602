from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from ottla.quorum.raft.majority import VoteResult, agreed_offset, majority, vote_result


@given(st.integers(1, 8))
def test_any_two_majorities_share_a_voter(voters: int) -> None:
    groups = list(combinations(range(voters), majority(voters)))

    assert all(set(one) & set(other) for one in groups for other in groups)


@given(st.integers(1, 9))
def test_majority_is_the_smallest_such_group(voters: int) -> None:
    smaller = majority(voters) - 1

    assert 2 * smaller <= voters


@given(st.integers(1, 9), st.data())
def test_vote_result_is_what_counting_every_outcome_says(voters: int, data: st.DataObject) -> None:
    granted = data.draw(st.integers(0, voters))
    unanswered = data.draw(st.integers(0, voters - granted))
    outcomes: set[bool] = {granted + more >= majority(voters) for more in range(unanswered + 1)}
    decided = VoteResult.WON if outcomes == {True} else VoteResult.LOST
    expected = decided if len(outcomes) == 1 else VoteResult.PENDING

    assert vote_result(voters, granted, unanswered) == expected


@given(st.lists(st.integers(-1, 20), min_size=1, max_size=7))
def test_agreed_offset_is_the_largest_that_a_majority_has(ends: list[int]) -> None:
    reached = [offset for offset in range(-1, 21) if sum(end >= offset for end in ends) >= majority(len(ends))]

    assert agreed_offset(ends) == max(reached)


def test_nothing_is_agreed_without_voters() -> None:
    assert agreed_offset([]) == -1

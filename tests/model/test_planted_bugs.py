"""One-line mutations of the rules, and who catches each: the exhaustive checker, its random walks, or the simulator.

A row that stops being caught means that the checks have lost a tooth.
"""

import re
import sys
from unittest.mock import patch

import pytest

from ottla.quorum.raft import majority as majority_module
from ottla.quorum.raft import rules
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.majority import VoteResult
from ottla.quorum.raft.roles.candidate import Candidate
from ottla.testing.raft.model.checker import ModelChecker
from ottla.testing.raft.model.scopes import DEEP
from tests.model.planted import SEEDED, Bug, exhaustive, random_walks, simulator
from tests.model.planted_membership import MEMBERSHIP_BUGS

BUGS = (
    Bug("half is a majority", majority_module, "majority", lambda n: n // 2, exhaustive, 0, "durable on a majority"),
    Bug(
        "who was voted for is forgotten",
        rules,
        "may_vote_for",
        lambda candidate, voted, leader_id, up_to_date: leader_id is None and up_to_date,
        exhaustive,
        0,
        "election safety",
    ),
    Bug("the vote is not kept", rules, "vote_must_be_recorded", lambda voted: False, exhaustive, 0, "election safety"),
    Bug("any log may lead", rules, "is_up_to_date", lambda candidate, own: True, exhaustive, 1, "leader completeness"),
    Bug(
        "only the length of the log counts",
        rules,
        "is_up_to_date",
        lambda candidate, own: candidate.offset >= own.offset,
        random_walks,
        0,
        "leader completeness",
    ),
    Bug(
        "the leader counts what it has not synced",
        rules,
        "acknowledged_by_leader",
        lambda log: log.end,
        exhaustive,
        0,
        "durable on a majority",
    ),
    Bug(
        # What asynchronous fsync adds to Raft: the vote given for it outlives the record.
        "a candidate claims what it has not synced",
        rules,
        "candidate_end",
        rules.voter_end,
        exhaustive,
        2,
        "leader completeness",
    ),
    Bug(
        "a fetch acknowledges what is not synced",
        rules,
        "fetch_offset",
        lambda log: log.end,
        exhaustive,
        0,
        "durable on a majority",
    ),
    Bug(
        "records of older epochs are committed by counting",
        rules,
        "may_commit",
        lambda offset, epoch_start: offset > 0,
        random_walks,
        3,
        "leader completeness",
    ),
    Bug("one copy is enough", rules, "committed_offset", max, exhaustive, 0, "durable on a majority"),
    Bug(
        "a follower is counted twice",
        rules,
        "committed_offset",
        lambda ends: sorted([*ends, max(ends)], reverse=True)[len(ends) // 2],
        exhaustive,
        0,
        "durable on a majority",
    ),
    Bug("nobody ever diverges", rules, "divergence", lambda *_: None, random_walks, 1, "log matching"),
    Bug(
        "the length of the epoch is not compared",
        rules,
        "divergence",
        lambda log, offset, epoch, _: None if log.end_offset_for(epoch).epoch == epoch else log.end_offset_for(epoch),
        random_walks,
        1,
        "log matching",
    ),
    Bug(
        "a follower cuts where it is told, whatever it has",
        rules,
        "truncation_point",
        lambda log, diverging: diverging.offset,
        random_walks,
        0,
        "truncate",
    ),
    Bug(
        "late answers are listened to",
        rules,
        "answers_request",
        lambda awaited, request: True,
        random_walks,
        0,
        "the log was cut",
    ),
    Bug(
        "a follower commits what it does not have",
        rules,
        "follower_high_watermark",
        lambda leaders, log_end: leaders,
        simulator,
        0,
        "commits beyond its log",
    ),
    Bug(
        "the high watermark follows the count back",
        rules,
        "raised_high_watermark",
        lambda current, offset: offset,
        exhaustive,
        1,
        "monotonic high watermark",
    ),
    Bug(
        "a restart forgets the vote",
        rules,
        "restored_epoch",
        lambda election, log: ElectionState(election.epoch),
        exhaustive,
        1,
        "one vote an epoch",
    ),
    Bug("a candidate keeps its epoch", rules, "next_epoch", lambda epoch: epoch, exhaustive, 0, "IllegalTransition"),
    Bug(
        "a candidate votes for another",
        Candidate,
        "grants_vote",
        lambda self, candidate, up_to_date: up_to_date,
        exhaustive,
        0,
        "election safety",
    ),
    Bug(
        "a voter that did not answer has agreed",
        rules,
        "election_result",
        lambda voters, granted, unanswered: (
            VoteResult.WON if granted + unanswered > voters // 2 and unanswered < voters - 1 else VoteResult.PENDING
        ),
        exhaustive,
        0,
        "election safety",
    ),
    Bug(
        "observers are given what is not committed",
        rules,
        "observer_limit",
        lambda high_watermark: high_watermark + 1,
        simulator,
        0,
        "observers see committed records",
    ),
    Bug(
        "two changes of voters at once",
        rules,
        "may_change_voters",
        lambda pending, known, latest_offset, high_watermark: True,
        simulator,
        4,
        "an end of every command",
    ),
    Bug(
        "the old voters count until the new set is committed",
        rules,
        "counting_voters",
        lambda voters: voters.ids()[:-1] or voters.ids(),
        simulator,
        0,
        "durable on a majority",
    ),
    Bug(
        "who was removed never stands for election again",
        rules,
        "may_campaign",
        lambda is_voter, was_voter, removal_committed: is_voter,
        simulator,
        104,
        "liveness",
    ),
    Bug(
        "a leader that removed itself goes before that is committed",
        rules,
        "change_is_committed",
        lambda change_offset, high_watermark: True,
        simulator,
        0,
        "acknowledged means committed",
    ),
    Bug(
        "a snapshot is used before it is whole",
        rules,
        "snapshot_is_whole",
        lambda position, piece: position * 2 >= piece.size,
        simulator,
        10,
        "liveness",
    ),
    Bug(
        "a log that was cut off is read from where it begins",
        rules,
        "needs_snapshot",
        lambda log, offset, last_epoch: False,
        simulator,
        30,
        "state machine safety",
    ),
)


ALL_BUGS = (*BUGS, *MEMBERSHIP_BUGS)


@pytest.mark.parametrize("bug", ALL_BUGS, ids=lambda bug: bug.what.replace(" ", "-"))
def test_planted_bug_is_caught(bug: Bug) -> None:
    with patch.object(bug.place, bug.name, bug.mutation), pytest.raises(AssertionError, match=bug.story):
        bug.catcher(bug.seed)


def test_without_a_bug_the_same_runs_are_clean() -> None:
    exhaustive(0)
    exhaustive(1)
    ModelChecker(DEEP).walk(seed=1, walks=40, steps=250)
    simulator(1)


def find_seed(bug: Bug, seeds: int = 200) -> int | None:
    """For a row whose seed went stale: ``python -m tests.model.test_planted_bugs`` prints what to put there."""
    with patch.object(bug.place, bug.name, bug.mutation):
        for seed in range(seeds):
            try:
                bug.catcher(seed)
            except AssertionError as error:
                if re.search(bug.story, str(error)):
                    return seed
    return None


if __name__ == "__main__":
    for each in ALL_BUGS:
        if each.catcher in SEEDED:
            sys.stdout.write(f"{each.what}: {each.seed} -> {find_seed(each)}\n")

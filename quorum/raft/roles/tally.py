"""The votes of one election."""

import msgspec

from ottla.quorum.raft import rules
from ottla.quorum.raft.majority import VoteResult


class Tally(msgspec.Struct):
    """Who was asked (``voters``) and what they answered. Answers of others, and second answers, change nothing."""

    voters: tuple[int, ...]
    answers: dict[int, bool]

    def record(self, voter_id: int, granted: bool) -> None:
        if rules.answer_counts(voter_id, self.voters):
            self.answers.setdefault(voter_id, granted)

    def unanswered(self) -> tuple[int, ...]:
        return tuple(voter for voter in self.voters if voter not in self.answers)

    def granting(self) -> tuple[int, ...]:
        return tuple(voter for voter in sorted(self.answers) if self.answers[voter])

    def result(self) -> VoteResult:
        return rules.election_result(len(self.voters), len(self.granting()), len(self.unanswered()))

"""One test per rule, with the place that asks for it: the Raft dissertation (D), KIP-595, KIP-853, KIP-996."""

from ottla.quorum.raft import rules
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.log_summary import LogSummary, OffsetAndEpoch
from ottla.quorum.raft.majority import VoteResult
from ottla.quorum.raft.messages import (
    BatchInfo,
    FetchRequest,
    FetchResponse,
    FetchSnapshotResponse,
    UpdateVoterRequest,
    VoterChangeResponse,
)
from ottla.quorum.raft.voters import Endpoint, ReplicaKey
from ottla.runtime.errors import ErrorCode

ONE, TWO = ReplicaKey(1, bytes([1]) * 16), ReplicaKey(2, bytes([2]) * 16)


def log(*epochs: int, durable: int | None = None) -> LogSummary:
    """A log with one record of each given epoch."""
    summary = LogSummary()
    for offset, epoch in enumerate(epochs):
        summary.append(epoch, offset, offset + 1)
    summary.durable_end = summary.end if durable is None else durable
    return summary


def test_a_candidate_takes_an_epoch_of_its_own() -> None:  # D 3.4
    assert rules.next_epoch(4) == 5


def test_messages_of_older_epochs_are_fenced() -> None:  # D 3.3
    assert rules.is_fenced(3, 4)
    assert not rules.is_fenced(4, 4)


def test_a_higher_epoch_is_followed() -> None:  # D 3.3
    assert rules.must_follow_epoch(5, 4)
    assert not rules.must_follow_epoch(4, 4)


def test_a_later_epoch_beats_a_longer_log() -> None:  # D 3.6.1
    assert rules.is_up_to_date(OffsetAndEpoch(1, 3), OffsetAndEpoch(9, 2))
    assert not rules.is_up_to_date(OffsetAndEpoch(9, 2), OffsetAndEpoch(1, 3))


def test_in_one_epoch_the_longer_log_wins() -> None:  # D 3.6.1
    assert rules.is_up_to_date(OffsetAndEpoch(5, 2), OffsetAndEpoch(5, 2))
    assert not rules.is_up_to_date(OffsetAndEpoch(4, 2), OffsetAndEpoch(5, 2))


def test_one_vote_is_given_an_epoch() -> None:  # D 3.4
    assert rules.may_vote_for(ONE, None, None, up_to_date=True)
    assert not rules.may_vote_for(TWO, ONE, None, up_to_date=True)


def test_the_same_candidate_is_given_the_same_answer() -> None:  # KIP-595
    assert rules.may_vote_for(ONE, ONE, None, up_to_date=False)


def test_a_wiped_candidate_is_not_the_one_that_was_voted_for() -> None:  # KIP-853
    assert not rules.may_vote_for(ReplicaKey(1, bytes([9]) * 16), ONE, None, up_to_date=True)


def test_no_vote_is_given_to_a_log_that_is_behind() -> None:  # D 3.6.1
    assert not rules.may_vote_for(ONE, None, None, up_to_date=False)


def test_no_vote_is_given_once_the_epoch_has_a_leader() -> None:  # KIP-595
    assert not rules.may_vote_for(ONE, None, 2, up_to_date=True)


def test_a_follower_in_touch_with_its_leader_refuses_pre_votes() -> None:  # KIP-996
    assert not rules.follower_grants_pre_vote(True, has_fetched=True, leader_suspected=False)
    assert rules.follower_grants_pre_vote(True, has_fetched=False, leader_suspected=False)


def test_evidence_that_the_leader_is_gone_lets_a_follower_grant_pre_votes() -> None:  # ours
    assert rules.follower_grants_pre_vote(True, has_fetched=True, leader_suspected=True)


def test_a_pre_vote_needs_an_up_to_date_log() -> None:  # KIP-996
    assert not rules.follower_grants_pre_vote(False, has_fetched=False, leader_suspected=True)


def test_only_voters_elect() -> None:  # KIP-595
    assert rules.answer_counts(1, (1, 2, 3))
    assert not rules.answer_counts(4, (1, 2, 3))


def test_a_majority_elects() -> None:  # D 3.4
    assert rules.election_result(3, granted=2, unanswered=1) is VoteResult.WON
    assert rules.election_result(3, granted=1, unanswered=2) is VoteResult.PENDING
    assert rules.election_result(3, granted=1, unanswered=0) is VoteResult.LOST


def test_a_candidate_claims_only_what_is_durable() -> None:  # D 3.8, with our asynchronous fsync
    assert rules.candidate_end(log(1, 1, 2, durable=2)) == (2, 1)
    assert rules.candidate_end(log(1, 1, 2)) == (3, 2)


def test_a_voter_compares_with_all_it_has() -> None:  # D 3.6.1
    assert rules.voter_end(log(1, 1, 2, durable=0)) == (3, 2)


def test_a_new_vote_is_recorded_and_a_repeated_one_is_there_already() -> None:  # D 3.8
    assert rules.vote_must_be_recorded(None)
    assert not rules.vote_must_be_recorded(ONE)


def test_an_election_state_older_than_the_log_is_not_voted_on() -> None:  # kraft.md 1.2
    assert rules.restored_epoch(ElectionState(2, None, ONE), log(5)) == ElectionState(5)
    assert rules.restored_epoch(ElectionState(5, None, ONE), log(5)) == ElectionState(5, None, ONE)


def test_a_leader_comes_back_resigned() -> None:  # kraft.md 1.2
    assert rules.returns_resigned(ElectionState(3, 1), 1)
    assert not rules.returns_resigned(ElectionState(3, 2), 1)


def test_who_voted_for_itself_comes_back_as_candidate() -> None:  # kraft.md 1.2
    assert rules.returns_candidate(ElectionState(3, None, ONE), ONE)
    assert not rules.returns_candidate(ElectionState(3, None, TWO), ONE)


def test_a_candidacy_that_another_won_is_over() -> None:  # D 3.4
    assert not rules.returns_candidate(ElectionState(3, 2, ONE), ONE)


def test_nothing_is_fetched_before_all_that_was_is_durable() -> None:  # KIP-595: the offset acknowledges
    assert rules.fetch_offset(log(1, 1, durable=1)) is None
    assert rules.fetch_offset(log(1, 1)) == 2


def test_a_log_that_is_a_prefix_does_not_diverge() -> None:  # D 3.5
    assert rules.divergence(log(1, 1, 3), 2, 1) is None
    assert rules.divergence(log(1, 1, 3), 3, 3) is None
    assert rules.divergence(log(1, 1, 3), 0, 0) is None


def test_a_log_that_left_the_leaders_is_told_where() -> None:  # KIP-595
    assert rules.divergence(log(1, 1, 3), 3, 1) == (2, 1)
    assert rules.divergence(log(1, 1, 3), 3, 2) == (2, 1)
    assert rules.divergence(log(1, 1, 3), 5, 3) == (3, 3)


def test_the_same_place_under_another_epoch_diverges() -> None:  # D 3.5: log matching is by both
    assert rules.divergence(log(1, 1, 3), 2, 2) == (2, 1)
    assert rules.divergence(log(1, 1, 3), 1, 2) == (2, 1)


def test_a_follower_cuts_where_both_logs_end_that_epoch() -> None:  # KIP-595
    assert rules.truncation_point(log(1, 1, 1, 2), OffsetAndEpoch(2, 1)) == 2
    assert rules.truncation_point(log(1, 2), OffsetAndEpoch(5, 1)) == 1


def test_a_follower_without_that_epoch_cuts_back_to_an_older_one() -> None:  # KIP-595
    assert rules.truncation_point(log(1, 3), OffsetAndEpoch(9, 2)) == 1


def test_records_are_appended_only_where_the_log_ends() -> None:  # D 3.5
    assert rules.records_continue(log(1, 2), 2, 2)
    assert not rules.records_continue(log(1, 2), 1, 2)
    assert not rules.records_continue(log(1, 2), 3, 2)


def test_epochs_in_a_log_never_go_back() -> None:  # D 3.5
    assert not rules.records_continue(log(1, 2), 2, 1)


def test_batches_of_one_reply_follow_one_another() -> None:  # D 3.5
    assert rules.batches_continue(BatchInfo(3, 4, 1), BatchInfo(5, 5, 2))
    assert not rules.batches_continue(BatchInfo(3, 4, 1), BatchInfo(6, 6, 1))
    assert not rules.batches_continue(BatchInfo(3, 4, 2), BatchInfo(5, 5, 1))
    assert not rules.batches_continue(BatchInfo(3, 2, 1), BatchInfo(3, 3, 1))


def test_a_snapshot_is_lacked_by_a_log_that_ends_before_it_or_has_others_there() -> None:  # kraft.md 1.5
    assert rules.lacks_snapshot(log(1, 1), OffsetAndEpoch(3, 1))
    assert rules.lacks_snapshot(log(1, 2), OffsetAndEpoch(2, 1))
    assert rules.lacks_snapshot(log(1, 1, 1), OffsetAndEpoch(2, 3))
    assert not rules.lacks_snapshot(log(1, 1, 2), OffsetAndEpoch(2, 1))
    assert not rules.lacks_snapshot(log(1, 1), OffsetAndEpoch(2, 1))


def fetch(offset: int) -> FetchRequest:
    return FetchRequest(
        cluster_id="", epoch=1, sender=TWO, offset=offset, last_epoch=1, high_watermark=0, max_wait_ms=1, max_bytes=1
    )


def test_a_voter_looks_elsewhere_for_a_leader_that_it_never_reached() -> None:  # ours
    assert rules.may_look_elsewhere(has_fetched=False, leader_failed=True)
    assert not rules.may_look_elsewhere(has_fetched=False, leader_failed=False)
    assert not rules.may_look_elsewhere(has_fetched=True, leader_failed=True)


def test_an_answer_to_another_question_is_not_listened_to() -> None:  # KIP-595
    assert rules.answers_request(fetch(3), fetch(3))
    assert not rules.answers_request(fetch(4), fetch(3))
    assert not rules.answers_request(None, fetch(3))


def test_the_leader_counts_itself_up_to_its_last_sync() -> None:  # ours; Kafka's single voter commits before
    assert rules.acknowledged_by_leader(log(1, 1, durable=1)) == 1


def test_what_a_majority_has_is_committed() -> None:  # D 3.5
    assert rules.committed_offset([7, 5, -1]) == 5
    assert rules.committed_offset([7, 5, 3, 1]) == 3


def test_only_a_record_of_its_own_epoch_lets_a_leader_commit() -> None:  # D 3.6.2
    assert not rules.may_commit(5, epoch_start=5)
    assert rules.may_commit(6, epoch_start=5)


def test_the_high_watermark_never_goes_back() -> None:  # KIP-595
    assert rules.raised_high_watermark(7, 5) == 7


def test_a_follower_commits_no_more_than_it_has() -> None:  # KIP-595
    assert rules.follower_high_watermark(9, 7) == 7


def test_observers_see_committed_records_only() -> None:  # ours
    assert rules.observer_limit(5) == 5


def test_a_follower_judges_logs_up_to_its_high_watermark_and_a_leader_all() -> None:  # ours
    assert rules.may_judge(leads=False, offset=5, high_watermark=5)
    assert not rules.may_judge(leads=False, offset=6, high_watermark=5)
    assert rules.may_judge(leads=True, offset=6, high_watermark=5)


def test_nothing_is_said_to_be_committed_of_a_log_that_may_diverge() -> None:  # ours
    assert rules.told_high_watermark(5, judged=True) == 5
    assert rules.told_high_watermark(5, judged=False) == -1


def test_a_follower_judged_who_says_what_is_committed_or_where_to_go_on() -> None:  # ours
    place = OffsetAndEpoch(1, 1)

    assert rules.was_judged(FetchResponse(epoch=1, high_watermark=0))
    assert rules.was_judged(FetchResponse(epoch=1, diverging=place))
    assert rules.was_judged(FetchResponse(epoch=1, snapshot=place))
    assert not rules.was_judged(FetchResponse(epoch=1))


def test_a_follower_out_of_touch_serves_no_observers() -> None:  # ours
    assert rules.may_serve_observers(has_fetched=True, leader_suspected=False)
    assert not rules.may_serve_observers(has_fetched=False, leader_suspected=False)
    assert not rules.may_serve_observers(has_fetched=True, leader_suspected=True)


def test_a_batch_of_another_epoch_is_not_appended() -> None:  # kraft.md 1.8
    assert rules.may_append(4, leading=4)
    assert not rules.may_append(3, leading=4)
    assert not rules.may_append(4, leading=None)


def test_a_leader_needs_to_hear_from_a_majority() -> None:  # D 6.2
    assert rules.has_quorum(heard_from=1, voters=3, leader_votes=True)
    assert not rules.has_quorum(heard_from=1, voters=4, leader_votes=True)
    assert not rules.has_quorum(heard_from=1, voters=3, leader_votes=False)


def test_a_leader_that_disowns_the_epoch_is_gone() -> None:  # ours
    disowned = FetchResponse(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch=1)

    assert rules.leader_is_gone(fetch(0), disowned)
    assert not rules.leader_is_gone(fetch(0), FetchResponse(epoch=1))
    assert not rules.leader_is_gone(fetch(0), FetchResponse(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch=2))


def test_a_leader_that_takes_no_change_of_voters_is_not_gone_yet() -> None:  # ours: it leaves, and commits until then
    update = UpdateVoterRequest(cluster_id="", epoch=1, sender=TWO, endpoint=Endpoint("", 1))
    refusal = VoterChangeResponse(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch=1)

    assert not rules.leader_is_gone(update, refusal)


def test_a_place_before_the_log_needs_a_snapshot() -> None:  # KIP-630
    short = LogSummary()
    short.restart_at(OffsetAndEpoch(10, 3))
    short.append(4, 10, 15)

    assert rules.needs_snapshot(short, 5, 2)
    assert rules.needs_snapshot(short, 0, 0)
    assert rules.needs_snapshot(short, 10, 2)
    assert not rules.needs_snapshot(short, 10, 3)
    assert not rules.needs_snapshot(short, 12, 4)
    assert not rules.needs_snapshot(log(1, 2), 0, 0)


def test_who_is_further_than_the_log_begins_in_an_older_epoch_needs_a_snapshot() -> None:  # KIP-630
    short = LogSummary()
    short.restart_at(OffsetAndEpoch(10, 3))
    short.append(4, 10, 15)

    assert rules.needs_snapshot(short, 12, 2)


def test_a_snapshot_of_nothing_is_of_no_use() -> None:  # the log has it all, and who is sent there comes back
    whole = log(1, 2)
    whole.snapshot = OffsetAndEpoch(0, 0)

    assert not rules.needs_snapshot(whole, 0, 0)
    assert not rules.needs_snapshot(whole, 0, 1)


def piece(position: int, checksum: int = 7, size: int = 100) -> FetchSnapshotResponse:
    place = OffsetAndEpoch(5, 1)
    return FetchSnapshotResponse(epoch=1, snapshot=place, position=position, size=size, checksum=checksum)


def test_pieces_of_a_snapshot_follow_each_other_and_are_of_one_file() -> None:  # KIP-630
    assert rules.piece_continues(0, None, piece(0))
    assert rules.piece_continues(40, 7, piece(40))
    assert not rules.piece_continues(40, 7, piece(50))
    assert not rules.piece_continues(40, 7, piece(40, checksum=8))


def test_a_snapshot_is_used_when_all_of_it_is_there() -> None:  # KIP-630
    assert rules.snapshot_is_whole(100, piece(90))
    assert not rules.snapshot_is_whole(99, piece(90))


def test_a_voter_asks_the_leader_for_its_snapshot_until_there_is_another_leader() -> None:  # KIP-630
    assert rules.may_ask_again(1000, is_voter=True)


def test_an_observer_turns_to_another_when_one_does_not_answer() -> None:  # ours
    assert rules.may_ask_again(rules.SNAPSHOT_TRIES - 1, is_voter=False)
    assert not rules.may_ask_again(rules.SNAPSHOT_TRIES, is_voter=False)

"""The leader's state through elections, appends, fetches and the controller's answers."""

import pytest

from ottla.broker.replication.decisions.isr import Answer, Committed, Outcome, PendingExpand, PendingShrink, Proposal
from ottla.broker.replication.decisions.replica import NEVER_MS, FollowerContact
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.replication.leader_bench import LAG_MS, expand, fetch, lead_again, make_leader


def test_a_new_epoch_starts_at_the_end_of_the_log() -> None:
    leader = make_leader(end=100)
    assert leader.epoch_start_offset == 100


def test_a_new_leader_knows_nothing_of_its_followers() -> None:
    leader = make_leader()
    assert [replica.log_end_offset for replica in leader.replicas.values()] == [-1, -1]


def test_in_sync_followers_get_the_whole_lag_time_to_show_themselves() -> None:
    leader = make_leader(isr=(1, 2), now_ms=1_000)
    assert leader.replicas[2].last_caught_up_ms == 1_000
    assert leader.replicas[3].last_caught_up_ms == NEVER_MS


def test_a_leader_elected_again_keeps_what_it_knew() -> None:
    leader = make_leader()
    fetch(leader, 2, 90)
    assert lead_again(leader, epoch=6, partition_epoch=9, isr=(1, 2, 3))
    assert leader.replicas[2].log_end_offset == 90


def test_what_a_member_had_counts_no_more_where_another_led_in_between() -> None:
    leader = make_leader(isr=(1, 2, 3), end=110, high_watermark=100)
    fetch(leader, 2, 110)
    fetch(leader, 3, 100)
    # Broker 3 led in epoch 6, of which this one never heard: there 2 cut off what 3 did not have.
    lead_again(leader, epoch=7, partition_epoch=10, isr=(1, 2, 3))
    fetch(leader, 3, 110)
    assert not leader.advance(2_000)
    assert leader.high_watermark == 100
    fetch(leader, 2, 110)
    assert leader.advance(2_000)


def test_the_same_epoch_again_is_no_new_term() -> None:
    leader = make_leader()
    leader.appended(150, 2_000)
    assert not lead_again(leader, epoch=5, partition_epoch=9, isr=(1, 2))
    assert leader.epoch_start_offset == 100
    assert leader.committed_isr == (1, 2)


def test_an_append_alone_commits_at_once() -> None:
    leader = make_leader(isr=(1,), replicas=(1,))
    assert leader.appended(101, 2_000)
    assert leader.high_watermark == 101


def test_an_append_alone_commits_nothing_when_two_are_required() -> None:
    leader = make_leader(isr=(1,), replicas=(1, 2, 3), min_isr=2)
    assert not leader.appended(101, 2_000)
    assert leader.high_watermark == 0


def test_an_append_that_must_be_synced_commits_when_it_is() -> None:
    leader = make_leader(isr=(1,), replicas=(1,))
    leader.advance(2_000)
    assert not leader.appended(101, 2_000, stable=False)
    assert leader.synced(101, 2_000)
    assert leader.high_watermark == 101


def test_an_append_with_followers_commits_nothing() -> None:
    leader = make_leader()
    assert not leader.appended(101, 2_000)
    assert leader.high_watermark == 0


def test_an_append_by_a_leader_whose_followers_all_left_the_isr_commits() -> None:
    leader = make_leader(isr=(1,), now_ms=10**6)
    assert leader.appended(101, 10**6)
    assert leader.high_watermark == 101


def test_right_after_the_machine_started_who_was_never_there_is_waited_for_by_nobody() -> None:
    leader = make_leader(isr=(1,), now_ms=1_000)
    assert leader.appended(101, 1_000)
    assert leader.high_watermark == 101


def test_right_after_the_machine_started_one_fetch_far_behind_is_not_caught_up() -> None:
    leader = make_leader(isr=(1,), now_ms=1_000)
    fetch(leader, 2, 10, now_ms=1_500)
    leader.appended(101, 2_000)
    assert leader.high_watermark == 101


def test_records_are_committed_when_the_last_member_fetched_past_them() -> None:
    leader = make_leader()
    leader.appended(101, 2_000)
    fetch(leader, 2, 101)
    assert not leader.advance(2_000)
    fetch(leader, 3, 101)
    assert leader.advance(2_000)
    assert leader.high_watermark == 101


def test_the_required_number_is_never_more_than_there_are_replicas() -> None:
    leader = make_leader(isr=(1,), replicas=(1,), min_isr=2)
    assert leader.has_enough_in_sync()
    assert leader.appended(101, 2_000)


def test_acks_all_is_refused_when_too_few_are_committed_in_sync() -> None:
    leader = make_leader(isr=(1,), min_isr=2)
    fetch(leader, 2, 100)
    expand(leader, 2)
    assert not leader.has_enough_in_sync()
    assert leader.had_enough_in_sync()


def test_a_broker_that_is_no_replica_is_not_counted() -> None:
    leader = make_leader()
    assert leader.fetched(9, 90, 100, None, 2_000) is None


def test_an_earlier_life_of_a_broker_is_recognised() -> None:
    leader = make_leader()
    assert leader.knows_newer_life_of(2, 19)
    assert not leader.knows_newer_life_of(2, 20)
    assert not leader.knows_newer_life_of(2, -1)


def test_an_earlier_life_of_a_broker_is_recognised_by_its_fetches_before_the_metadata_tell() -> None:
    leader = make_leader(isr=(1, 3), high_watermark=100)
    leader.fetched(2, 21, 100, None, 2_000)  # it registered anew, which is not known here yet
    assert leader.knows_newer_life_of(2, 20)
    assert not leader.knows_newer_life_of(2, 21)
    assert not leader.knows_newer_life_of(2, -1)


def test_an_idle_follower_is_not_out_of_sync_right_after_an_append() -> None:
    leader = make_leader(isr=(1, 2), replicas=(1, 2))
    contact = FollowerContact(2_000)
    leader.fetched(2, 20, 100, contact, 2_000)
    contact.last_fetch_ms = 900_000
    leader.appended(101, 900_100)
    assert leader.propose_shrink(900_200) is None
    assert leader.propose_shrink(930_001) is not None


def test_a_session_that_left_the_partition_says_nothing_of_it_any_more() -> None:
    leader = make_leader(isr=(1, 2), replicas=(1, 2))
    contact = FollowerContact(2_000)
    leader.fetched(2, 20, 100, contact, 2_000)
    leader.lost_contact(contact)
    contact.last_fetch_ms = 900_000
    leader.appended(101, 900_100)
    assert leader.propose_shrink(900_200) is not None


def test_a_session_that_leaves_the_partition_said_until_then_that_all_was_there() -> None:
    leader = make_leader(isr=(1, 2), replicas=(1, 2))
    contact = FollowerContact(2_000)
    leader.fetched(2, 20, 100, contact, 2_000)
    contact.last_fetch_ms = 900_000
    leader.lost_contact(contact)
    leader.appended(101, 900_100)
    assert leader.propose_shrink(900_000 + LAG_MS) is None
    assert leader.propose_shrink(900_000 + LAG_MS + 1) is not None


def test_a_session_of_an_earlier_epoch_says_nothing_of_this_one() -> None:
    """The follower has yet to be told that it has another leader, or the same again: what it fetches it may not write."""
    leader, contact = make_leader(isr=(1, 2), replicas=(1, 2)), FollowerContact(2_000)
    leader.fetched(2, 20, 100, contact, 2_000)
    lead_again(leader, epoch=6, partition_epoch=9, isr=(1, 2), now_ms=3_000)
    contact.last_fetch_ms = 900_000
    assert not leader.hears_of(2, 900_000)


def test_a_follower_that_fetched_without_telling_its_life_is_proposed_with_the_one_that_is_registered() -> None:
    leader = make_leader(isr=(1,))
    assert leader.fetched(2, -1, 100, None, 2_000) is not None
    assert expand(leader, 2).isr == ((1, 10), (2, 20))


def test_a_member_is_silent_until_it_fetches_in_this_epoch() -> None:
    leader = make_leader(isr=(1, 2), replicas=(1, 2))
    assert leader.has_silent_member()
    fetch(leader, 2, 0)
    assert not leader.has_silent_member()
    lead_again(leader, epoch=6, partition_epoch=9, isr=(1, 2))
    assert leader.has_silent_member()


def test_a_follower_is_heard_of_by_its_own_fetches_and_its_sessions_for_the_lag_time() -> None:
    leader, contact = make_leader(now_ms=1_000), FollowerContact(2_000)
    assert not leader.hears_of(2, 1_000)  # it may never have been there
    leader.fetched(2, 20, 100, contact, 2_000)
    assert [leader.hears_of(2, 2_000 + since_ms) for since_ms in (0, LAG_MS, LAG_MS + 1)] == [True, True, False]
    contact.last_fetch_ms = 10_000
    assert [leader.hears_of(2, 10_000 + since_ms) for since_ms in (0, LAG_MS, LAG_MS + 1)] == [True, True, False]
    assert not leader.hears_of(7, 2_000)  # no replica


def test_a_caught_up_follower_is_proposed_with_the_epoch_it_fetched_with() -> None:
    leader = make_leader(isr=(1,))
    fetch(leader, 2, 100)
    proposal = expand(leader, 2)
    assert proposal == Proposal(PendingExpand((1,), 2), 5, 8, ((1, 10), (2, 20)))
    assert leader.maximal_isr == (1, 2)
    assert leader.committed_isr == (1,)


def test_a_member_is_not_proposed_again() -> None:
    leader = make_leader()
    fetch(leader, 2, 100)
    assert leader.propose_expand(2) is None


def test_one_proposal_at_a_time() -> None:
    leader = make_leader(isr=(1,))
    fetch(leader, 2, 100)
    fetch(leader, 3, 100)
    expand(leader, 2)
    assert leader.propose_expand(3) is None
    assert leader.propose_shrink(10**9) is None


def test_lagging_members_are_proposed_to_leave_but_still_hold_records_back() -> None:
    leader = make_leader()
    fetch(leader, 2, 100, now_ms=40_000)
    proposal = leader.propose_shrink(40_000)
    assert proposal is not None
    assert proposal.isr == ((1, 10), (2, 20))
    assert leader.isr == PendingShrink((1, 2, 3), (3,))
    assert not leader.advance(40_000)


def test_a_granted_proposal_is_adopted() -> None:
    leader = make_leader(isr=(1,))
    fetch(leader, 2, 100)
    proposal = expand(leader, 2)
    assert leader.answered(proposal, Answer(0, 5, 9, (1, 2)), 2_000) is Outcome.ADOPT
    assert leader.isr == Committed((1, 2))
    assert leader.partition_epoch == 9


def test_a_grant_says_how_many_must_be_in_sync_until_the_metadata_does() -> None:
    """Who leaves may lead by that number (KIP-966): nothing may be committed that it lacks."""
    leader = make_leader(isr=(1, 2))
    fetch(leader, 2, 100)
    leader.appended(101, 2_000)
    proposal = leader.propose_shrink(2_000 + LAG_MS + 1)
    assert proposal is not None
    leader.answered(proposal, Answer(0, 5, 9, (1,), min_in_sync=2), 2_000)
    assert (leader.advance(2_000), leader.required_in_sync) == (False, 2)
    leader.set_min_insync_replicas(1)
    assert leader.required_in_sync == 2, "another setting of the topic changed, and this is old"
    lead_again(leader, epoch=5, partition_epoch=9, isr=(1,))
    assert leader.required_in_sync == 1


def test_a_grant_that_asks_for_less_than_we_do_lowers_nothing() -> None:
    leader = make_leader(isr=(1, 2), min_isr=2)
    fetch(leader, 3, 100)
    leader.answered(expand(leader, 3), Answer(0, 5, 9, (1, 2, 3), min_in_sync=1), 2_000)
    assert leader.required_in_sync == 2


def test_a_grant_that_changed_nothing_is_adopted() -> None:
    """No metadata would ever come of it."""
    leader = make_leader(isr=(1,))
    fetch(leader, 2, 100)
    assert leader.answered(expand(leader, 2), Answer(0, 5, 8, (1, 2)), 2_000) is Outcome.ADOPT


def test_a_grant_of_an_older_partition_epoch_is_not_adopted() -> None:
    leader = make_leader(isr=(1,))
    fetch(leader, 2, 100)
    proposal = expand(leader, 2)
    assert leader.answered(proposal, Answer(0, 5, 7, (1, 2)), 2_000) is Outcome.AWAIT_METADATA
    assert leader.committed_isr == (1,)


def test_a_grant_for_another_leader_epoch_is_not_adopted() -> None:
    leader = make_leader(isr=(1,))
    fetch(leader, 2, 100)
    proposal = expand(leader, 2)
    assert leader.answered(proposal, Answer(0, 6, 9, (1, 2)), 2_000) is Outcome.AWAIT_METADATA
    assert leader.committed_isr == (1,)


def test_an_ineligible_replica_is_dropped_from_the_maximal_isr() -> None:
    leader = make_leader(isr=(1,))
    fetch(leader, 2, 100)
    proposal = expand(leader, 2)
    assert leader.answered(proposal, Answer(ErrorCode.INELIGIBLE_REPLICA), 2_000) is Outcome.REVERT
    assert leader.isr == Committed((1,))


def test_a_refused_shrink_keeps_all_members_counting() -> None:
    leader = make_leader()
    proposal = leader.propose_shrink(10**6)
    assert proposal is not None
    assert leader.answered(proposal, Answer(ErrorCode.INVALID_UPDATE_VERSION), 10**6) is Outcome.AWAIT_METADATA
    assert leader.maximal_isr == (1, 2, 3)
    assert leader.propose_shrink(10**6) is None


def test_a_late_answer_means_nothing_once_metadata_came() -> None:
    leader = make_leader(isr=(1,))
    fetch(leader, 2, 100)
    proposal = expand(leader, 2)
    lead_again(leader, epoch=5, partition_epoch=9, isr=(1, 3))
    assert leader.answered(proposal, Answer(0, 5, 10, (1, 2)), 2_000) is None
    assert leader.committed_isr == (1, 3)


def test_metadata_that_an_answer_told_before_ends_no_later_proposal() -> None:
    leader = make_leader(isr=(1, 2, 3))
    for broker in (2, 3):
        fetch(leader, broker, 100)
    shrink = leader.propose_shrink(10**6)
    assert shrink is None, "both have everything"
    leader.appended(200, 2_000)
    fetch(leader, 2, 200, now_ms=10**6)
    shrink = leader.propose_shrink(10**6)
    assert shrink is not None
    assert leader.answered(shrink, Answer(0, 5, 9, (1, 2)), 10**6) is Outcome.ADOPT
    leader.advance(10**6)
    fetch(leader, 3, 200, now_ms=10**6)
    expand(leader, 3)  # the controller may grant it before we hear of it
    lead_again(leader, epoch=5, partition_epoch=9, isr=(1, 2))
    leader.appended(300, 10**6)
    fetch(leader, 2, 300, now_ms=2 * 10**6)
    leader.advance(2 * 10**6)
    assert leader.maximal_isr == (1, 2, 3)
    assert leader.high_watermark == 200


def test_a_follower_does_not_join_below_the_start_of_the_epoch() -> None:
    leader = make_leader(isr=(1,), end=100, high_watermark=60)
    fetch(leader, 2, 99)
    assert leader.propose_expand(2) is None
    fetch(leader, 2, 100)
    assert leader.propose_expand(2) is not None


def test_a_followers_end_goes_back_when_it_fetches_from_before() -> None:
    leader = make_leader(isr=(1,), end=100, high_watermark=100)
    fetch(leader, 2, 100)
    fetch(leader, 2, 90)
    assert leader.replicas[2].log_end_offset == 90
    assert leader.propose_expand(2) is None, "a power cut took what it had"


def test_the_end_of_the_log_is_certain_once_the_own_epoch_began_to_commit() -> None:
    leader = make_leader(end=100, high_watermark=60)
    assert not leader.has_committed_own_epoch()
    fetch(leader, 2, 100)
    fetch(leader, 3, 100)
    leader.advance(2_000)
    assert leader.has_committed_own_epoch()


def test_a_restarted_follower_with_a_shorter_log_is_not_counted_twice() -> None:
    leader = make_leader()
    fetch(leader, 2, 100)
    fetch(leader, 3, 100)
    leader.advance(2_000)
    fetch(leader, 2, 0)
    leader.appended(101, 2_000)
    fetch(leader, 3, 101)
    assert not leader.advance(2_000)
    assert leader.high_watermark == 100


def test_what_a_follower_out_of_the_isr_said_in_an_earlier_epoch_counts_no_more() -> None:
    leader = make_leader(isr=(1, 2), high_watermark=50)
    fetch(leader, 2, 100)
    fetch(leader, 3, 100)
    lead_again(leader, epoch=6, partition_epoch=9, isr=(1, 2))
    assert leader.propose_expand(3) is None, "it may have cut its log since, because it was damaged"
    fetch(leader, 3, 100)
    assert leader.propose_expand(3) is not None


def test_a_follower_asks_again_once_for_what_it_was_given() -> None:
    leader = make_leader()
    replica = leader.replicas[2]
    assert not replica.asks_again(40)
    replica.served(40, 500)
    assert not replica.asks_again(60), "it took them"
    replica.served(40, 500)
    assert replica.asks_again(40) == 500
    assert not replica.asks_again(40)


def test_what_a_follower_fetched_behind_in_this_epoch_was_compared() -> None:
    leader = make_leader()
    fetch(leader, 2, 90)
    assert leader.has_compared(2, 20, 90)
    assert leader.has_compared(2, 20, 80)
    assert not leader.has_compared(2, 20, 91)
    assert not leader.has_compared(2, 21, 90), "another life of the broker may hold something else"
    assert not leader.has_compared(3, 30, 0), "it has not fetched yet"
    assert not leader.has_compared(9, 90, 0), "no replica"


def test_what_was_compared_in_an_earlier_epoch_is_compared_anew() -> None:
    leader = make_leader()
    fetch(leader, 2, 90)
    lead_again(leader, epoch=6, partition_epoch=9, isr=(1, 2, 3))
    assert not leader.has_compared(2, 20, 90)


def test_nobody_waits_for_a_member_that_the_controller_took_out() -> None:
    """Its log directory failed, say: its broker runs, and a moment ago it had everything."""
    leader = make_leader()
    for broker in (2, 3):
        fetch(leader, broker, 100)
    leader.advance(2_000)
    leader.appended(110, 2_000)
    fetch(leader, 2, 110)
    assert not leader.advance(2_000)
    lead_again(leader, epoch=5, partition_epoch=9, isr=(1, 2))
    assert leader.advance(2_000)
    assert leader.high_watermark == 110


def test_nobody_waits_for_a_member_that_was_never_there_once_it_was_taken_out() -> None:
    leader = make_leader()
    fetch(leader, 2, 100)
    assert not leader.advance(2_000)
    lead_again(leader, epoch=5, partition_epoch=9, isr=(1, 2))
    assert leader.advance(2_000)
    assert leader.high_watermark == 100


@pytest.mark.parametrize(
    "leaves", [True, False], ids=["and leaves the partition", "and has yet to leave the partition"]
)
def test_for_who_was_taken_out_no_session_speaks_that_goes_on_for_other_partitions(leaves: bool) -> None:
    leader, contact = make_leader(isr=(1, 2), replicas=(1, 2)), FollowerContact(2_000)
    leader.fetched(2, 20, 100, contact, 2_000)
    leader.advance(2_000)
    lead_again(leader, epoch=5, partition_epoch=9, isr=(1,))
    contact.last_fetch_ms = 2_100
    if leaves:
        leader.lost_contact(contact)
    assert leader.appended(110, 2_200)
    assert leader.high_watermark == 110


def test_who_was_taken_out_and_fetches_on_is_waited_for_again() -> None:
    """Left behind, it could never catch a busy leader."""
    leader = make_leader(isr=(1, 2), high_watermark=100)
    fetch(leader, 2, 100)
    lead_again(leader, epoch=5, partition_epoch=9, isr=(1,))
    leader.appended(110, 2_000)
    leader.advance(2_000)
    fetch(leader, 2, 110)
    assert not leader.appended(120, 2_000)
    assert leader.high_watermark == 110


def test_a_smaller_number_of_replicas_counts_only_with_what_else_is_known() -> None:
    leader = make_leader(isr=(1,), min_isr=2)
    leader.keep_min_insync_replicas()
    leader.set_min_insync_replicas(1)
    assert (leader.advance(2_000), leader.required_in_sync) == (False, 2)
    leader.set_min_insync_replicas(3)
    assert leader.required_in_sync == 3
    lead_again(leader, epoch=5, partition_epoch=9, isr=(1,))
    assert leader.required_in_sync == 1


def test_nobody_waits_for_whom_the_controller_refuses() -> None:
    """It may know that the directory is lost in which the replica lay that was about to join."""
    leader = make_leader(isr=(1,), high_watermark=100)
    fetch(leader, 2, 100)
    proposal = expand(leader, 2)
    assert not leader.appended(110, 2_000)
    leader.answered(proposal, Answer(ErrorCode.INELIGIBLE_REPLICA), 2_000)
    assert leader.advance(2_000)
    assert leader.high_watermark == 110

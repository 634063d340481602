"""A partition's leader: what it knows of its followers, its ISR, and how far records are committed.

Pure: it is told what happened (an append, a follower's fetch, the controller's answer, a moment of the clock) and answers
what follows from it. Kafka's Partition.scala; kraft.md 3.3.
"""

from collections.abc import Iterable, Mapping

from ottla.broker.replication.decisions.high_watermark import leader_high_watermark
from ottla.broker.replication.decisions.isr import (
    Answer,
    Committed,
    IsrState,
    Outcome,
    PendingExpand,
    PendingShrink,
    Proposal,
    may_join,
    out_of_sync,
    outcome_of,
)
from ottla.broker.replication.decisions.replica import (
    NEVER_MS,
    UNKNOWN_OFFSET,
    BrokerStanding,
    FollowerContact,
    ReplicaState,
)

_ALONE: dict[int, "ReplicaState"] = {}
"""Stays empty: the followers of each partition that has no other replica."""


class PartitionLeader:
    """The leader's state of one partition, from one election to the next. Offsets are records, times monotonic ms."""

    __slots__ = (
        "_maximal",
        "_min_told",
        "brokers",
        "epoch",
        "epoch_start_offset",
        "high_watermark",
        "isr",
        "lag_time_max_ms",
        "log_end_offset",
        "node_id",
        "partition_epoch",
        "replicas",
        "required_in_sync",
        "stable_end_offset",
    )

    def __init__(self, node_id: int, brokers: Mapping[int, BrokerStanding], lag_time_max_ms: int) -> None:
        """``brokers`` is the live view of all registered brokers, shared by all partitions."""
        self.node_id = node_id
        self.brokers = brokers
        self.lag_time_max_ms = lag_time_max_ms
        self.epoch = -1
        self.partition_epoch = -1
        self.epoch_start_offset = -1
        self.log_end_offset = 0
        self.stable_end_offset = 0  # how far our own log counts: all of it, unless it must be synced first
        self.high_watermark = 0
        self.required_in_sync = 1
        self._min_told = 0
        self.replicas = _ALONE
        self.isr: IsrState = Committed(())
        self._maximal: tuple[int, ...] = ()

    def lead(
        self,
        *,
        epoch: int,
        partition_epoch: int,
        isr: tuple[int, ...],
        replicas: Iterable[int],
        min_insync_replicas: int,
        log_end_offset: int,
        stable_end_offset: int,
        high_watermark: int,
        now_ms: int,
    ) -> bool:
        """Takes in what the metadata log says of a partition that this broker leads; True if the epoch is a new one.

        News replace a pending proposal, whose late answer will then be ignored. What an answer of the controller told before is no
        news: a proposal that was made since may have been granted already, and its member must hold the high watermark back.
        """
        first_term, new_epoch = self.epoch < 0, epoch > self.epoch
        led_before = epoch == self.epoch + 1
        known = not new_epoch and partition_epoch == self.partition_epoch
        followers = [replica for replica in replicas if replica != self.node_id]
        others = {follower: self.replicas.get(follower) or ReplicaState() for follower in followers}
        self.replicas = others or _ALONE
        self.partition_epoch = partition_epoch
        self._min_told = 0  # the settings are as new as this
        self.set_min_insync_replicas(min_insync_replicas)
        self.log_end_offset = log_end_offset
        self.stable_end_offset = stable_end_offset
        self.high_watermark = high_watermark if first_term else self.high_watermark
        if new_epoch:
            self.epoch = epoch
            self.epoch_start_offset = log_end_offset
            self._start_epoch(isr, now_ms, led_before=led_before)
        if not known:
            self._wait_no_more_for(member for member in self.isr.committed if member not in isr)
            self._set_isr(Committed(isr))
        return new_epoch

    def _wait_no_more_for(self, broker_ids: Iterable[int]) -> None:
        """Whom the controller took out, or refuses, counts as caught up again when it says so itself. The controller may know why it will not: its
        directory is lost, or was never there. Nothing would be acknowledged for the whole lag time."""
        for broker_id in broker_ids:
            if (replica := self.replicas.get(broker_id)) is not None:
                replica.last_caught_up_ms = NEVER_MS

    def _start_epoch(self, isr: tuple[int, ...], now_ms: int, *, led_before: bool) -> None:
        """``led_before``: in the very epoch before. Of one that we never heard of the leader may have had followers cut their logs."""
        for follower, replica in self.replicas.items():
            # A member gets the whole lag time to show itself; what it holds is known only if we led before.
            replica.last_caught_up_ms = now_ms if follower in isr else NEVER_MS
            if follower not in isr or not led_before:
                # It may have cut its log before it follows this epoch (`healing.may_cut`): only what it says in it counts.
                replica.log_end_offset = UNKNOWN_OFFSET
            replica.last_fetch_ms = NEVER_MS
            replica.mark_offset, replica.mark_ms = UNKNOWN_OFFSET, NEVER_MS
            replica.contact = None
            replica.log_start_offset = UNKNOWN_OFFSET

    def set_min_insync_replicas(self, value: int) -> None:
        self.required_in_sync = min(max(value, self._min_told), len(self.replicas) + 1)

    def keep_min_insync_replicas(self) -> None:
        """Goes by no smaller number before `lead` tells more of the partition: by then somebody else may lead it, who has all that was
        committed by the number until now (KIP-966)."""
        self._min_told = max(self._min_told, self.required_in_sync)

    @property
    def committed_isr(self) -> tuple[int, ...]:
        return self.isr.committed

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return self._maximal

    def has_enough_in_sync(self) -> bool:
        """Before an append with acks=all: by the committed ISR, for a proposed member is not yet in sync."""
        return len(self.isr.committed) >= self.required_in_sync

    def had_enough_in_sync(self) -> bool:
        """When the high watermark passed the append: by the replicas that held it back."""
        return len(self._maximal) >= self.required_in_sync

    def has_silent_member(self) -> bool:
        """Whether a member of the ISR has not fetched in this epoch: it may never have been there."""
        return any(not replica.has_fetched for member in self.isr.committed if (replica := self.replicas.get(member)))

    def hears_of(self, broker_id: int, now_ms: int) -> bool:
        """Whether the follower still fetches. What one that does not once had lets it into no ISR: everybody would wait for it again."""
        replica = self.replicas.get(broker_id)
        return replica is not None and replica.is_heard_of(now_ms, self.lag_time_max_ms)

    def has_committed_own_epoch(self) -> bool:
        """Whether all from earlier epochs is committed; before that the end offset clients would see may still go down."""
        return self.high_watermark >= self.epoch_start_offset

    def low_watermark(self, log_start_offset: int) -> int:
        """Where the log begins on every live replica, ours at ``log_start_offset``; -1 while one has not told."""
        starts = [
            replica.log_start_offset
            for follower, replica in self.replicas.items()
            if (standing := self.brokers.get(follower)) is not None and not standing.fenced
        ]
        return min(log_start_offset, *starts) if starts else log_start_offset

    def appended(self, log_end_offset: int, now_ms: int, *, stable: bool = True) -> bool:
        """The leader wrote up to ``log_end_offset``; not ``stable`` if `synced` will say when it counts.

        True if the high watermark moved.
        """
        previous, self.log_end_offset = self.log_end_offset, log_end_offset
        if stable:
            self.stable_end_offset = log_end_offset
        if not self.replicas:
            return self.advance(now_ms)
        for broker_id, replica in self.replicas.items():
            if replica.log_end_offset == previous and broker_id in self.isr.committed:
                replica.leader_appended(previous)
        # With another member in the ISR the lowest end is not ours, so our append cannot have moved it.
        return len(self._maximal) == 1 and self.advance(now_ms)

    def synced(self, stable_end_offset: int, now_ms: int) -> bool:
        """Our own log is on stable storage up to there. True if the high watermark moved."""
        self.stable_end_offset = max(self.stable_end_offset, stable_end_offset)
        return self.advance(now_ms)

    def fetched(
        self, broker_id: int, broker_epoch: int, offset: int, contact: FollowerContact | None, now_ms: int
    ) -> ReplicaState | None:
        """A follower fetched at ``offset``, so it holds all below. None if it is no replica of this partition.

        The caller looks at ``advance`` and ``propose_expand`` afterwards, for those that changed only.
        """
        replica = self.replicas.get(broker_id)
        if replica is None:
            return None
        replica.fetched(offset, self.log_end_offset, now_ms)
        replica.broker_epoch = broker_epoch
        replica.contact = contact
        return replica

    def has_compared(self, broker_id: int, broker_epoch: int, offset: int) -> bool:
        """Whether what the follower holds below ``offset`` was found to be ours: it fetched from there, or beyond, in this epoch."""
        replica = self.replicas.get(broker_id)
        return (
            replica is not None
            and replica.has_fetched
            and replica.broker_epoch == broker_epoch
            and offset <= replica.log_end_offset
        )

    def lost_contact(self, contact: FollowerContact) -> None:
        """A follower's session covers this partition no longer: what it says from now on is not about us."""
        for broker_id, replica in self.replicas.items():
            if replica.contact is contact:
                if broker_id in self.isr.committed:
                    replica.leader_appended(self.log_end_offset)
                replica.contact = None

    def knows_newer_life_of(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a fetch comes from an earlier start of the broker than one known here; -1 says nothing.

        The registered start is not enough: the broker may fetch before the metadata here tell that it registered anew, and what its
        earlier start sent may come after that. Who has nothing new to say in its session would never correct it.
        """
        if broker_epoch == -1:
            return False
        standing, replica = self.brokers.get(broker_id), self.replicas.get(broker_id)
        return (standing is not None and broker_epoch < standing.epoch) or (
            replica is not None and broker_epoch < replica.broker_epoch
        )

    def advance(self, now_ms: int) -> bool:
        """Moves the high watermark as far as the rule lets it; True if it moved."""
        offset = leader_high_watermark(
            self.high_watermark,
            self.log_end_offset,
            self.stable_end_offset,
            committed_isr_size=len(self.isr.committed),
            required_in_sync=self.required_in_sync,
            maximal_isr=self._maximal,
            replicas=self.replicas,
            brokers=self.brokers,
            now_ms=now_ms,
            lag_time_max_ms=self.lag_time_max_ms,
        )
        if offset == self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def propose_expand(self, broker_id: int) -> Proposal | None:
        """The proposal to take a caught-up follower in, if it is out, may join, and nothing else is in flight."""
        if broker_id in self._maximal or not isinstance(self.isr, Committed):
            return None
        replica = self.replicas.get(broker_id)
        standing = self.brokers.get(broker_id)
        if replica is None or not may_join(replica, standing, self.high_watermark, self.epoch_start_offset):
            return None
        return self._propose(PendingExpand(self.isr.committed, broker_id))

    def propose_shrink(self, now_ms: int) -> Proposal | None:
        """The proposal to leave members out that lag, if there are any and nothing else is in flight."""
        if not isinstance(self.isr, Committed):
            return None
        lagging = out_of_sync(
            self.isr.committed, self.node_id, self.replicas, self.log_end_offset, now_ms, self.lag_time_max_ms
        )
        return self._propose(PendingShrink(self.isr.committed, lagging)) if lagging else None

    def _propose(self, state: PendingExpand | PendingShrink) -> Proposal:
        self._set_isr(state)
        return self.proposal_for(state)

    def proposal_for(self, state: PendingExpand | PendingShrink) -> Proposal:
        """The request of a pending state, with the broker epochs known now (a retry asks anew)."""
        members = tuple((member, self._epoch_of(member)) for member in state.proposed or ())
        return Proposal(state, self.epoch, self.partition_epoch, members)

    def _epoch_of(self, broker_id: int) -> int:
        # The epoch the follower fetched with, not the registered one: a broker that restarted since must be refused.
        replica = self.replicas.get(broker_id)
        if replica is not None and replica.broker_epoch != -1:
            return replica.broker_epoch
        standing = self.brokers.get(broker_id)
        return standing.epoch if standing is not None else -1

    def answered(self, proposal: Proposal, answer: Answer, now_ms: int) -> Outcome | None:
        """Takes in the controller's answer; None if metadata overtook it and it no longer means anything."""
        if self.isr is not proposal.state or self.epoch != proposal.leader_epoch:
            return None
        outcome = outcome_of(answer.error)
        if outcome is Outcome.ADOPT:
            if answer.leader_epoch != self.epoch or answer.partition_epoch < self.partition_epoch:
                return Outcome.AWAIT_METADATA
            self.partition_epoch = answer.partition_epoch
            self._set_isr(Committed(answer.isr))
            # It is granted by that number, which the metadata here may not say yet: who left may lead, and must lack nothing.
            self._min_told = answer.min_in_sync
            self.set_min_insync_replicas(self.required_in_sync)
        elif outcome is Outcome.REVERT:
            if isinstance(proposal.state, PendingExpand):
                self._wait_no_more_for((proposal.state.added,))
            self._set_isr(Committed(proposal.state.committed))
        return outcome

    def _set_isr(self, isr: IsrState) -> None:
        self.isr = isr
        self._maximal = isr.maximal

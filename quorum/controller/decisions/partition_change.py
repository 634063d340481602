"""How a partition changes: the one place where leaders are chosen and reassignments completed (kraft.md 2.5)."""

from collections.abc import Callable
from enum import Enum

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions.decision import Record
from ottla.quorum.controller.decisions.elr import eligible, last_known, out_of_sync
from ottla.quorum.metadata.delta import PartitionKey
from ottla.quorum.metadata.views import NO_LEADER, RECOVERING, PartitionView

NOBODY = -1


class Election(Enum):
    """Who is preferred, and how far down the list to go."""

    ONLINE = "keep the leader, else the first valid replica"
    PREFERRED = "the first replica if it is valid, else as online"
    UNCLEAN = "as online, else any live replica, in sync or not"


class PartitionChangeBuilder:
    """Set what should change, then `build`."""

    def __init__(
        self,
        key: PartitionKey,
        partition: PartitionView,
        can_lead: Callable[[int], bool],
        directory_for_new_replica: Callable[[int], bytes],
        election: Election = Election.ONLINE,
        min_in_sync: int | None = None,
    ) -> None:
        """``can_lead``: whether a broker is fit to lead this partition, apart from being in sync. ``min_in_sync``: its topic's
        min.insync.replicas, if eligible leaders are kept (`elr`)."""
        self._key = key
        self._before = partition
        self._can_lead = can_lead
        self._directory_for_new_replica = directory_for_new_replica
        self._election = election
        self._min_in_sync = min_in_sync
        self.isr = partition.isr
        self.elr, self.last_known_elr = partition.elr, partition.last_known_elr
        self.loser = NOBODY  # a broker that lost what it had, or some of it
        self.emptied = NOBODY  # one that lost all of it, and is no better than any other
        self.replicas = partition.replicas
        self.adding = partition.adding
        self.removing = partition.removing
        self.leader_recovery_state = partition.leader_recovery_state
        self.begins_epoch = False  # raise the leader epoch though the leader stays

    def build(self) -> Record | None:
        """The record with the fields that change; None when nothing does."""
        self._complete_reassignment()
        if self._min_in_sync is not None:
            self.elr = out_of_sync(self._before, self.replicas, self.isr, self.loser)
        leader = self._elect()
        if self._min_in_sync is not None:
            self.elr = eligible(self.elr, self.replicas, self.isr, self._min_in_sync)
            now = self._before.leader if leader is None else leader
            known = self._known_leaders() or self._last_to_leave()
            self.last_known_elr = last_known(self._before, self.replicas, known, now)
        if leader is None and (self.begins_epoch or self._removes_a_replica()):
            leader = self._before.leader  # the same, named: that raises the leader epoch, so that fetchers start anew
        change = pb.PartitionChange(topic_id=self._key[0], partition_id=self._key[1], leader=leader)
        self._put_lists(change)
        if self.leader_recovery_state != self._before.leader_recovery_state:
            change.leader_recovery_state = self.leader_recovery_state
        has_changes = any(field.name not in ("topic_id", "partition_id") for field, _ in change.ListFields())
        return Record(partition_change=change) if has_changes else None

    def _complete_reassignment(self) -> None:
        """A reassignment is done when the new replicas are in sync and somebody stays (kraft.md 2.7)."""
        if not self.adding and not self.removing:
            return
        target = tuple(each for each in self.replicas if each not in self.removing)
        staying = tuple(each for each in self.isr if each not in self.removing)
        if not staying or any(each not in staying for each in self.adding):
            return
        shrinks = len(self.removing) > len(self.adding)
        if shrinks and any(each not in staying for each in target):
            return
        self.replicas, self.isr, self.adding, self.removing = target, staying, (), ()

    def _elect(self) -> int | None:
        """The new leader, NO_LEADER for none; None when the leader stays. One that was out of the ISR is alone in it."""
        leader = next((each for each in self._candidates() if self._is_valid(each)), NO_LEADER)
        if leader == NO_LEADER:
            leader = next((each for each in self._uncertain() if self._can_lead(each)), NO_LEADER)
            if leader != NO_LEADER:
                # Its log is the truth from now on; nobody else's may be ahead of it.
                self.isr, self.elr = (leader,), ()
                self.leader_recovery_state = RECOVERING
        elif leader not in self.isr:
            self.isr, self.elr = (leader,), tuple(each for each in self.elr if each != leader)
        elif self._before.leader == NO_LEADER and self._min_in_sync is None:
            # Of several who were eligible before a downgrade the others may still be away: nothing would be committed.
            self.isr = tuple(each for each in self.isr if each == leader or self._can_lead(each))
        return None if leader == self._before.leader else leader

    def _known_leaders(self) -> tuple[int, ...]:
        """Who led last, if it may have more than others: not with an empty disk. An only replica has all there is."""
        return tuple(filter(self._may_have_more, self._before.last_known_elr))

    def _last_to_leave(self) -> tuple[int, ...]:
        """Who was trusted until now, if nobody is any more: it counts as who led last where that was not noted, for nobody led
        when eligible leaders came into use."""
        if self.isr or self.elr:
            return ()
        return tuple(filter(self._may_have_more, (*self._before.isr, *self._before.elr)))

    def _may_have_more(self, broker_id: int) -> bool:
        return broker_id in self.replicas and (len(self.replicas) == 1 or broker_id != self.emptied)

    def _uncertain(self) -> tuple[int, ...]:
        """Who may lead though records may be lost: any replica where that is allowed; and who led last, if nobody is left who has
        all for sure. It has as much as anybody, and else the partition would wait for ever for a broker that lost power. Who is being added
        comes last: it may have nothing yet (Kafka goes by the order of the replicas, in which it comes first)."""
        nobody_is_trusted = self._min_in_sync is not None and not self.isr and not self.elr
        led_last = self._known_leaders() if nobody_is_trusted else ()
        if self._election is not Election.UNCLEAN:
            return led_last
        return (*led_last, *sorted(self.replicas, key=lambda each: each in self.adding))

    def _candidates(self) -> tuple[int, ...]:
        if self._election is Election.PREFERRED:
            return (*self.replicas[:1], self._before.leader, *self.replicas[1:])
        return (self._before.leader, *self.replicas)

    def _is_valid(self, broker_id: int) -> bool:
        trusted = self.isr or self.elr
        return broker_id in self.replicas and broker_id in trusted and self._can_lead(broker_id)

    def _removes_a_replica(self) -> bool:
        return any(each not in self.replicas for each in self._before.replicas)

    def _put_lists(self, change: pb.PartitionChange) -> None:
        before = self._before
        # Without eligible leaders the last member stays: it has what was acknowledged.
        if self.isr != before.isr and (self.isr or self._min_in_sync is not None):
            change.isr.SetInParent()
            change.isr.ids.extend(self.isr)
        if self.elr != before.elr:
            change.eligible_leader_replicas.SetInParent()
            change.eligible_leader_replicas.ids.extend(self.elr)
        if self.last_known_elr != before.last_known_elr:
            change.last_known_elr.SetInParent()
            change.last_known_elr.ids.extend(self.last_known_elr)
        if self.replicas != before.replicas:
            change.replicas.ids.extend(self.replicas)
            change.directories.ids.extend(self._directories())
        if self.adding != before.adding:
            change.adding_replicas.SetInParent()
            change.adding_replicas.ids.extend(self.adding)
        if self.removing != before.removing:
            change.removing_replicas.SetInParent()
            change.removing_replicas.ids.extend(self.removing)

    def _directories(self) -> list[bytes]:
        before = self._before
        return [
            before.directory_of(each) if each in before.replicas else self._directory_for_new_replica(each)
            for each in self.replicas
        ]

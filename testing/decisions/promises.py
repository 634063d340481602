"""What was acknowledged, and who must have it.

A record is committed once everybody in sync has it, and enough are. From then on whoever is elected cleanly must have it. That holds unless
all who were trusted lost what they had, or may have: then the loss is nobody's fault (``excused``), until somebody leads again.
"""

from collections.abc import Mapping

from ottla.quorum.controller.decisions.elr import uses_elr
from ottla.quorum.metadata.delta import PartitionKey
from ottla.quorum.metadata.views import PartitionView
from ottla.testing.decisions.brokers import Broker
from ottla.testing.decisions.controller import Controller
from ottla.testing.decisions.disks import Log, agreed, has
from ottla.testing.decisions.rules import Violation
from ottla.testing.decisions.words import Say, describe_partition


class Promises:
    """``committed``: what each partition has acknowledged, and nobody lost who was excused."""

    def __init__(self, brokers: Mapping[int, Broker], controller: Controller, say: Say) -> None:
        self.committed: dict[PartitionKey, Log] = {}
        self._brokers, self._controller, self._say = brokers, controller, say
        self._excused: dict[PartitionKey, bool] = {}

    def of(self, key: PartitionKey) -> Log:
        return self.committed.get(key, [])

    def commit(self, key: PartitionKey, partition: PartitionView, log: Log, end: int) -> None:
        """Raises Violation when somebody is eligible meanwhile and lacks it."""
        if end <= len(self.of(key)):
            return
        self.committed[key] = log[:end]
        if not all(self._brokers[each].disks.hold(key, log[:end]) for each in partition.elr):
            self._violated("who is eligible lacks what was just committed", key, partition, partition, log)

    # --- who leads ----------------------------------------------------------------------------------------------------

    def leading_log(self, key: PartitionKey, partition: PartitionView) -> Log | None:
        """The log of a leader that runs. Raises Violation when it lacks what is committed, and that is somebody's fault."""
        log = self._log_of(partition.leader, key)
        if log is not None and not has(log, self.of(key)):
            if not self._is_excused(key):
                self._violated("who leads lacks what is committed", key, partition, partition, log)
            self._begin(key, log)
        return log

    def _log_of(self, broker_id: int, key: PartitionKey) -> Log | None:
        """Of a broker whose process is the one that the controller knows."""
        broker, registration = self._brokers.get(broker_id), self._controller.image.brokers.get(broker_id)
        if broker is None or registration is None or broker.registered is None:
            return None
        return broker.hosted(key) if broker.registered.epoch == registration.epoch else None

    # --- what changes -------------------------------------------------------------------------------------------------

    def partition_changed(self, key: PartitionKey, before: PartitionView, after: PartitionView) -> None:
        """Raises Violation when who is elected, or trusted from now on, lacks what is committed. Who had a broker forgotten that alone was
        trusted knew that what it has goes with it."""
        trusted = tuple(each for each in (*before.isr, *before.elr) if each != self._controller.forgotten)
        self._check_joining(key, before, after)
        log = self._log_of(after.leader, key) if after.leader != before.leader else None
        if log is None:
            self.note_loss(key, after)
            return
        is_kept = has(log, self.of(key))
        is_clean = after.leader in trusted or not self._may_be_unclean(key, trusted)
        if is_clean and not is_kept and not self._is_excused(key):
            self._violated("who is elected lacks what is committed", key, before, after, log)
        self._begin(key, log)

    def _may_be_unclean(self, key: PartitionKey, trusted: tuple[int, ...]) -> bool:
        """Where a person allows it, or where nobody who is trusted has what is committed."""
        is_allowed = self._controller.state.allows_unclean_election(key[0])
        return is_allowed or not any(self._is_intact(each, key) for each in trusted)

    def _check_joining(self, key: PartitionKey, before: PartitionView, after: PartitionView) -> None:
        """Who comes into the ISR, or is eligible, and was neither before, has what is committed. Who is elected is judged as that."""
        trusted = (*before.isr, *before.elr)
        if not trusted or self._may_be_unclean(key, trusted) or self._is_excused(key):
            return
        for each in (*after.isr, *after.elr):
            log = self._log_of(each, key) if each not in trusted and each != after.leader else None
            if log is not None and not has(log, self.of(key)):
                self._violated(f"{each} joins and lacks what is committed", key, before, after, log)

    # --- what is lost -------------------------------------------------------------------------------------------------

    def note_losses(self) -> None:
        """Somebody lost what it had: of which partitions may records be lost now?"""
        for key, partition in self._controller.partitions().items():
            self.note_loss(key, partition)

    def note_loss(self, key: PartitionKey, partition: PartitionView) -> None:
        """The same of one, where somebody else may be trusted by now."""
        trusted = (*partition.isr, *partition.elr)
        intact = sum(self._is_intact(each, key) for each in trusted)
        # Without eligible leaders the last in sync stays though it lost something, as in Kafka: any may come to be that one.
        keeps_eligible = uses_elr(self._controller.image)
        if not intact or (intact < len(trusted) and not keeps_eligible):
            self._excuse(key, partition)

    def _excuse(self, key: PartitionKey, partition: PartitionView) -> None:
        if not self._is_excused(key):
            self._say("records of", key[1], "may be lost:", lambda: describe_partition(partition))
        self._excused[key] = True

    def _is_excused(self, key: PartitionKey) -> bool:
        return self._excused.get(key, False)

    def _is_intact(self, broker_id: int, key: PartitionKey) -> bool:
        return self._brokers[broker_id].is_intact(key, self.of(key))

    def _begin(self, key: PartitionKey, log: Log) -> None:
        """What the leader has counts from now on."""
        committed = self.of(key)
        kept = agreed(log, committed)
        if kept < len(committed):
            self._say("records of", key[1], "are lost:", len(committed) - kept)
            self.committed[key] = committed[:kept]
        self._excused[key] = False
        self.note_losses()

    def _violated(self, what: str, key: PartitionKey, before: PartitionView, after: PartitionView, log: Log) -> None:
        committed = self.of(key)
        shown = f"P{key[1]} {describe_partition(before)} -> {describe_partition(after)}"
        raise Violation(f"{what}, {agreed(log, committed)} of {len(committed)} records: {shown}")

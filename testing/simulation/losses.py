"""What may be lost: by whom an election was allowed to elect, and what was on stable storage when all power was cut.

Everything else is held to what was committed, whatever happens.
"""

from collections.abc import Callable, Mapping

from ottla.quorum.metadata.delta import PartitionKey
from ottla.quorum.metadata.views import NO_LEADER, RECOVERING, PartitionView


class Losses:
    """``may_elect``: whether anybody may be elected in the topic of that name."""

    def __init__(self) -> None:
        self.may_elect: Callable[[str], bool] = lambda topic: False
        self.unclean_elections = 0
        self._unclean: dict[PartitionKey, dict[int, int]] = {}
        """Who was elected uncleanly, by epoch, where nobody has led since."""
        self._latest: dict[PartitionKey, int] = {}
        self._stable: dict[PartitionKey, Mapping[int, int]] = {}

    def elected(self, topic: str, key: PartitionKey, before: PartitionView, view: PartitionView) -> None:
        """Metadata changed a partition: that may be an unclean election, which may lose records there."""
        leader = view.leader
        if leader in (NO_LEADER, before.leader) or leader in before.isr or leader in before.elr:
            return
        if view.leader_recovery_state != RECOVERING or not self.may_elect(topic):
            return
        self.unclean_elections += 1
        self._unclean.setdefault(key, {})[view.leader_epoch] = leader
        self._latest[key] = view.leader_epoch

    def power_was_cut(self, key: PartitionKey, stable: Mapping[int, int]) -> None:
        """Everybody in sync lost power; ``stable``: up to where each of them had its log on stable storage."""
        self._stable[key] = stable

    def is_alone_since(self, key: PartitionKey, view: PartitionView) -> bool:
        """Whether an unclean election made its leader the only one in sync, and nobody came since. Nobody waited for that one to have
        stable what others acknowledged."""
        epoch = view.leader_epoch - (view.leader == NO_LEADER)
        return len(view.isr) == 1 and self._latest.get(key) == epoch

    def has_lost_power(self, key: PartitionKey, node: int) -> bool:
        """Whether a member may have less than it had: nobody has led since the power of all was cut."""
        return node in self._stable.get(key, ())

    def is_chosen(self, key: PartitionKey, node: int) -> bool:
        """Whether it was elected uncleanly and has not led yet: taken out meanwhile, it may come back as an eligible leader."""
        return node in self._unclean.get(key, {}).values()

    def permits(self, key: PartitionKey, node: int, epoch: int, end: int) -> bool:
        """Whether who begins to lead ``epoch`` with so much may lack what was committed. Each reason permits it once: who was elected
        uncleanly may die before it leads, and lead in a later epoch."""
        pending = self._unclean.get(key, {})
        if any(each <= epoch for each in pending):
            self._unclean[key] = {each: who for each, who in pending.items() if each > epoch}
            return True
        stable = self._stable.pop(key, {})
        return node in stable and end >= stable[node]

    def overtakes(self, key: PartitionKey, epoch: int) -> bool:
        """Whether an unclean election has been decided that leaders of ``epoch`` have not heard of."""
        return self._latest.get(key, -1) > epoch

"""What the active controller does without a request: brokers whose sessions are over are fenced, leaders go back to the first
replicas, what its predecessor left undone is put right."""

import logging
from collections.abc import Callable

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.counters import ControllerCounters
from ottla.quorum.controller.decisions import cluster, features
from ottla.quorum.controller.decisions.chores import has_chores, next_chore
from ottla.quorum.controller.decisions.decision import Record
from ottla.quorum.controller.decisions.elections import rebalance_leaders
from ottla.quorum.controller.decisions.record_levels import METADATA_VERSION
from ottla.quorum.controller.leadership import PIECE_PAUSE_MS, Leadership
from ottla.runtime.timers import LoopTimers

_logger = logging.getLogger(__name__)

_FORGETTING_PAUSE_MS = 15_000
_SERIES_PAUSE_MS = 10
"""How often to ask whether a large transaction is through."""


class Upkeep:
    """What nobody asks for, for the length of one leadership."""

    def __init__(
        self, leadership: Leadership, timers: LoopTimers, counters: ControllerCounters, is_busy: Callable[[], bool]
    ) -> None:
        """``is_busy``: records of a transaction are being appended, and nothing may come between them."""
        self._leadership = leadership
        self._timers = timers
        self._counters = counters
        self._is_busy = is_busy

    def begin(self, node_id: int, *, in_transaction: bool) -> None:
        """``in_transaction``: the log ends inside one."""
        leadership = self._leadership
        settings = leadership.state.settings
        self.plan_chores()
        leadership.repeat("controllers", _FORGETTING_PAUSE_MS, self._forget_controllers)
        leadership.repeat("leaderless", settings.unclean_interval_ms, self._reconsider_leaderless)
        if settings.rebalance_interval_ms:
            leadership.repeat("rebalance", settings.rebalance_interval_ms, self._rebalance)
        if in_transaction:
            reason = pb.AbortTransaction(reason="the controller that began it is gone")
            leadership.append_own(
                [Record(abort_transaction=reason)],
                f"controller {node_id} takes over: a transaction was left unfinished",
            )
        if METADATA_VERSION not in leadership.state.image.features:
            leadership.append_own(features.first_records(leadership.state), "bootstrap")

    def fence_expired(self) -> None:
        """Piece by piece, for a broker may have a hundred thousand partitions: the first of them have other leaders before
        the last are decided on, and what else the node has to do gets its turn in between."""
        leadership = self._leadership
        if leadership.is_planned("fencing"):
            return  # another broker's is under way: this one has its turn after it
        if self._is_busy():
            leadership.plan("fencing", _SERIES_PAUSE_MS, self.fence_expired)
            return
        step = cluster.fence_first_expired(leadership.state, self._timers.now_ms())
        if step is None:
            self.plan_chores()
            return
        if step.is_last:
            self._counters.fenced += 1
            _logger.warning("fencing broker %d: %s", step.broker_id, step.reason)
        if leadership.append_own(step.records, f"broker {step.broker_id} is fenced: {step.reason}"):
            leadership.plan("fencing", PIECE_PAUSE_MS, self.fence_expired)

    def plan_chores(self) -> None:
        """What was decided may leave more to do."""
        if has_chores(self._leadership.state) and not self._leadership.is_planned("chores"):
            self._leadership.plan("chores", PIECE_PAUSE_MS, self._do_chore)

    def _do_chore(self) -> None:
        """A piece of what is left of changes that concern very many partitions."""
        if self._is_busy():
            self._leadership.plan("chores", _SERIES_PAUSE_MS, self._do_chore)
            return
        chore = next_chore(self._leadership.state)
        if self._leadership.append_own(chore.records, chore.cause):
            self.plan_chores()

    def _reconsider_leaderless(self) -> None:
        """Whatever was missed: what may be led by any replica shall not stay without a leader."""
        self._leadership.state.reconsider_leaderless()
        self.plan_chores()

    def _forget_controllers(self) -> None:
        """The first time after all that live had time to be heard by this leader."""
        if not self._is_busy():
            self._leadership.note_members()
            records = features.forget_controllers(self._leadership.state)
            gone = ", ".join(str(each.unregister_controller.controller_id) for each in records)
            self._leadership.append_own(records, f"controllers that neither vote nor follow the log: {gone}")

    def _rebalance(self) -> None:
        if self._leadership.is_planned("rebalance piece"):
            return
        if self._is_busy():
            self._leadership.plan("rebalance piece", _SERIES_PAUSE_MS, self._rebalance)
            return
        step = rebalance_leaders(self._leadership.state)
        is_done = self._leadership.append_own(step.records, "leaders return to the first replicas")
        if is_done and not step.is_last:
            self._leadership.plan("rebalance piece", PIECE_PAUSE_MS, self._rebalance)

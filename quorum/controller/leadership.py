"""One leadership of the controller: the state it decides on, the records it writes, the timers that end with it."""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from ottla.quorum.controller.batches import Batch, into_batches
from ottla.quorum.controller.decisions.decision import Record
from ottla.quorum.controller.decisions.features import metadata_version
from ottla.quorum.controller.decisions.record_levels import check_records
from ottla.quorum.controller.decisions.state import ControllerSettings, ControllerState
from ottla.quorum.listener import LeaderAndEpoch, NotLeaderError, QuorumMembers
from ottla.quorum.voter_changes import OnChanged
from ottla.runtime.errors import KafkaError
from ottla.runtime.timers import LoopTimers, Timer

_logger = logging.getLogger(__name__)

PIECE_PAUSE_MS = 1
"""Between the pieces of what concerns very many partitions the node does everything else there is to do."""


class QuorumLeader(Protocol):
    """The part of `QuorumNode` that the controller uses."""

    node_id: int

    @property
    def leader(self) -> LeaderAndEpoch: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def next_offset(self) -> int: ...

    def append(self, records: list[bytes], epoch: int, cause: str = "") -> int: ...

    def members(self) -> QuorumMembers: ...

    def upgrade_kraft_version(self, on_done: OnChanged, *, validate_only: bool) -> None: ...

    def resign(self, epoch: int) -> None: ...


class ReplayError(Exception):
    """What was decided cannot be applied or appended; the state was given up for it."""


class Leadership:
    """One leadership, from election to end. Whoever made it ends it, be it for what it says of itself."""

    def __init__(
        self,
        epoch: int,
        state: ControllerState,
        quorum: QuorumLeader,
        timers: LoopTimers,
        settings: ControllerSettings,
        *,
        appended_offset: int,
        on_appended: Callable[[], None],
        on_lost: Callable[[], None],
        on_broken: Callable[[], None],
    ) -> None:
        """``on_appended``: something was decided and appended. ``on_lost``: the quorum has another leader. ``on_broken``: the state is not to be trusted any more."""
        self.epoch = epoch
        self.state = state
        self.appended_offset = appended_offset  # of the last record, by whomever as long as this leadership wrote none
        self._quorum = quorum
        self._timers = timers
        self._settings = settings
        self._on_appended = on_appended
        self._on_lost = on_lost
        self._on_broken = on_broken
        self._planned: dict[str, Timer] = {}

    def note_members(self) -> None:
        """The quorum as it is now, for what is decided next."""
        self.state.members = self._quorum.members()

    # --- writing ------------------------------------------------------------------------------------------------------

    def into_batches(self, records: list[Record], *, atomic: bool, cause: str) -> list[Batch]:
        """Raises KafkaError for what may not be written."""
        settings = self._settings
        check_records(records, metadata_version(self.state))
        return into_batches(
            records,
            atomic=atomic,
            records_max=settings.records_per_batch_max,
            bytes_max=settings.batch_bytes_max,
            name=cause,
        )

    def append(self, batches: Iterable[Batch], cause: str) -> None:
        """Applies and appends. Then ``appended_offset`` must be committed before the outcome may be told: without batches
        too, for what was decided on may not be committed yet. Raises NotLeaderError or ReplayError, and then this is
        over."""
        try:
            for batch in batches:
                # Applied first: what cannot be applied must never get into the log, where it would stop every node.
                for record in batch.records:
                    self.state.replay(record)
                self.appended_offset = self._quorum.append(batch.encoded, self.epoch, cause)
            self._on_appended()
        except NotLeaderError:
            self._on_lost()
            raise
        except Exception as error:
            _logger.exception("cannot append what was decided: %s", cause)
            self._on_broken()
            raise ReplayError from error

    def append_own(self, records: list[Record], cause: str) -> bool:
        """What nobody asked for. False when that was not possible: another controller will do it."""
        try:
            self.append(self.into_batches(records, atomic=False, cause=cause), cause)
        except (NotLeaderError, ReplayError):
            return False
        except KafkaError as error:
            _logger.error("%s: %s", cause, error.message)
            return False
        return True

    # --- timers -------------------------------------------------------------------------------------------------------

    def plan(self, name: str, delay_ms: int, work: Callable[[], None]) -> None:
        """Does ``work`` later."""
        self._planned[name] = self._timers.call_later_ms(delay_ms, work)

    def is_planned(self, name: str) -> bool:
        return name in self._planned and self._planned[name].active

    def repeat(self, name: str, pause_ms: int, work: Callable[[], None]) -> None:
        """Does ``work`` now and then."""
        self.plan(name, pause_ms, partial(self._repeat, name, pause_ms, work))

    def _repeat(self, name: str, pause_ms: int, work: Callable[[], None]) -> None:
        self.repeat(name, pause_ms, work)
        work()

    def forget_plans(self) -> None:
        """Cancels the timers."""
        for timer in self._planned.values():
            timer.cancel()
        self._planned.clear()

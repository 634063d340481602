"""The active controller's shell: requests in, records to the log, responses out when their records are committed.

It holds no rule: what a request means is decided by ``decisions``, on a state that lives as long as this node leads
(``leadership``). When the leadership ends the state is dropped with everything that was not committed, and whoever waits is
told NOT_CONTROLLER. ``liveness`` watches the brokers, ``upkeep`` is what is done without a request.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.causes import REQUEST_ID_BYTES_MAX, cause_of, in_words
from ottla.quorum.controller.attempts import Attempts
from ottla.quorum.controller.batches import Batch
from ottla.quorum.controller.counters import ControllerCounters
from ottla.quorum.controller.decisions import features
from ottla.quorum.controller.decisions.decision import Decision
from ottla.quorum.controller.decisions.retries import answer_again, done_already, has_nothing_left
from ottla.quorum.controller.decisions.state import ControllerSettings, ControllerState
from ottla.quorum.controller.dispatch import decide, note_contact, note_outcome
from ottla.quorum.controller.knocking import Knock
from ottla.quorum.controller.leadership import PIECE_PAUSE_MS, Leadership, QuorumLeader, ReplayError
from ottla.quorum.controller.liveness import BrokerLiveness, Visit
from ottla.quorum.controller.series import Series
from ottla.quorum.controller.upkeep import Upkeep
from ottla.quorum.controller.waiting_answers import WaitingAnswers
from ottla.quorum.listener import CommittedBatch, LeaderAndEpoch, NotLeaderError
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.quorum.raft.messages import VoterChangeResponse
from ottla.quorum.raft.voters import KRAFT_VERSION
from ottla.quorum.rpc.transport import Conversation, Reply
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.host import Host
from ottla.runtime.timers import LoopTimers, Timer

_logger = logging.getLogger(__name__)

_EARLY_REQUESTS_MAX = 10_000
_TURN_BYTES = 16 << 10
"""Of requests that waited, in one turn of the loop: AlterPartitions of so much take some 30 ms."""
_REQUEST_BYTES = 1 << 10
"""What the smallest counts for."""
_ABOUT_MEMBERS = ("register_broker", "register_controller", "unregister_broker", "update_features")


class Controller:
    """Answers `ControllerRequest`s while this node leads the quorum. All methods belong on the event loop."""

    def __init__(
        self,
        quorum: QuorumLeader,
        loader: MetadataLoader,
        host: Host,
        timers: LoopTimers,
        settings: ControllerSettings,
        knock: Knock | None = None,
    ) -> None:
        """``loader`` must be told of a commit before this is. ``knock``: at the door of brokers that are not heard from."""
        self._quorum = quorum
        self._loader = loader
        self._host = host
        self._timers = timers
        self._settings = settings
        self.liveness = BrokerLiveness(timers, settings, knock)
        self._leadership: Leadership | None = None
        # What came, or goes on (False), when it could not be decided on yet.
        self._early: deque[tuple[rpc.ControllerRequest, Reply, bool]] = deque()
        self._next_turn: Timer | None = None
        self._series: Series | None = None
        self._stopped = False
        self._waiting = WaitingAnswers()
        self._attempts = Attempts()
        self.counters = ControllerCounters()

    @property
    def is_active(self) -> bool:
        return self._leadership is not None

    @property
    def requests_waiting(self) -> int:
        """How many requests wait: they came before it was active, or while a transaction is appended."""
        return len(self._early)

    @property
    def responses_waiting(self) -> int:
        """How many answers wait for the commit of what was decided."""
        return len(self._waiting)

    def recall(self, batches: Iterable[CommittedBatch]) -> None:
        """The last that was committed before this process began: it is not told of these, and may be asked for them again."""
        self._attempts.recall(batches)

    # --- leadership ---------------------------------------------------------------------------------------------------

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """This node's own leadership is told after everything committed before it was applied to the image."""
        is_own = leader.leader_id == self._quorum.node_id
        if is_own and self._leadership is not None and self._leadership.epoch == leader.epoch:
            return
        self._deactivate()
        if is_own and self._quorum.is_leader and not self._stopped:
            self._activate(leader.epoch)
        self._take_up_early()

    def _activate(self, epoch: int) -> None:
        self._leadership = leadership = Leadership(
            epoch,
            ControllerState(self._loader.image, self._settings, self._host.rng),
            self._quorum,
            self._timers,
            self._settings,
            appended_offset=self._waiting.committed_offset,
            on_appended=lambda: upkeep.plan_chores(),
            on_lost=self._deactivate,
            on_broken=partial(self._give_up, epoch),
        )
        _logger.info("active controller in epoch %d, from offset %d on", epoch, self._quorum.next_offset)
        self.counters.activations += 1
        upkeep = Upkeep(leadership, self._timers, self.counters, lambda: self._series is not None)
        self.liveness.begin(leadership, upkeep.fence_expired)
        upkeep.begin(self._quorum.node_id, in_transaction=self._loader.in_transaction)

    def _deactivate(self) -> None:
        leadership, self._leadership = self._leadership, None
        if leadership is None:
            return
        _logger.info("no longer the active controller (epoch %d)", leadership.epoch)
        leadership.forget_plans()
        self.liveness.end()
        self._attempts.forget_answers()
        self._fail_series(self._not_controller())
        self._waiting.refuse(self._not_controller)

    def _give_up(self, epoch: int) -> None:
        """The state is not to be trusted any more: it is dropped, and somebody else shall lead."""
        self.counters.errors += 1
        self._fail_series(rpc.ControllerResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
        self._deactivate()
        self._quorum.resign(epoch)

    def leave(self) -> None:
        """Decides nothing more, and begins nothing; what was decided is answered when it is committed."""
        self._stopped = True
        if self._leadership is not None:
            self._leadership.forget_plans()
        self._fail_series(self._not_controller())
        self._take_up_early()

    def stop(self) -> None:
        """Answers nothing any more but NOT_CONTROLLER."""
        self._stopped = True
        self._deactivate()
        self._take_up_early()

    def on_commit(self, batch: CommittedBatch) -> None:
        """The image has been brought to the batch's end already."""
        if not self._loader.in_transaction:  # of a transaction only the end counts: it may be taken back
            self._attempts.committed(batch.cause)
        self._waiting.committed(batch.last_offset)

    def on_snapshot(self) -> None:
        """The image was replaced. A leader never loads a snapshot."""
        assert self._leadership is None, "the active controller was handed a snapshot"

    # --- requests -----------------------------------------------------------------------------------------------------

    def who_cannot_read(self, level: int, leaving: int) -> str | None:
        """Who keeps the quorum from writing kraft.version ``level``, among those whose registration
        is not committed yet, too. Raises KafkaError (NOT_CONTROLLER) while this is not the active one."""
        if self._leadership is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the controller is not active yet: ask again in a moment")
        image, voters = self._leadership.state.image, self._quorum.members().voters
        return features.who_cannot_read(image, KRAFT_VERSION, level, voters, leaving)

    def open(self) -> Conversation:
        """The controller's side of one connection (for `PerConnection`): its end is evidence."""
        return Visit(self.liveness, self.handle)

    def handle(self, request: rpc.ControllerRequest, reply: Reply) -> None:
        """Answers when what was decided is committed: at once, later, or never after `stop`."""
        if len(request.request_id) > REQUEST_ID_BYTES_MAX:
            reply(
                rpc.ControllerResponse(
                    error_code=ErrorCode.INVALID_REQUEST, error_message="the request's id is too long"
                )
            )
            return
        self._decide_on(request, reply, is_first=True)

    def _decide_on(self, request: rpc.ControllerRequest, reply: Reply, *, is_first: bool) -> None:
        """``is_first``: it came just now; else a piece of it was carried out already."""
        if not (self._early or self._is_occupied) or not self._may_wait:
            self._decide_now(request, reply, is_first=is_first)
        elif len(self._early) < _EARLY_REQUESTS_MAX:
            self._early.append((request, reply, is_first))
        else:
            reply(self._not_controller())

    def _decide_now(self, request: rpc.ControllerRequest, reply: Reply, *, is_first: bool) -> None:
        leadership = self._leadership
        if leadership is None or self._series is not None or self._stopped or not self._quorum.is_leader:
            reply(self._not_controller())
            return
        earlier = self._attempts.answer(request.request_id)
        if earlier is not None:
            self._waiting.answer_at(earlier[0], reply, earlier[1])
            return
        try:
            self._carry_out(leadership, request, reply, is_first=is_first)
        except KafkaError as error:
            reply(rpc.ControllerResponse(error_code=error.code, error_message=error.message))
        except NotLeaderError:
            reply(self._not_controller())
        except ReplayError:
            reply(rpc.ControllerResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
        except Exception:  # a decider's bug, before anything was changed
            _logger.exception("%s failed", request.WhichOneof("body"))
            reply(rpc.ControllerResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))

    @property
    def _is_occupied(self) -> bool:
        return self._leadership is None or self._series is not None

    @property
    def _may_wait(self) -> bool:
        """This node is elected and waits for the first commit of its epoch, or a transaction is being appended, which lets
        nothing come between its records: a moment, which is shorter than the callers' pause."""
        return self._quorum.is_leader and not self._stopped

    def _take_up_early(self) -> None:
        """What waited, in its order, as much as fits a turn of the loop; what came since waits behind it. Who waited in vain is
        told at once."""
        taken = 0
        while self._early and not (self._is_occupied and self._may_wait):
            if taken >= _TURN_BYTES and self._may_wait:
                self._plan_next_turn()
                return
            request, reply, is_first = self._early.popleft()
            taken += max(_REQUEST_BYTES, request.ByteSize())
            self._decide_now(request, reply, is_first=is_first)

    def _plan_next_turn(self) -> None:
        if self._next_turn is None or not self._next_turn.active:
            self._next_turn = self._timers.call_later_ms(0, self._take_up_early)

    def _not_controller(self) -> rpc.ControllerResponse:
        response = rpc.ControllerResponse(error_code=ErrorCode.NOT_CONTROLLER)
        leader_id = self._quorum.leader.leader_id
        if leader_id is not None:
            response.leader_id = leader_id
        return response

    def _carry_out(
        self, leadership: Leadership, request: rpc.ControllerRequest, reply: Reply, *, is_first: bool
    ) -> None:
        """Decides, appends, and answers when that is committed; a transaction is appended over several turns of the loop. The answer
        to what changed something is kept for another attempt of the same call.
        Raises KafkaError, NotLeaderError, ReplayError: then nothing was answered."""
        state, name = leadership.state, request.WhichOneof("body") or ""
        now_ms = self._timers.now_ms()
        if name == "broker_heartbeat" and is_first:  # its later pieces are our doing
            note_contact(state, request.broker_heartbeat, now_ms)
        if name in _ABOUT_MEMBERS:
            leadership.note_members()
        was_done = self._attempts.was_committed(request.request_id)
        known = done_already(name) if was_done else None
        decision = known or decide(state, name, request, self._quorum.next_offset, now_ms)
        if decision.upgrades_quorum:
            self._upgrade_quorum(request, reply)
            return
        if was_done and has_nothing_left(name, request):
            decision = replace(decision, records=[])
        cause = cause_of(name, request) if decision.is_last else in_words(cause_of(name, request))
        batches = leadership.into_batches(decision.records, atomic=decision.atomic, cause=cause)

        def conclude() -> None:
            offset = leadership.appended_offset
            note_outcome(state, name, request, decision.response, offset, now_ms)
            response = self._response(state, name, request, decision)
            if decision.records or not is_first:  # what comes last may change nothing of a large change
                self._attempts.keep(request.request_id, offset, response)
            self._waiting.answer_at(offset, reply, response)

        if decision.atomic and len(batches) > 1:
            self._begin_series(leadership, batches, cause, conclude, reply)
        else:
            leadership.append(batches, cause)
            if decision.is_last:
                conclude()
            else:
                go_on = partial(self._decide_on, request, reply, is_first=False)
                self._timers.call_later_ms(PIECE_PAUSE_MS, go_on)

    def _response(
        self, state: ControllerState, name: str, request: rpc.ControllerRequest, decision: Decision[Any]
    ) -> rpc.ControllerResponse:
        if self._attempts.was_committed(request.request_id):
            answer_again(state, name, request, decision.response)
        response = rpc.ControllerResponse()
        getattr(response, name).CopyFrom(decision.response)
        return response

    def _upgrade_quorum(self, request: rpc.ControllerRequest, reply: Reply) -> None:
        """kraft.version is the quorum's to write; what else was asked for is decided once that is committed."""
        validate_only = request.update_features.validate_only

        def told(response: VoterChangeResponse) -> None:
            if response.try_again or response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                reply(self._not_controller())
            elif response.error is not ErrorCode.NONE:
                reply(rpc.ControllerResponse(error_code=response.error, error_message=response.message))
            elif validate_only:
                reply(rpc.ControllerResponse(update_features=rpc.UpdateFeaturesResponse()))
            else:
                self.handle(request, reply)

        self._quorum.upgrade_kraft_version(told, validate_only=validate_only)

    # --- transactions -------------------------------------------------------------------------------------------------

    def _begin_series(
        self, leadership: Leadership, batches: list[Batch], cause: str, conclude: Callable[[], None], reply: Reply
    ) -> None:
        """What else is asked meanwhile waits for its end."""

        def append(batch: Batch) -> bool:
            try:
                leadership.append([batch], cause)
            except (NotLeaderError, ReplayError):
                self._take_up_early()
                return False
            return True

        def finish() -> None:
            self._series = None
            conclude()
            self._take_up_early()

        self._series = Series(batches, append, self._timers, finish, reply)

    def _fail_series(self, response: rpc.ControllerResponse) -> None:
        series, self._series = self._series, None
        if series is not None:
            series.fail(response)

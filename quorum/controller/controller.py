"""The active controller's shell: requests in, records to the log, responses out when their records are committed.

It holds no rule: what a request means is decided by ``decisions``, on a state that lives as long as this node leads. When the
leadership ends the state is dropped with everything that was not committed, and whoever waits is told NOT_CONTROLLER.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, Protocol

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.causes import cause_of
from ottla.quorum.controller.attempts import Attempts
from ottla.quorum.controller.batches import Batch, into_batches
from ottla.quorum.controller.decisions import cluster, features
from ottla.quorum.controller.decisions.decision import Decision, Record
from ottla.quorum.controller.decisions.elections import rebalance_leaders
from ottla.quorum.controller.decisions.record_levels import METADATA_VERSION, check_records
from ottla.quorum.controller.decisions.retries import answer_again
from ottla.quorum.controller.decisions.state import ControllerSettings, ControllerState
from ottla.quorum.controller.dispatch import decide
from ottla.quorum.controller.knocking import Knock
from ottla.quorum.controller.series import Series
from ottla.quorum.listener import CommittedBatch, LeaderAndEpoch, NotLeaderError
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.quorum.rpc.transport import Conversation, Reply
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.host import Host
from ottla.runtime.timers import LoopTimers, Timer

_logger = logging.getLogger(__name__)

_SESSION_CHECKS_PER_TIMEOUT = 8
_SUSPICION_MS = 500
"""A broken stream says that the process may be dead; a live broker is heard from again within this time."""
_KNOCK_PAUSE_MS = 2000
_KNOCKS_MAX = 100
_ELECTIONS_PER_REBALANCE_MAX = 1000
_EARLY_REQUESTS_MAX = 10_000
_SERIES_PAUSE_MS = 10
"""How often to ask whether a large transaction is through."""
_FENCING_STEP = 500
"""Partitions that a dead broker is taken out of in one go: about 15 ms."""


class QuorumLeader(Protocol):
    """The part of `QuorumNode` used here."""

    node_id: int

    @property
    def leader(self) -> LeaderAndEpoch: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def next_offset(self) -> int: ...

    def append(self, records: list[bytes], epoch: int, cause: str = "") -> int: ...

    def resign(self, epoch: int) -> None: ...


class _Waiting(NamedTuple):
    """A response that leaves when ``offset`` is committed."""

    offset: int
    reply: Reply
    response: rpc.ControllerResponse


class _ReplayError(Exception):
    """What was decided cannot be applied or appended; the state was given up for it."""


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
        self._knock = knock
        self._state: ControllerState | None = None
        self._epoch = -1
        self._early: list[tuple[rpc.ControllerRequest, Reply]] = []  # came when they could not be decided on yet
        self._series: Series | None = None
        self._stopped = False
        self._waiting: deque[_Waiting] = deque()
        self._appended_offset = -1  # of the last record that this leadership appended
        self._committed_offset = -1
        self._attempts = Attempts()
        self._checked_ms = 0
        self._active_timers: dict[str, Timer] = {}
        self._carriers: dict[int, tuple[Conversation, int]] = {}  # by broker: where its last heartbeat came, its epoch

    @property
    def is_active(self) -> bool:
        return self._state is not None

    # --- leadership ---------------------------------------------------------------------------------------------------

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """This node's own leadership is told after everything committed before it was applied to the image."""
        is_own = leader.leader_id == self._quorum.node_id
        if is_own and self._state is not None and self._epoch == leader.epoch:
            return
        self._deactivate()
        if is_own and self._quorum.is_leader and not self._stopped:
            self._activate(leader.epoch)
        self._take_up_early()

    def _take_up_early(self) -> None:
        early, self._early = self._early, []
        for request, reply in early:
            self.handle(request, reply)

    def _activate(self, epoch: int) -> None:
        self._epoch = epoch
        self._state = state = ControllerState(self._loader.image, self._settings, self._host.rng)
        self._appended_offset = self._committed_offset
        now_ms = self._timers.now_ms()
        for broker in state.image.brokers.values():
            if not broker.fenced:
                state.sessions.expect(broker.id, broker.epoch, now_ms)
        _logger.info("active controller in epoch %d, from offset %d on", epoch, self._quorum.next_offset)
        self._checked_ms = now_ms
        self._repeat("sessions", self._check_pause_ms, self._check_sessions)
        if self._knock is not None:
            self._active_timers["knocking"] = self._timers.call_later_ms(_SUSPICION_MS, self._knock_at_silent)
        if self._settings.rebalance_interval_ms:
            self._repeat("rebalance", self._settings.rebalance_interval_ms, self._rebalance)
        if self._loader.in_transaction:
            reason = pb.AbortTransaction(reason="the controller that began it is gone")
            self._append_own(
                state,
                [Record(abort_transaction=reason)],
                f"controller {self._quorum.node_id} takes over: a transaction was left unfinished",
            )
        if METADATA_VERSION not in state.image.features:
            self._append_own(state, features.bootstrap_records(), "bootstrap")

    def _deactivate(self) -> None:
        if self._state is None:
            return
        _logger.info("no longer the active controller (epoch %d)", self._epoch)
        self._state = None
        for timer in self._active_timers.values():
            timer.cancel()
        self._active_timers.clear()
        self._attempts.forget_answers()
        self._fail_series(self._not_controller())
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.reply(self._not_controller())

    def _fail_series(self, response: rpc.ControllerResponse) -> None:
        series, self._series = self._series, None
        if series is not None:
            series.fail(response)

    def leave(self) -> None:
        """Decides nothing more, and begins nothing; what was decided is answered when it is committed."""
        self._stopped = True
        for timer in self._active_timers.values():
            timer.cancel()
        self._active_timers.clear()
        self._fail_series(self._not_controller())
        self._take_up_early()

    def stop(self) -> None:
        """Answers nothing any more but NOT_CONTROLLER."""
        self._stopped = True
        self._deactivate()
        self._take_up_early()

    def on_snapshot(self) -> None:
        """The image was replaced. A leader never loads a snapshot."""
        assert self._state is None, "the active controller was handed a snapshot"

    # --- requests -----------------------------------------------------------------------------------------------------

    def open(self) -> Conversation:
        """The controller's side of one connection (for `PerConnection`): its end is evidence."""
        return _Visit(self)

    def handle(self, request: rpc.ControllerRequest, reply: Reply) -> None:
        """Answers when what was decided is committed: at once, later, or never after `stop`."""
        state = self._state
        if (state is None or self._series is not None) and self._may_wait:
            self._early.append((request, reply))
            return
        if state is None or self._series is not None or self._stopped or not self._quorum.is_leader:
            reply(self._not_controller())
            return
        earlier = self._attempts.answer(request.request_id)
        if earlier is not None:
            self._answer_at(earlier[0], reply, earlier[1])
            return
        try:
            self._carry_out(state, request, reply)
        except KafkaError as error:
            reply(rpc.ControllerResponse(error_code=error.code, error_message=error.message))
        except NotLeaderError:
            reply(self._not_controller())
        except _ReplayError:
            reply(rpc.ControllerResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
        except Exception:  # a decider's bug, before anything was changed
            _logger.exception("%s failed", request.WhichOneof("body"))
            reply(rpc.ControllerResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))

    @property
    def _may_wait(self) -> bool:
        """This node is elected and waits for the first commit of its epoch, or a transaction is being appended, which lets
        nothing come between its records: a moment, which is shorter than the callers' pause."""
        return self._quorum.is_leader and not self._stopped and len(self._early) < _EARLY_REQUESTS_MAX

    def _carry_out(self, state: ControllerState, request: rpc.ControllerRequest, reply: Reply) -> None:
        """Decides, appends, and answers when that is committed; a transaction is appended over several turns of the loop.
        Raises KafkaError, NotLeaderError, _ReplayError: then nothing was answered."""
        name = request.WhichOneof("body") or ""
        now_ms = self._timers.now_ms()
        if name == "broker_heartbeat":
            # Whatever comes of it and however late it is, it is a sign of life.
            _note_contact(state, request.broker_heartbeat, now_ms)
        decision = decide(state, name, request, self._quorum.next_offset, now_ms)
        cause = cause_of(name, request)
        batches = self._into_batches(state, decision.records, atomic=decision.atomic, cause=cause)

        def conclude() -> None:
            self._answer_at(self._appended_offset, reply, self._conclude(state, name, request, decision, now_ms))

        if decision.atomic and len(batches) > 1:
            self._begin_series(state, batches, cause, conclude, reply)
        else:
            self._append_batches(state, batches, cause)
            conclude()

    def _begin_series(
        self, state: ControllerState, batches: list[Batch], cause: str, conclude: Callable[[], None], reply: Reply
    ) -> None:
        """What else is asked meanwhile waits for its end."""

        def append(batch: Batch) -> bool:
            try:
                self._append_batches(state, [batch], cause)
            except (NotLeaderError, _ReplayError):
                self._take_up_early()
                return False
            return True

        def finish() -> None:
            self._series = None
            conclude()
            self._take_up_early()

        self._series = Series(batches, append, self._timers, finish, reply)

    def _conclude(
        self, state: ControllerState, name: str, request: rpc.ControllerRequest, decision: Decision[Any], now_ms: int
    ) -> rpc.ControllerResponse:
        """What follows from an append, and the response."""
        offset = self._appended_offset
        if name == "broker_heartbeat" and cluster.shutdown_begins(state, request.broker_heartbeat.broker_id):
            state.sessions.begin_shutdown(request.broker_heartbeat.broker_id, offset)
        elif name == "register_broker":
            # A broker that registers has read nothing yet; nobody waits for it, because it is fenced.
            state.sessions.contact(request.register_broker.broker_id, decision.response.broker_epoch, -1, now_ms)
        if self._attempts.was_committed(request.request_id):
            answer_again(state, name, request, decision.response)
        response = rpc.ControllerResponse()
        getattr(response, name).CopyFrom(decision.response)
        if decision.records:
            self._attempts.keep(request.request_id, offset, response)
        return response

    def _into_batches(self, state: ControllerState, records: list[Record], *, atomic: bool, cause: str) -> list[Batch]:
        """Raises KafkaError for what may not be written."""
        settings = self._settings
        check_records(records, features.metadata_version(state))
        return into_batches(
            records,
            atomic=atomic,
            records_max=settings.records_per_batch_max,
            bytes_max=settings.batch_bytes_max,
            name=cause,
        )

    def _append_batches(self, state: ControllerState, batches: Iterable[Batch], cause: str) -> None:
        """Applies and appends. Then ``_appended_offset`` must be committed before the outcome may be told: without batches
        too, for what was decided on may not be committed yet. Raises NotLeaderError or _ReplayError, and then this is not
        the active controller any more."""
        try:
            for batch in batches:
                # Applied first: what cannot be applied must never get into the log, where it would stop every node.
                for record in batch.records:
                    state.replay(record)
                self._appended_offset = self._quorum.append(batch.encoded, self._epoch, cause)
        except NotLeaderError:
            self._deactivate()
            raise
        except Exception as error:
            _logger.exception("cannot append what was decided: %s", cause)
            self._give_up()
            raise _ReplayError from error

    def _give_up(self) -> None:
        """The state is not to be trusted any more: it is dropped, and somebody else shall lead."""
        epoch = self._epoch
        self._fail_series(rpc.ControllerResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
        self._deactivate()
        self._quorum.resign(epoch)

    def _answer_at(self, offset: int, reply: Reply, response: rpc.ControllerResponse) -> None:
        if offset <= self._committed_offset:
            reply(response)
        else:
            self._waiting.append(_Waiting(offset, reply, response))

    def _not_controller(self) -> rpc.ControllerResponse:
        response = rpc.ControllerResponse(error_code=ErrorCode.NOT_CONTROLLER)
        leader_id = self._quorum.leader.leader_id
        if leader_id is not None:
            response.leader_id = leader_id
        return response

    def on_commit(self, batch: CommittedBatch) -> None:
        """The image has been brought to the batch's end already."""
        self._committed_offset = batch.last_offset
        self._attempts.committed(batch.cause)
        waiting = self._waiting
        while waiting and waiting[0].offset <= batch.last_offset:
            done = waiting.popleft()
            done.reply(done.response)

    # --- what happens without a request -------------------------------------------------------------------------------

    def _repeat(self, name: str, pause_ms: int, work: Any) -> None:
        def run() -> None:
            self._repeat(name, pause_ms, work)
            work()

        self._active_timers[name] = self._timers.call_later_ms(pause_ms, run)

    @property
    def _check_pause_ms(self) -> int:
        return max(1, self._settings.session_timeout_ms // _SESSION_CHECKS_PER_TIMEOUT)

    def _check_sessions(self) -> None:
        now_ms = self._timers.now_ms()
        late_ms = now_ms - self._checked_ms - self._check_pause_ms
        self._checked_ms = now_ms
        if self._state is not None and late_ms > self._check_pause_ms:
            # This process stood still; the heartbeats that came meanwhile still wait to be read.
            self._state.sessions.postpone(late_ms)
        self._fence_expired()

    def heard_over(self, visit: Conversation, beat: rpc.BrokerHeartbeatRequest) -> None:
        """A heartbeat comes over that connection. Brokers that do not exist are not remembered."""
        if self._state is not None and beat.broker_id in self._state.image.brokers:
            self._carriers[beat.broker_id] = (visit, beat.broker_epoch)

    def visit_ended(self, visit: Conversation) -> None:
        """A connection is gone."""
        for broker_id, (carrier, epoch) in list(self._carriers.items()):
            if carrier is visit:
                del self._carriers[broker_id]
                self._suspect(broker_id, epoch)

    def peer_broken(self, node_id: int) -> None:
        """A connection to a node broke or was refused. That says something of a broker which has not been
        heard from in this leadership: one that lives speaks up as soon as it learns of the new controller."""
        state = self._state
        broker = state.image.brokers.get(node_id) if state is not None else None
        if state is not None and broker is not None and not state.sessions.was_heard(node_id):
            self._suspect(node_id, broker.epoch)

    def _knock_at_silent(self) -> None:
        """A broker that lives speaks up as soon as it learns of a new controller. Whoever has not is not fenced for that
        (silence keeps its session); but where a connection is refused nobody lives."""
        state = self._state
        if state is None or self._knock is None:
            return
        unfenced = (each for each in state.image.brokers.values() if each.endpoints and not each.fenced)
        silent = [each for each in unfenced if not state.sessions.was_heard(each.id)]
        for broker in silent[:_KNOCKS_MAX]:
            self._knock(broker.host, broker.port, partial(self.peer_broken, broker.id))
        if silent:
            self._active_timers["knocking"] = self._timers.call_later_ms(_KNOCK_PAUSE_MS, self._knock_at_silent)

    def _suspect(self, broker_id: int, epoch: int) -> None:
        """Ends the broker's session unless it is heard from within the grace."""
        state = self._state
        if state is None or not state.sessions.is_alive(broker_id, epoch, self._timers.now_ms()):
            return
        name = f"suspicion of {broker_id}"
        if name in self._active_timers and self._active_timers[name].active:
            return
        heard_ms = state.sessions.last_contact(broker_id)

        def conclude() -> None:
            if state.sessions.last_contact(broker_id) == heard_ms:
                _logger.warning("broker %d: its connection ended and it does not come back", broker_id)
                state.sessions.gone(broker_id, epoch)
                self._fence_expired()

        self._active_timers[name] = self._timers.call_later_ms(_SUSPICION_MS, conclude)

    def _fence_expired(self) -> None:
        """Step by step, for a broker may have ten thousand partitions: the first of them have other leaders before the
        last are decided on, and what else the node has to do gets its turn in between."""
        state = self._state
        if self._series is not None:
            self._active_timers["fencing"] = self._timers.call_later_ms(_SERIES_PAUSE_MS, self._fence_expired)
            return
        if state is None or (step := cluster.fence_first_expired(state, self._timers.now_ms(), _FENCING_STEP)) is None:
            return
        if step.is_last:
            _logger.warning("fencing broker %d: %s", step.broker_id, step.reason)
        if self._append_own(state, step.records, f"broker {step.broker_id} is fenced: {step.reason}"):
            self._active_timers["fencing"] = self._timers.call_later_ms(1, self._fence_expired)

    def _rebalance(self) -> None:
        state = self._state
        if state is not None and self._series is None:
            records = rebalance_leaders(state, _ELECTIONS_PER_REBALANCE_MAX)
            self._append_own(state, records, "leaders return to the first replicas")

    def _append_own(self, state: ControllerState, records: list[Record], cause: str) -> bool:
        """False when that was not possible: another controller will do it."""
        try:
            batches = self._into_batches(state, records, atomic=False, cause=cause)
            self._append_batches(state, batches, cause)
        except (NotLeaderError, _ReplayError):
            return False
        except KafkaError as error:
            _logger.error("%s: %s", cause, error.message)
            return False
        return True


class _Visit:
    """One connection. Its end speaks against the brokers whose latest heartbeats came over it."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def handle(self, request: rpc.ControllerRequest, reply: Reply) -> None:
        if request.WhichOneof("body") == "broker_heartbeat":
            self._controller.heard_over(self, request.broker_heartbeat)
        self._controller.handle(request, reply)

    def ended(self) -> None:
        self._controller.visit_ended(self)


def _note_contact(state: ControllerState, beat: rpc.BrokerHeartbeatRequest, now_ms: int) -> None:
    broker = state.image.brokers.get(beat.broker_id)
    if broker is not None and broker.epoch == beat.broker_epoch:
        state.sessions.contact(beat.broker_id, beat.broker_epoch, beat.current_metadata_offset, now_ms)

"""Brokers register, keep their sessions, are fenced and unfenced, and leave (kraft.md 2.4)."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions.decision import Decision, R, Record
from ottla.quorum.controller.decisions.features import check_ranges
from ottla.quorum.controller.decisions.partitions import bring_back, lose_directories, take_out, write_off
from ottla.quorum.controller.decisions.sessions import NEVER
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.controller.decisions.sweep import CHANGES_MAX, Step
from ottla.quorum.metadata.views import (
    DIRECTORIES_NOWHERE,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    BrokerView,
)
from ottla.runtime.errors import ErrorCode, KafkaError

_Beat = rpc.BrokerHeartbeatResponse
_RESERVED_DIRECTORIES = (*DIRECTORIES_NOWHERE, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED)


# --- registration -----------------------------------------------------------------------------------------------------


def register_broker(
    state: ControllerState, request: rpc.RegisterBrokerRequest, next_offset: int, now_ms: int
) -> Decision[rpc.RegisterBrokerResponse]:
    """Registers an incarnation, fenced; the same incarnation again amends its registration and keeps its epoch.

    ``next_offset``: that of the first record of this decision. Raises KafkaError: INCONSISTENT_CLUSTER_ID,
    DUPLICATE_BROKER_REGISTRATION, INVALID_REGISTRATION, UNSUPPORTED_VERSION.
    """
    if request.cluster_id != state.settings.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"this is the cluster {state.settings.cluster_id}, the broker belongs to {request.cluster_id}",
        )
    known = state.image.brokers.get(request.broker_id)
    is_new = known is None or known.incarnation_id != request.incarnation_id
    try:
        if known is not None and is_new:
            _check_place_is_free(state, request, known, now_ms)
        _check_directories(state, request)
        check_ranges(state, request.features, f"broker {request.broker_id}")
    except KafkaError:
        state.stay(request.broker_id)  # some pieces may have been done: then the one before was heard from in between
        raise
    records: list[Record] = []
    if known is not None and is_new:
        records, is_last = (take_out if _stopped_in_order(request, known) else write_off)(state, known.id)
        if not is_last:
            state.going.add(known.id)
            return Decision(rpc.RegisterBrokerResponse(), records, atomic=False, is_last=False)
    # The registration comes last: a controller that fails in between leaves a broker that simply registers again.
    epoch = next_offset + len(records) if known is None or is_new else known.epoch
    records.append(_registration(request, epoch, None if is_new else known))
    return Decision(rpc.RegisterBrokerResponse(broker_epoch=epoch), records, atomic=False)


def _check_place_is_free(
    state: ControllerState, request: rpc.RegisterBrokerRequest, known: BrokerView, now_ms: int
) -> None:
    """Raises KafkaError (DUPLICATE_BROKER_REGISTRATION) while the incarnation before may live."""
    may_live = state.sessions.is_alive(known.id, known.epoch, now_ms)
    if may_live and not _holds_directories_of(request, known):
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another broker with the id {request.broker_id} is running: give each node an id of its own",
        )


def _stopped_in_order(request: rpc.RegisterBrokerRequest, known: BrokerView) -> bool:
    """Whether the incarnation before wrote down all that it had, and it is all still there."""
    return request.previous_broker_epoch == known.epoch and all(
        each in request.directories for each in known.directories
    )


def _holds_directories_of(request: rpc.RegisterBrokerRequest, known: BrokerView) -> bool:
    """Whether the new process has one of the old one's directories. It locked it before it came here, so the old one is
    dead: nobody needs to wait for its session to end (Kafka does)."""
    return any(each in known.directories for each in request.directories)


def _check_directories(state: ControllerState, request: rpc.RegisterBrokerRequest) -> None:
    directories = list(request.directories)
    if any(len(each) != 16 or each in _RESERVED_DIRECTORIES for each in directories):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "a directory id is reserved or not 16 bytes long")
    if len(dict.fromkeys(directories)) != len(directories):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "a directory id comes twice")
    for other in state.image.brokers.values():
        if other.id != request.broker_id and any(each in other.directories for each in directories):
            raise KafkaError(
                ErrorCode.INVALID_REGISTRATION, f"broker {other.id} has a directory with the same id: was it copied?"
            )


def _registration(request: rpc.RegisterBrokerRequest, epoch: int, known: BrokerView | None) -> Record:
    body = pb.RegisterBroker(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        endpoints=request.endpoints,
        features=request.features,
        fenced=known.fenced if known is not None else True,
        in_controlled_shutdown=known.in_controlled_shutdown if known is not None else False,
        directories=request.directories,
    )
    if request.HasField("rack"):
        body.rack = request.rack
    return Record(register_broker=body)


def unregister_broker(
    state: ControllerState, request: rpc.UnregisterBrokerRequest
) -> Decision[rpc.UnregisterBrokerResponse]:
    """Forgets a broker, or a controller that is none. Raises KafkaError: BROKER_ID_NOT_REGISTERED; INVALID_REQUEST for one that
    votes or follows the log."""
    broker = state.image.brokers.get(request.broker_id)
    if broker is None and request.broker_id in state.image.controllers:
        return Decision(rpc.UnregisterBrokerResponse(), [_without_controller(state, request.broker_id)])
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.broker_id} is not registered")
    gone = Record(unregister_broker=pb.UnregisterBroker(broker_id=broker.id, broker_epoch=broker.epoch))
    step = write_off(state, broker.id)
    if not step.is_last:
        state.going.add(broker.id)
    return _decision(rpc.UnregisterBrokerResponse(), step, gone)


def _decision(response: R, step: Step, conclusion: Record) -> Decision[R]:
    """``conclusion`` follows the last of the steps."""
    records = [*step.records, conclusion] if step.is_last else step.records
    return Decision(response, records, atomic=False, is_last=step.is_last)


def _without_controller(state: ControllerState, node_id: int) -> Record:
    if node_id in state.members.voters:
        what = f"controller {node_id} votes: remove it with ottla quorum remove-controller first"
        raise KafkaError(ErrorCode.INVALID_REQUEST, what)
    if node_id in state.members.present:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"controller {node_id} runs: stop it first")
    return Record(unregister_controller=pb.UnregisterController(controller_id=node_id))


# --- heartbeats -------------------------------------------------------------------------------------------------------


class BrokerLife(Enum):
    """Where a broker stands; the first three are what its registration says."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


@dataclass(frozen=True, slots=True)
class Situation:
    """What the next state of a broker depends on."""

    life: BrokerLife
    want_shut_down: bool
    want_fence: bool
    is_caught_up: bool
    leads_any: bool
    others_have_seen: bool  # every active broker has read the records that moved its leaderships away


def next_life(situation: Situation) -> BrokerLife:
    """The table of kraft.md 2.4."""
    match situation:
        case Situation(life=BrokerLife.FENCED, want_shut_down=True):
            return BrokerLife.SHUTDOWN_NOW
        case Situation(life=BrokerLife.FENCED, want_fence=False, is_caught_up=True):
            return BrokerLife.UNFENCED
        case Situation(life=BrokerLife.FENCED):
            return BrokerLife.FENCED
        case Situation(life=BrokerLife.UNFENCED, want_shut_down=True, want_fence=True):
            return BrokerLife.SHUTDOWN_NOW
        case Situation(life=BrokerLife.UNFENCED, want_fence=True):
            return BrokerLife.FENCED
        case Situation(life=BrokerLife.UNFENCED, want_shut_down=True, leads_any=True):
            return BrokerLife.CONTROLLED_SHUTDOWN
        case Situation(life=BrokerLife.UNFENCED, want_shut_down=True):
            return BrokerLife.SHUTDOWN_NOW
        case Situation(life=BrokerLife.CONTROLLED_SHUTDOWN, leads_any=False, others_have_seen=True):
            return BrokerLife.SHUTDOWN_NOW
    return situation.life


def broker_heartbeat(
    state: ControllerState, request: rpc.BrokerHeartbeatRequest
) -> Decision[rpc.BrokerHeartbeatResponse]:
    """What a heartbeat changes. The caller notes the contact before, whatever comes of it, and the shutdown offset after
    (`shutdown_begins`). Raises KafkaError (STALE_BROKER_EPOCH)."""
    broker = state.registered(request.broker_id, request.broker_epoch)
    is_caught_up = request.current_metadata_offset >= broker.epoch
    life = _life(broker)
    shutting_down = request.want_shut_down or life is BrokerLife.CONTROLLED_SHUTDOWN
    if shutting_down and not state.replicas.count():
        return Decision(rpc.BrokerHeartbeatResponse(), is_last=False)
    after = next_life(
        Situation(
            life,
            request.want_shut_down,
            request.want_fence,
            is_caught_up,
            leads_any=shutting_down and state.replicas.leads_any(broker.id),
            others_have_seen=shutting_down and _others_have_seen(state, broker.id),
        )
    )
    response = rpc.BrokerHeartbeatResponse(
        is_caught_up=is_caught_up,
        is_fenced=after in (BrokerLife.FENCED, BrokerLife.SHUTDOWN_NOW),
        should_shut_down=after is BrokerLife.SHUTDOWN_NOW,
    )
    lost = tuple(each for each in request.offline_directories if each in broker.directories)
    if after is life:
        return _directories_lost(state, broker, lost, response)
    if after is BrokerLife.UNFENCED and lost:
        # First what it lost: it would be elected in it. Then the request is decided on again.
        return replace(_directories_lost(state, broker, lost, response), is_last=False)
    # With any other transition they wait for the next heartbeat, which names them again.
    return _transition(state, broker, life, after, response)


def _life(broker: BrokerView) -> BrokerLife:
    if broker.fenced:
        return BrokerLife.FENCED
    return BrokerLife.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else BrokerLife.UNFENCED


def _others_have_seen(state: ControllerState, broker_id: int) -> bool:
    offset = state.sessions.shutdown_offset(broker_id)
    if offset == NEVER:
        return False
    others = (each.id for each in state.image.brokers.values() if each.is_active and each.id != broker_id)
    return all(state.sessions.metadata_offset(each) >= offset for each in others)


def shutdown_begins(state: ControllerState, broker_id: int) -> bool:
    """Whether the broker is in controlled shutdown, leads nothing any more, and has no shutdown offset (also after a
    change of controllers)."""
    broker = state.image.brokers.get(broker_id)
    if broker is None or _life(broker) is not BrokerLife.CONTROLLED_SHUTDOWN:
        return False
    return state.sessions.shutdown_offset(broker_id) == NEVER and not state.replicas.leads_any(broker_id)


def _transition(
    state: ControllerState, broker: BrokerView, before: BrokerLife, after: BrokerLife, response: _Beat
) -> Decision[_Beat]:
    """What comes after the first piece, once a broker is unfenced or shuts down, is a chore (`chores`): its heartbeat need not
    wait for that."""
    if after is BrokerLife.UNFENCED:
        begun = [_change(broker, fenced=False), *bring_back(state, broker.id).records]
        return Decision(response, begun, atomic=False)
    if after is BrokerLife.CONTROLLED_SHUTDOWN:
        begun = [_change(broker, in_controlled_shutdown=True), *take_out(state, broker.id).records]
        return Decision(response, begun, atomic=False)
    if before is BrokerLife.FENCED:
        return Decision(response, atomic=False)
    # Its fencing comes last: a controller that fails in between leaves a broker whose session expires again.
    return _decision(response, take_out(state, broker.id), _change(broker, fenced=True))


def _change(broker: BrokerView, fenced: bool | None = None, in_controlled_shutdown: bool | None = None) -> Record:
    body = pb.BrokerRegistrationChange(
        broker_id=broker.id, broker_epoch=broker.epoch, fenced=fenced, in_controlled_shutdown=in_controlled_shutdown
    )
    return Record(broker_registration_change=body)


class Fencing(NamedTuple):
    """A step on the way of a broker out of service; after the last one it is fenced."""

    broker_id: int
    reason: str
    records: list[Record]
    is_last: bool


def fence_first_expired(state: ControllerState, now_ms: int, changes_max: int = CHANGES_MAX) -> Fencing | None:
    """The next step for the first broker whose session is over; None: there is none, but `chores` may have to go on with one
    that was heard from before its last step."""
    for broker in state.image.brokers.values():
        if broker.fenced:
            continue
        if state.sessions.is_alive(broker.id, broker.epoch, now_ms):
            state.spare(broker)
        else:
            records, is_last = take_out(state, broker.id, changes_max)
            conclusion = [_change(broker, fenced=True)] if is_last else []
            return Fencing(broker.id, state.sessions.why_over(broker.id), records + conclusion, is_last)
    return None


def _directories_lost(
    state: ControllerState, broker: BrokerView, lost: tuple[bytes, ...], response: _Beat
) -> Decision[_Beat]:
    if not lost:
        return Decision(response, atomic=False)
    body = pb.BrokerRegistrationChange(broker_id=broker.id, broker_epoch=broker.epoch)
    body.directories.SetInParent()
    body.directories.ids.extend(each for each in broker.directories if each not in lost)
    step = lose_directories(state, broker.id, lost)
    if not step.is_last:
        state.failing[broker.id] = lost
    return _decision(response, step, Record(broker_registration_change=body))

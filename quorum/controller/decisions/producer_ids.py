"""Blocks of producer ids: each is handed out once, for ever."""

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions.decision import Decision, Record
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.runtime.errors import ErrorCode, KafkaError

BLOCK_SIZE = 1000
_LAST_ID = 2**63 - 1


def allocate_producer_ids(
    state: ControllerState, request: rpc.AllocateProducerIdsRequest
) -> Decision[rpc.AllocateProducerIdsResponse]:
    """The next block, for a registered broker. Raises KafkaError (STALE_BROKER_EPOCH)."""
    broker = state.registered(request.broker_id, request.broker_epoch)
    first = state.image.next_producer_id
    if first > _LAST_ID - BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "there are no producer ids left")
    body = pb.ProducerIds(broker_id=broker.id, broker_epoch=broker.epoch, next_producer_id=first + BLOCK_SIZE)
    response = rpc.AllocateProducerIdsResponse(producer_id_start=first, producer_id_count=BLOCK_SIZE)
    return Decision(response, [Record(producer_ids=body)])

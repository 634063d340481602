"""TxnOffsetCommit (28): a transaction commits how far a group has read. What is decided stands in `broker/coordinator`.

The group's partition of `__consumer_offsets` has to be part of the transaction, as any that it writes to: its coordinator is asked, or
adds it for clients that add nothing themselves (version 5).
"""

from functools import partial

from ottla.broker.context import BrokerContext
from ottla.broker.coordinator.decisions.effects import ProducerBatch
from ottla.broker.coordinator.decisions.groups.transactional_commits import refused_commit
from ottla.broker.handlers.common import route
from ottla.broker.handlers.groups import Asking, valid
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.replication.decisions.verification import committer_of, offset_commit_error
from ottla.broker.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from ottla.runtime.errors import ErrorCode, KafkaError


def routes(broker: BrokerContext) -> list[Route]:
    return [route("TxnOffsetCommit", TxnOffsetCommitRequest, partial(_commit, broker))]


def _commit(broker: BrokerContext, request: RequestContext, body: TxnOffsetCommitRequest) -> None:
    asking, client = Asking(request), committer_of(request.version)

    def vouched(guard: int, error: ErrorCode) -> None:
        if error:
            asking.answer(refused_commit(body, offset_commit_error(error, client)))
            return
        try:
            shard = broker.groups.shard_of(body.group_id)  # it may be another one by now
        except KafkaError as failure:
            asking.answer(refused_commit(body, failure.code))
        else:
            shard.transactional.commit(asking, body, guard)

    try:
        partition = broker.groups.partition_of(valid(body.group_id))
    except KafkaError as failure:
        asking.answer(refused_commit(body, failure.code))
        return
    batch = ProducerBatch(body.producer_id, body.producer_epoch)
    broker.verifications.begin(partition, batch, body.transactional_id, client, vouched)

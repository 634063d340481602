"""What `ottla transactions` asks: of each broker, of a transactional id's coordinator, of a partition's leader. All raise CommandError."""

import time
from collections.abc import Mapping, Sequence

from ottla.broker.wire.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from ottla.broker.wire.messages.describe_producers_response import DescribeProducersResponse, ProducerState
from ottla.broker.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from ottla.broker.wire.messages.describe_transactions_response import DescribeTransactionsResponse, TransactionState
from ottla.broker.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.broker.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.broker.wire.messages.list_transactions_request import ListTransactionsRequest
from ottla.broker.wire.messages.list_transactions_response import ListTransactionsResponse
from ottla.broker.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.broker.wire.messages.write_txn_markers_response import WriteTxnMarkersResponse
from ottla.cli.client import Client
from ottla.cli.coordinators import PATIENCE_S, PAUSE_S, TRANSACTION, ask_coordinator, find_coordinator
from ottla.cli.durations import milliseconds
from ottla.cli.failures import CommandError, refuse
from ottla.cli.group_requests import ask_brokers
from ottla.cli.leader_requests import Place, Told, ask_leaders
from ottla.cli.output import Row
from ottla.runtime.errors import ErrorCode

OPEN = "Ongoing"
ENDING = ("PrepareCommit", "PrepareAbort")


def transaction_rows(
    bootstrap: str, states: Sequence[str], longer_than: str | None, id_pattern: str | None
) -> list[Row]:
    """A row a transactional id, of all brokers."""
    duration_ms = milliseconds(longer_than, "--longer-than") if longer_than is not None else -1
    if duration_ms >= 0 and not states:
        states = (OPEN, *ENDING)  # one that is not open has begun at no time, which seems long ago
    request = ListTransactionsRequest(list(states), duration_filter=duration_ms, transactional_id_pattern=id_pattern)

    def ask(client: Client) -> ListTransactionsResponse:
        answer = client.call(request, ListTransactionsResponse)
        refuse(answer.error_code, "transactions")
        if answer.unknown_state_filters:
            raise CommandError(f"the broker knows no state {answer.unknown_state_filters[0]!r}")
        return answer

    rows = [
        {
            "transactional id": each.transactional_id,
            "state": each.transaction_state,
            "producer id": each.producer_id,
            "coordinator": node,
        }
        for node, answer in ask_brokers(bootstrap, ask).items()
        for each in answer.transaction_states
    ]
    return sorted(rows, key=lambda row: str(row["transactional id"]))


def describe(bootstrap: str, transactional_id: str) -> Row:
    node = find_coordinator(bootstrap, transactional_id, TRANSACTION).node_id
    found = ask_coordinator(
        bootstrap, transactional_id, lambda client: _described(client, transactional_id), TRANSACTION
    )
    is_open = found.transaction_start_time_ms > 0 and found.transaction_state in (OPEN, *ENDING)
    return {
        "transactional id": transactional_id,
        "state": found.transaction_state,
        "open seconds": max(time.time() - found.transaction_start_time_ms / 1000, 0) if is_open else None,
        "started ms": found.transaction_start_time_ms if is_open else None,
        "timeout ms": found.transaction_timeout_ms,
        "producer id": found.producer_id,
        "epoch": found.producer_epoch,
        "coordinator": node,
        "partitions": _partitions(found),
    }


def _partitions(found: TransactionState) -> list[str]:
    return [f"{topic.topic}-{each}" for topic in found.topics for each in topic.partitions]


def _described(client: Client, transactional_id: str) -> TransactionState:
    request = DescribeTransactionsRequest([transactional_id])
    (found,) = client.call(request, DescribeTransactionsResponse).transaction_states
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise CommandError(f"there is no transactional id {transactional_id!r}: ottla transactions list shows them")
    refuse(found.error_code, transactional_id)
    return found


# --- the end of an open one -------------------------------------------------------------------------------------------


def abort(bootstrap: str, transactional_id: str, *, dry_run: bool) -> Row:
    """By a new epoch of its producer, as a producer that starts with the same id begins: the coordinator aborts what is open."""

    def ask(client: Client) -> TransactionState:
        found = _described(client, transactional_id)
        if found.transaction_state == OPEN and not dry_run:
            _fence(client, found)
        return found

    found = ask_coordinator(bootstrap, transactional_id, ask, TRANSACTION)
    row = {"transactional id": transactional_id, "producer id": found.producer_id, "epoch": found.producer_epoch}
    if found.transaction_state in ENDING:
        return {**row, "done": f"nothing: it is {found.transaction_state}, its markers are being written"}
    if found.transaction_state != OPEN:
        return {**row, "done": f"nothing: it is {found.transaction_state}"}
    partitions = _partitions(found)
    return {**row, "done": "would be aborted" if dry_run else "aborted", "partitions": partitions}


def _fence(client: Client, found: TransactionState) -> None:
    """Asked again until the abort is complete."""
    request = InitProducerIdRequest(found.transactional_id, max(found.transaction_timeout_ms, 1))
    until = time.monotonic() + PATIENCE_S
    while True:
        answer = client.call(request, InitProducerIdResponse)
        if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS or time.monotonic() > until:
            break
        time.sleep(PAUSE_S)
    refuse(answer.error_code, found.transactional_id)


def abort_hanging(bootstrap: str, topic: str, partition: int, start_offset: int, *, dry_run: bool) -> Row:
    """A marker for the producer whose transaction begins there, written by the partition's leader."""
    place = Place(topic, partition)

    def ask(client: Client, _places: list[Place], _ids: Mapping[str, bytes]) -> Told[ProducerState]:
        found = _producer_at(client, place, start_offset)
        if not dry_run:
            _write_marker(client, place, found)
        return Told({place: found}, {})

    told = ask_leaders(bootstrap, [place], ask)
    found = told.require()[place]
    return {
        "topic": topic,
        "partition": partition,
        "start offset": start_offset,
        "producer id": found.producer_id,
        "epoch": found.producer_epoch,
        "done": "would be aborted" if dry_run else "aborted",
    }


def _producer_at(client: Client, place: Place, start_offset: int) -> ProducerState:
    request = DescribeProducersRequest([TopicRequest(place.topic, [place.partition])])
    (topic,) = client.call(request, DescribeProducersResponse).topics
    (partition,) = topic.partitions
    refuse(partition.error_code, f"{place.topic}-{place.partition}", partition.error_message)
    for each in partition.active_producers:
        if each.current_txn_start_offset == start_offset:
            return each
    raise CommandError(
        f"no transaction begins at {start_offset}: ottla producers describe {place.topic} shows those that do"
    )


def _write_marker(client: Client, place: Place, found: ProducerState) -> None:
    marker = WritableTxnMarker(
        found.producer_id,
        found.producer_epoch,
        False,
        [WritableTxnMarkerTopic(place.topic, [place.partition])],
        max(found.coordinator_epoch, 0),
    )
    (written,) = client.call(WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse).markers
    for topic in written.topics:
        for each in topic.partitions:
            refuse(each.error_code, f"{topic.name}-{each.partition_index}")

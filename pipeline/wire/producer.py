"""Rows of Arrow to topics: idempotent, and in transactions if it has an id. It blocks, and holds no more than it may.

Each broker has one request at a time, of at most one batch a partition; while it works on that, the next batches are encoded.
"""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.wire.cluster import Cluster
from ottla.pipeline.wire.connection import Connection
from ottla.pipeline.wire.errors import BrokerError, DeadlineError, PartitionError
from ottla.pipeline.wire.metadata import Partition
from ottla.pipeline.wire.partitioner import Ints, Turns, murmur2_partitions
from ottla.pipeline.wire.producer_errors import RefusedError
from ottla.pipeline.wire.producer_lanes import Columns, Identity, Lane
from ottla.pipeline.wire.producer_settings import NAMES, ProducerSettings, producer_settings
from ottla.pipeline.wire.producer_transaction import Offset, Transaction
from ottla.pipeline.wire.retries import backoff_s, is_retriable, moves_leader
from ottla.pipeline.wire.settings import client_settings
from ottla.runtime.errors import ErrorCode

PRODUCE_VERSION_MAX = 11
"""The last one that names topics, and in which clients say themselves what belongs to a transaction."""
METADATA_MAX_AGE_S = 300
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_UNSURE = (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


class Producer:
    """For one thread. ``cluster`` stays its owner's; its connections for records are the producer's own."""

    def __init__(
        self, cluster: Cluster, settings: ProducerSettings, transactional_id: str | None = None, turn: int = 0
    ) -> None:
        self._cluster, self._settings = cluster, settings
        self.transaction = Transaction(cluster, transactional_id, settings) if transactional_id else None
        self._identity: Identity | None = None
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._connections: dict[int, Connection] = {}
        self._sent: dict[int, list[Lane]] = {}
        self._held: list[tuple[str | None, pa.RecordBatch]] = []
        self._held_bytes = 0
        self._turns = Turns(turn, settings.batch_bytes)
        self._looked_s: dict[str, float] = {}
        self.rows = 0

    @classmethod
    def of(cls, texts: Mapping[str, str], transactional_id: str | None = None) -> Self:
        """With a cluster of its own, from settings without ``kafka.`` in front."""
        return cls(Cluster(client_settings(texts, NAMES)), producer_settings(texts), transactional_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self.transaction is None:
                self.flush()
        finally:
            self.close()

    def close(self) -> None:
        """What is not flushed may be in the topic or not. The cluster can still be used."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._held.clear()
        self._lanes.clear()
        self._sent.clear()

    # -- transactions ---------------------------------------------------------------------------------------------

    def claim(self) -> None:
        """Be the producer of the transactional id, or get an id of one's own. Rows ask for it by themselves."""
        if self.transaction is not None:
            self._identity = self.transaction.claim()
        else:
            self._identity = self._nobody()
        self._lanes.clear()

    def _nobody(self) -> Identity:
        """An id without a name. A broker whose block of them is used up has the next one in a moment, when its controller is there."""
        body = {"transactional_id": None, "transaction_timeout_ms": 0}
        code = ErrorCode.NONE
        for _ in self._cluster.attempts():
            answer = self._cluster.ask_any("InitProducerId", body, 4)
            code = ErrorCode(answer.error_code)
            if not code:
                return Identity(answer.producer_id, answer.producer_epoch, False)
            if not is_retriable(code):
                raise RefusedError(f"InitProducerId: {code.name}")
        raise DeadlineError("InitProducerId", self._cluster.settings.api_timeout_s, code.name)

    def begin(self) -> None:
        assert self.transaction is not None, "a producer without a transactional id"
        if self._identity is None:
            self.claim()
        self.transaction.begin()

    def commit_offset(self, offset: Offset) -> None:
        """With everything that was sent; both count when the transaction is committed."""
        assert self.transaction is not None, "a producer without a transactional id"
        self.flush()
        self.transaction.commit_offset(offset)

    def commit(self, offset: Offset | None = None) -> None:
        assert self.transaction is not None, "a producer without a transactional id"
        self.flush()
        if offset is not None:
            self.transaction.commit_offset(offset)
        self.transaction.end(committed=True)

    def abort(self) -> None:
        """What is on its way comes too late, or is aborted with the rest; the next transaction has another epoch."""
        assert self.transaction is not None, "a producer without a transactional id"
        if self.transaction.is_open:
            self.transaction.end(committed=False)
        self.close()
        self._identity = None

    # -- rows -----------------------------------------------------------------------------------------------------

    def send(self, rows: pa.RecordBatch | pa.Table, topic: str | None = None) -> None:
        """Columns value, key, headers, timestamp, partition, topic, as far as they are there. Sends when enough is held."""
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else (rows,):
            if batch.num_rows:
                self._held.append((topic, batch))
                self._held_bytes += batch.nbytes
                self.rows += batch.num_rows
            if self._held_bytes >= self._settings.buffer_bytes // 4:
                self._divide()
                self._work(to_the_end=False)

    def flush(self) -> None:
        """All in-sync replicas have everything."""
        self._divide()
        self._work(to_the_end=True)

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """To which rows went."""
        return sorted(self._lanes)

    def _divide(self) -> None:
        """Rows to their lanes, in their order."""
        held, self._held, self._held_bytes = self._held, [], 0
        if held and self._identity is None:
            self.claim()
        while held:
            topic, schema = held[0][0], held[0][1].schema
            same = [batch for told, batch in held if told == topic and batch.schema.equals(schema)]
            held = [each for each in held if each[0] != topic or not each[1].schema.equals(schema)]
            table = pa.Table.from_batches(same).combine_chunks()
            for name, rows in _by_topic(table, topic):
                self._to_lanes(name, rows)

    def _to_lanes(self, topic: str, rows: pa.Table) -> None:
        columns = _columns(rows)
        chosen = self._choose(topic, rows)
        first = int(chosen[0])
        if (chosen == first).all():
            self._lane(topic, first).waiting.append(columns)
            return
        order = np.argsort(chosen, kind="stable")
        taken = pa.array(order)
        columns = Columns(*(column if column is None else column.take(taken) for column in columns))
        found, starts = np.unique(chosen[order], return_index=True)
        ends = [*starts[1:].tolist(), len(order)]
        for partition, start, end in zip(found.tolist(), starts.tolist(), ends, strict=True):
            self._lane(topic, partition).waiting.append(columns.part(start, end - start))

    def _choose(self, topic: str, rows: pa.Table) -> Ints:
        """The column of partitions wins, then the key, then whose turn it is."""
        known = self._fresh(topic)
        names = rows.schema.names
        chosen = np.full(rows.num_rows, -1, np.int64)
        if "partition" in names and rows["partition"].null_count < rows.num_rows:
            chosen = pc.fill_null(rows["partition"].cast(pa.int64()), -1).to_numpy()
            if unknown := set(np.unique(chosen).tolist()) - known.keys() - {-1}:
                raise RefusedError(f"{topic}: partition {min(unknown)} is asked for, and there are {len(known)}")
        if (chosen >= 0).all():
            return chosen
        chosen = chosen.copy()
        if "key" in names and rows["key"].null_count < rows.num_rows:
            by_key = (chosen < 0) & pc.is_valid(rows["key"]).to_numpy()
            chosen[by_key] = murmur2_partitions(rows["key"], len(known))[by_key]
        if left := int((chosen < 0).sum()):
            led = [each.index for each in known.values() if each.leader >= 0] or sorted(known)
            chosen[chosen < 0] = self._turns.choose(left, rows.nbytes / rows.num_rows, led)
        return chosen

    def _fresh(self, topic: str) -> dict[int, Partition]:
        """A topic may have got partitions since somebody in this process asked last."""
        now_s = time.monotonic()
        if now_s - self._looked_s.get(topic, -METADATA_MAX_AGE_S) >= METADATA_MAX_AGE_S:
            self._cluster.forget(topic)
            self._looked_s[topic] = now_s
        return self._cluster.topic(topic).partitions

    def _lane(self, topic: str, partition: int) -> Lane:
        found = self._lanes.get((topic, partition))
        if found is None:
            assert self._identity is not None
            found = self._lanes[topic, partition] = Lane(topic, partition, self._settings, self._identity)
        return found

    # -- brokers --------------------------------------------------------------------------------------------------

    def _work(self, to_the_end: bool) -> None:
        """Until all batches are on their way, or (to the end) there."""
        while True:
            waiting = [lane for lane in self._lanes.values() if lane.on_its_way is None and lane.prepare()]
            for node, lanes in self._by_leader(waiting).items():
                if node not in self._sent:
                    self._send(node, lanes)
            for lane in list(self._lanes.values()):
                lane.prepare()  # while brokers work
            if not self._sent and not waiting:
                return
            if not to_the_end and not any(lane.ready or lane.waiting for lane in self._lanes.values()):
                return
            self._receive(next(iter(self._sent))) if self._sent else self._pause(waiting)

    def _by_leader(self, lanes: list[Lane]) -> dict[int, list[Lane]]:
        led: dict[int, list[Lane]] = {}
        for lane in lanes:
            try:
                led.setdefault(self._cluster.leader(lane.topic, lane.partition), []).append(lane)
            except PartitionError as error:
                lane.give_up_at(time.monotonic(), str(error))
        for lane in led.pop(-1, ()):
            self._cluster.forget(lane.topic)
            lane.give_up_at(time.monotonic(), "it has no leader")
        return led

    def _send(self, node: int, lanes: list[Lane]) -> None:
        """As many batches as fit; those who found no room come first the next time."""
        lanes = sorted(lanes, key=lambda lane: lane.tried_since_s or float("inf"))
        chosen: list[Lane] = []
        size = 0
        for lane in lanes:
            size += len(lane.ready[0].data)
            if chosen and size > self._settings.request_bytes_max:
                lane.tried_since_s = lane.tried_since_s or time.monotonic()
                break
            chosen.append(lane)
        if self.transaction is not None:
            self.transaction.add((lane.topic, lane.partition) for lane in chosen)
        now_s = time.monotonic()
        self._sent[node] = chosen
        body = self._body({lane: lane.take(now_s) for lane in chosen})
        try:
            connection = self._connection(node)
            connection.send("Produce", body, connection.version("Produce", PRODUCE_VERSION_MAX))
        except BrokerError as error:
            self._back(node, str(error))

    def _receive(self, node: int) -> None:
        try:
            answer = self._connections[node].receive()
        except BrokerError as error:
            self._back(node, str(error))
            return
        told = {(topic.name, part.index): part for topic in answer.responses for part in topic.partition_responses}
        again = False
        for lane in self._sent.pop(node):
            part = told.get((lane.topic, lane.partition))
            again |= self._take(lane, ErrorCode.NETWORK_EXCEPTION if part is None else ErrorCode(part.error_code), part)
        if again:
            self._pause([])

    def _take(self, lane: Lane, code: ErrorCode, part: Any) -> bool:
        """What became of the lane's batch; whether it has to be tried again."""
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            lane.arrived()
            return False
        if code in _TOO_LARGE:
            lane.halve()
            return False
        if is_retriable(code):
            if moves_leader(code):
                self._cluster.forget(lane.topic)
            lane.again(time.monotonic(), code.name)
            return True
        raise self._refused(lane, code, getattr(part, "error_message", None))

    def _refused(self, lane: Lane, code: ErrorCode, said: str | None) -> Exception:
        why = f": {said}" if said else ""
        if self.transaction is not None and code not in _UNSURE:
            return self.transaction.refused(f"Produce to {lane.name}{why}", code)
        return RefusedError(f"{lane.name} takes no records: {code.name}{why}")

    def _back(self, node: int, why: str) -> None:
        """Nobody knows whether they arrived; with the same sequences they do no harm."""
        for lane in self._sent.pop(node):
            self._cluster.forget(lane.topic)
            lane.again(time.monotonic(), why)
        self._pause([])

    def _pause(self, waiting: list[Lane]) -> None:
        attempt = max((lane.attempts for lane in self._lanes.values()), default=1)
        for lane in waiting:
            lane.attempts += 1
        settings = self._cluster.settings
        time.sleep(backoff_s(max(attempt - 1, 0), settings.retry_backoff_ms, settings.retry_backoff_max_ms))

    def _connection(self, node: int) -> Connection:
        found = self._connections.get(node)
        if found is None or not found.is_open:
            found = self._connections[node] = self._cluster.dedicated(node)
        return found

    def _body(self, batches: Mapping[Lane, bytes]) -> dict[str, Any]:
        topics: dict[str, list[dict[str, Any]]] = {}
        for lane, data in batches.items():
            topics.setdefault(lane.topic, []).append({"index": lane.partition, "records": data})
        return {
            "transactional_id": None if self.transaction is None else self.transaction.name,
            "acks": -1,
            "timeout_ms": self._cluster.settings.request_timeout_ms,
            "topic_data": [{"name": topic, "partition_data": parts} for topic, parts in topics.items()],
        }


def _by_topic(rows: pa.Table, topic: str | None) -> list[tuple[str, pa.Table]]:
    if topic is not None:
        return [(topic, rows)]
    if "topic" not in rows.schema.names:
        raise RefusedError("Say which topic: option topic, or a column of that name")
    names = rows["topic"].unique().to_pylist()
    if None in names:
        raise RefusedError("A row's topic is null, and there is no option topic")
    if len(names) == 1:
        return [(names[0], rows)]
    return [(name, rows.filter(pc.equal(rows["topic"], name)).combine_chunks()) for name in names]


def _columns(rows: pa.Table) -> Columns:
    """Of one chunk each."""
    keys, values, headers, times = (
        rows[name].combine_chunks() if name in rows.schema.names else None
        for name in ("key", "value", "headers", "timestamp")
    )
    now_ms = int(time.time() * 1000)
    if times is None:
        times = pa.repeat(pa.scalar(now_ms, pa.int64()), rows.num_rows)
    elif times.null_count:
        times = pc.fill_null(times, pa.scalar(now_ms, pa.timestamp("ms", "UTC")).cast(times.type))
    return Columns(keys, values, headers, times)

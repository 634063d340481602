"""The driver's and the tasks' parts of the source, against a real node and without Spark."""

import json
import tracemalloc
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from ottla.pipeline.source.batch import batch_plan
from ottla.pipeline.source.columns import layout_of
from ottla.pipeline.source.errors import LossError, OffsetError
from ottla.pipeline.source.filters import Wanted
from ottla.pipeline.source.formats import decoder_of
from ottla.pipeline.source.options import SourceOptions, parse_options
from ottla.pipeline.source.planning import Task
from ottla.pipeline.source.stream import Stream
from ottla.pipeline.source.task import TaskReader
from ottla.pipeline.wire.cache import close_all
from ottla.pipeline.wire.cluster import Cluster as Client
from ottla.pipeline.wire.errors import DataLossError
from ottla.testing.cluster import Cluster
from tests.integration.pipeline.conftest import MakeTopic

_clients: list[Client] = []


class Source:
    """A query of one topic."""

    def __init__(self, single: Cluster, topic: str, *, streaming: bool = True, **texts: str) -> None:
        given = {"kafka.bootstrap.servers": single.bootstrap_servers, "subscribe": topic, **texts}
        given = {name.replace("__", "."): text for name, text in given.items()}
        self.options = parse_options(given, streaming=streaming)
        self.client = Client(self.options.client)
        _clients.append(self.client)
        self.stream = Stream(self.client, self.options)

    def rows(self, tasks: Iterable[Task]) -> list[dict[str, Any]]:
        return [row for task in tasks for batch in reader(self.options).read(task) for row in batch.to_pylist()]

    def values(self, tasks: Iterable[Task]) -> list[int]:
        return [int(row["value"]) for row in self.rows(tasks)]

    def batch(self, wanted: Wanted | None = None) -> list[Task]:
        return batch_plan(self.client, self.options, wanted)


def reader(options: SourceOptions) -> TaskReader:
    layout, schema = layout_of(options, decoder_of(options.format) if options.format else None)
    return TaskReader(options.client, layout, schema, options.fails_on_loss)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Queries leave their connections to the end of their process."""
    yield
    for client in _clients:
        client.close()
    _clients.clear()
    close_all()


@pytest.fixture
def admin(single: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": single.bootstrap_servers})


@pytest.fixture
def send(single: Cluster) -> Any:
    producer = Producer({"bootstrap.servers": single.bootstrap_servers, "topic.metadata.refresh.interval.ms": 100})

    def produce(topic: str, values: Iterable[object], partition: int = 0) -> None:
        for value in values:
            producer.produce(topic, str(value), partition=partition, timestamp=1_000_000)
        assert producer.flush(30) == 0

    return produce


def done(results: dict[Any, Any]) -> None:
    for each in results.values():
        each.result(60)


def test_a_stream_reads_on_from_where_its_last_batch_ended(single: Cluster, make_topic: MakeTopic, send: Any) -> None:
    topic = make_topic(2)
    send(topic, range(10))
    source = Source(single, topic, startingOffsets="earliest", maxOffsetsPerTrigger="6")
    start = source.stream.initial()
    first = source.stream.latest(start)
    send(topic, range(10, 13), 1)
    second = source.stream.latest(first)

    assert source.values(source.stream.tasks(start, first)) == list(range(6))
    assert sorted(source.values(source.stream.tasks(first, second))) == [6, 7, 8, 9, 10, 11] or second[topic] == {
        "0": 9,
        "1": 3,
    }
    assert source.stream.newest()[topic] == {"0": 10, "1": 3}  # type: ignore[index]


def test_nothing_new_is_the_same_offset_letter_for_letter(single: Cluster, make_topic: MakeTopic, send: Any) -> None:
    topic = make_topic(3)
    send(topic, range(3))
    source = Source(single, topic)
    start = source.stream.initial()

    assert json.dumps(source.stream.latest(json.loads(json.dumps(start)))) == json.dumps(start)
    theirs = {topic: start[topic]}  # a checkpoint of Spark's connector
    assert source.stream.latest(theirs) == theirs


def test_what_comes_while_a_run_of_what_is_there_goes_on_is_not_of_it(
    single: Cluster, make_topic: MakeTopic, send: Any
) -> None:
    topic = make_topic()
    send(topic, range(5))
    source = Source(single, topic, startingOffsets="earliest", minOffsetsPerTrigger="100")
    start = source.stream.initial()
    source.stream.prepare_available_now()
    send(topic, range(5))

    end = source.stream.latest(start)
    assert end[topic] == {"0": 5}
    assert source.stream.latest(end) == end


def test_too_few_are_waited_for(single: Cluster, make_topic: MakeTopic, send: Any) -> None:
    topic = make_topic()
    source = Source(single, topic, minOffsetsPerTrigger="4", maxTriggerDelay="1h")
    start = source.stream.initial()
    send(topic, range(3))
    assert source.stream.latest(start) == start
    send(topic, range(1))
    assert source.stream.latest(start)[topic] == {"0": 4}


def test_a_trigger_of_some_bytes_reads_about_so_many(single: Cluster, make_topic: MakeTopic, send: Any) -> None:
    topic = make_topic(1)
    send(topic, ["x" * 1000] * 400)
    source = Source(single, topic, startingOffsets="earliest", maxBytesPerTrigger="100000")
    start = source.stream.initial()

    assert 80 <= source.stream.latest(start)[topic]["0"] <= 100
    assert source.stream.latest(start, unlimited=True)[topic]["0"] == 400


def test_a_stream_with_an_end_is_offered_nothing_beyond(single: Cluster, make_topic: MakeTopic, send: Any) -> None:
    topic = make_topic()
    send(topic, range(10))
    source = Source(single, topic, startingOffsets="earliest", endingOffsets=json.dumps({topic: {"0": 7}}))

    end = source.stream.latest(source.stream.initial())
    assert end[topic] == {"0": 7}
    assert source.stream.latest(end) == end


@pytest.mark.parametrize("available_now", [True, False])
@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_stream_that_has_passed_its_end_stays_where_it_is(
    single: Cluster, make_topic: MakeTopic, send: Any, fails: str, available_now: bool
) -> None:
    topic = make_topic()
    send(topic, range(10))
    source = Source(single, topic, endingOffsets=json.dumps({topic: {"0": 7}}), failOnDataLoss=fails)
    if available_now:
        source.stream.prepare_available_now()
    start = source.stream.initial()

    assert source.stream.latest(start) == start


@pytest.mark.parametrize("available_now", [True, False])
def test_a_broker_that_knows_nothing_yet_is_asked_again(
    single: Cluster, make_topic: MakeTopic, send: Any, monkeypatch: pytest.MonkeyPatch, available_now: bool
) -> None:
    topic = make_topic()
    start = Source(single, topic).stream.initial()
    send(topic, range(3))
    source = Source(single, topic, failOnDataLoss="false")
    nothing, ask = [dict[str, Any]()], source.client.topics
    monkeypatch.setattr(source.client, "topics", lambda names: nothing.pop() if nothing else ask(names))
    if available_now:
        source.stream.prepare_available_now()

    assert source.stream.latest(start)[topic] == {"0": 3}


def test_partitions_that_come_are_read_from_their_beginning(
    single: Cluster, make_topic: MakeTopic, send: Any, admin: AdminClient
) -> None:
    topic = make_topic()
    source = Source(single, topic)
    start = source.stream.initial()
    done(admin.create_partitions([NewPartitions(topic, 2)]))
    send(topic, [7, 8], 1)
    end = source.stream.latest(start)

    assert source.values(source.stream.tasks(start, end)) == [7, 8]


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_made_anew_is_told_by_its_id_also_after_a_restart(
    single: Cluster, make_topic: MakeTopic, send: Any, admin: AdminClient, fails: bool
) -> None:
    topic = make_topic()
    send(topic, range(3))
    before = Source(single, topic).stream.initial()
    done(admin.delete_topics([topic]))
    done(admin.create_topics([NewTopic(topic, 1)]))
    send(topic, range(100, 110))
    source = Source(single, topic, failOnDataLoss=str(fails))
    if fails:
        with pytest.raises(LossError, match="was deleted and made anew; option failOnDataLoss=false goes on without"):
            source.stream.latest(before)
        return
    end = source.stream.latest(before)

    assert source.values(source.stream.tasks(before, end)) == list(range(100, 110))
    assert source.stream.latest(end) == end


@pytest.mark.parametrize("fails", [True, False])
def test_retention_that_overtakes_a_task_is_a_loss(
    single: Cluster, make_topic: MakeTopic, send: Any, admin: AdminClient, fails: bool
) -> None:
    topic = make_topic()
    send(topic, range(20))
    source = Source(single, topic, startingOffsets="earliest", failOnDataLoss=str(fails))
    start = source.stream.initial()
    tasks = source.stream.tasks(start, source.stream.latest(start))
    done(admin.delete_records([TopicPartition(topic, 0, 12)]))
    if fails:
        with pytest.raises(DataLossError, match="the log has 12 up to 20 now"):
            source.values(tasks)
    else:
        assert source.values(tasks) == list(range(12, 20))


def test_a_checkpoint_of_another_topic_is_refused(single: Cluster, make_topic: MakeTopic) -> None:
    one, other = make_topic(), make_topic()
    start = Source(single, one).stream.initial()
    with pytest.raises(OffsetError, match=f"of topic {one}, and this query reads {other}"):
        Source(single, other).stream.latest(start)


def test_a_topic_that_is_not_there_is_named(single: Cluster, make_topic: MakeTopic) -> None:
    with pytest.raises(OffsetError, match="there is no topic nowhere"):
        Source(single, "nowhere").stream.initial()
    with pytest.raises(OffsetError, match=r"there is no topic nowhere"):
        Source(single, f"{make_topic()},nowhere", streaming=False).batch()


def test_a_batch_is_cut_by_bytes_and_reads_everything_once(single: Cluster, make_topic: MakeTopic, send: Any) -> None:
    topic = make_topic(2)
    send(topic, range(20_000))
    send(topic, range(20_000, 20_010), 1)
    source = Source(single, topic, streaming=False, bytesPerTask="100k", columns="value,offset")
    tasks = source.batch()

    assert len(tasks) >= 3
    assert sorted(source.values(tasks)) == list(range(20_010))
    assert list(source.rows(tasks[:1])[0]) == ["value", "offset"]


def test_filters_narrow_a_batch(single: Cluster, make_topic: MakeTopic, send: Any) -> None:
    topic = make_topic(2)
    send(topic, range(50))
    send(topic, range(50, 60), 1)
    wanted = Wanted(partitions=frozenset({0}), offset_first=10, offset_last=19)

    assert Source(single, topic, streaming=False).values(Source(single, topic, streaming=False).batch(wanted)) == list(
        range(10, 20)
    )


def test_filters_narrow_a_batch_whose_offsets_are_told(single: Cluster, make_topic: MakeTopic, send: Any) -> None:
    topic = make_topic(2)
    send(topic, range(50))
    send(topic, range(50, 60), 1)
    first, last = (json.dumps({topic: offsets}) for offsets in ({"0": 5, "1": 3}, {"0": 9, "1": 7}))
    source = Source(single, topic, streaming=False, startingOffsets=first, endingOffsets=last)

    assert source.values(source.batch(Wanted(partitions=frozenset({0})))) == list(range(5, 9))


def test_offsets_that_the_log_does_not_have_are_lost(single: Cluster, make_topic: MakeTopic, send: Any) -> None:
    topic = make_topic()
    send(topic, range(5))
    beyond = json.dumps({topic: {"0": 9}})
    with pytest.raises(LossError, match=f"{topic}-0 has offsets 0 up to 5, not 9"):
        Source(single, topic, streaming=False, endingOffsets=beyond).batch()
    source = Source(single, topic, streaming=False, endingOffsets=beyond, failOnDataLoss="false")
    assert source.values(source.batch()) == list(range(5))


def test_values_become_columns_and_those_that_do_not_parse_say_why(
    single: Cluster, make_topic: MakeTopic, send: Any
) -> None:
    topic = make_topic()
    send(topic, ['{"vin":"a","seq":1}', "nonsense", '{"seq":"x"}', '{"vin":"b","more":[1]}'])
    more = {"value__format": "json", "value__schema": "vin string, seq bigint", "columns": "offset,vin,seq,_corrupt"}
    source = Source(single, topic, streaming=False, **more)
    found = source.rows(source.batch())

    assert [(row["offset"], row["vin"], row["seq"]) for row in found] == [
        (0, "a", 1),
        (1, None, None),
        (2, None, None),
        (3, "b", None),
    ]
    assert [row["_corrupt"] is None for row in found] == [True, False, False, True]


def test_what_a_task_gives_has_the_schema_that_was_said(single: Cluster, make_topic: MakeTopic, send: Any) -> None:
    topic = make_topic()
    send(topic, range(3))
    source = Source(single, topic, streaming=False, includeHeaders="true")
    (task,) = source.batch()
    (batch,) = reader(source.options).read(task)

    assert batch.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert batch.schema.names == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ]


def test_a_topic_that_is_deleted_is_a_loss_once(
    single: Cluster, make_topic: MakeTopic, send: Any, admin: AdminClient
) -> None:
    gone, stays = make_topic(), make_topic()
    before = Source(single, f"{gone},{stays}").stream.initial()
    done(admin.delete_topics([gone]))
    send(stays, range(3))
    with pytest.raises(LossError, match=f"{gone}-0 does not exist any more"):
        Source(single, f"{gone},{stays}").stream.latest(before)
    source = Source(single, f"{gone},{stays}", failOnDataLoss="false")
    end = source.stream.latest(before)

    assert source.values(source.stream.tasks(before, end)) == [0, 1, 2]
    assert gone not in end
    assert source.stream.latest(end) == end


def test_a_task_holds_some_answers_whatever_the_size_of_its_partition(
    single: Cluster, make_topic: MakeTopic, send: Any
) -> None:
    topic = make_topic()
    send(topic, [f"{number:<50000}" for number in range(500)])  # 25 MB
    limits = {"kafka__fetch__max__bytes": "500000", "kafka__max__partition__fetch__bytes": "500000"}
    source = Source(single, topic, streaming=False, columns="offset", **limits)
    tasks = source.batch()
    tracemalloc.start()
    count = sum(batch.num_rows for task in tasks for batch in reader(source.options).read(task))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert count == 500
    assert peak < 8_000_000

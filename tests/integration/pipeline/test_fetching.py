"""Ranges of partitions, read from real nodes."""

from collections.abc import Iterable
from contextlib import nullcontext

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from ottla.log.batch import headers
from ottla.log.records import decode_records
from ottla.pipeline.wire.cluster import Cluster as Client
from ottla.pipeline.wire.errors import DataLossError, PartitionError, TopicChangedError
from ottla.pipeline.wire.fetch import Fetcher
from ottla.pipeline.wire.offsets import LATEST, list_offsets
from ottla.pipeline.wire.reading import Fetched, Range
from ottla.pipeline.wire.settings import client_settings
from ottla.testing.cluster import Cluster
from tests.integration.pipeline.conftest import MakeTopic


def produce(servers: str, topic: str, partition: int, values: Iterable[int], **more: object) -> None:
    producer = Producer({"bootstrap.servers": servers, "batch.num.messages": 7, **more})
    for value in values:
        producer.produce(topic, str(value), partition=partition)
    assert producer.flush(30) == 0


def values(ranges: list[Range], fetched: Iterable[Fetched]) -> list[int]:
    """The records between the ranges' bounds, in the order in which they came."""
    found = []
    for each in fetched:
        wanted = ranges[each.range]
        for position, header in headers(each.records):
            for record in decode_records(each.records[position : position + header.size_bytes], header):
                if each.first_offset <= record.offset < wanted.end:
                    found.append(int(record.value or b""))
    return found


def test_ranges_come_in_their_order_whoever_leads_them() -> None:
    # The producer makes the topic.
    with (
        Cluster(nodes=3, settings={"num.partitions": "6"}) as three,
        Client(client_settings({"bootstrap.servers": three.bootstrap_servers})) as client,
    ):
        for partition in range(6):
            produce(three.bootstrap_servers, "t", partition, range(partition * 100, partition * 100 + 50))
        ranges = [Range("t", partition, 10, 40) for partition in (5, 2, 0, 4, 1, 3)] + [Range("t", 2, 3, 5)]
        expected = [each.partition * 100 + offset for each in ranges for offset in range(each.start, each.end)]

        assert values(ranges, Fetcher(client, ranges)) == expected
        assert len({client.leader("t", partition) for partition in range(6)}) == 3


def _make(cluster: Cluster, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for made in admin.create_topics([NewTopic(topic, partitions)]).values():
        made.result()


def test_a_reading_goes_on_where_the_leader_that_was_read_dies() -> None:
    texts = {"fetch.max.bytes": "3000", "max.partition.fetch.bytes": "3000"}
    with Cluster(nodes=3) as three:
        produce(three.bootstrap_servers, "t", 0, range(2000))
        with Client(client_settings({"bootstrap.servers": three.bootstrap_servers, **texts})) as client:
            ranges = [Range("t", 0, 0, 2000)]
            fetched = iter(Fetcher(client, ranges))
            first = [next(fetched)]
            three.stop_node(client.leader("t", 0))

            assert values(ranges, [*first, *fetched]) == list(range(2000))


def test_what_retention_took_is_a_loss_or_is_skipped(single: Cluster, client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic()
    produce(single.bootstrap_servers, topic, 0, range(100))
    admin = AdminClient({"bootstrap.servers": single.bootstrap_servers})
    for done in admin.delete_records([TopicPartition(topic, 0, 60)]).values():
        done.result()
    ranges = [Range(topic, 0, 20, 90)]

    with pytest.raises(
        DataLossError, match=f"{topic}-0 at offset 20: OFFSET_OUT_OF_RANGE .the log has 60 up to 100 now"
    ):
        list(Fetcher(client, ranges))
    skipping = Fetcher(client, ranges, skips_loss=True)
    assert values(ranges, skipping) == list(range(60, 90))
    assert [(loss.offset, loss.begins, loss.ends) for loss in skipping.lost if isinstance(loss, DataLossError)] == [
        (20, 60, 100)
    ]


def test_a_range_beyond_the_end_is_a_loss(single: Cluster, client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic()
    produce(single.bootstrap_servers, topic, 0, range(10))

    with pytest.raises(DataLossError, match="the log has 0 up to 10 now"):
        list(Fetcher(client, [Range(topic, 0, 50, 60)]))


def test_a_topic_that_was_made_anew_is_not_taken_for_the_old(
    single: Cluster, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    produce(single.bootstrap_servers, topic, 0, range(10))
    old = client.topic(topic).id
    admin = AdminClient({"bootstrap.servers": single.bootstrap_servers})
    for gone in admin.delete_topics([topic]).values():
        gone.result()
    with pytest.raises(TopicChangedError, match="was deleted"):
        list(Fetcher(client, [Range(topic, 0, 0, 10, old)]))
    _make(single, topic, 1)
    produce(single.bootstrap_servers, topic, 0, range(10))

    with pytest.raises(TopicChangedError, match="is another topic now"):
        list(Fetcher(client, [Range(topic, 0, 0, 10, old)]))
    skipping = Fetcher(client, [Range(topic, 0, 0, 10, old)], skips_loss=True)
    assert list(skipping) == []
    assert len(skipping.lost) == 1


@pytest.mark.parametrize("skips_loss", [False, True])
def test_a_topic_made_anew_in_the_middle_of_a_reading_gives_nothing_of_the_new(
    skips_loss: bool, single: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    produce(single.bootstrap_servers, topic, 0, range(2000))
    few = {"fetch.max.bytes": "3000", "max.partition.fetch.bytes": "3000"}
    with Client(client_settings({"bootstrap.servers": single.bootstrap_servers, **few})) as client:
        ranges = [Range(topic, 0, 0, 2000, client.topic(topic).id)]
        reading = Fetcher(client, ranges, skips_loss=skips_loss)
        fetched = iter(reading)
        came = [next(fetched)]
        admin = AdminClient({"bootstrap.servers": single.bootstrap_servers})
        admin.delete_topics([topic])[topic].result()
        _make(single, topic, 1)
        produce(single.bootstrap_servers, topic, 0, range(5000, 7000))
        with nullcontext() if skips_loss else pytest.raises(TopicChangedError, match="is another topic now"):
            came.extend(fetched)
    found = values(ranges, came)
    assert found == list(range(len(found)))
    assert 0 < len(found) < 2000
    assert len(reading.lost) == skips_loss


@pytest.mark.parametrize("skips_loss", [False, True])
def test_a_topic_made_anew_behind_another_gives_nothing_of_the_new(
    skips_loss: bool, single: Cluster, client: Client, make_topic: MakeTopic
) -> None:
    """Its turn has not come when it is asked for with the one before it."""
    before, topic, behind = make_topic(), make_topic(), make_topic()
    for each in (before, topic, behind):
        produce(single.bootstrap_servers, each, 0, range(10))
    ranges = [Range(each, 0, 0, 10, client.topic(each).id) for each in (before, topic, behind)]
    admin = AdminClient({"bootstrap.servers": single.bootstrap_servers})
    admin.delete_topics([topic])[topic].result()
    _make(single, topic, 1)
    produce(single.bootstrap_servers, topic, 0, range(5000, 5010))
    client.forget()

    reading, came = Fetcher(client, ranges, skips_loss=skips_loss), list[Fetched]()
    with nullcontext() if skips_loss else pytest.raises(TopicChangedError, match=f"{topic}.* is another topic now"):
        came.extend(reading)
    assert values(ranges, came) == [*range(10)] * (1 + skips_loss)
    assert len(reading.lost) == skips_loss


def test_a_partition_that_came_since_somebody_looked_is_read(
    single: Cluster, client: Client, make_topic: MakeTopic
) -> None:
    """A worker keeps what it knows of a topic from task to task."""
    topic = make_topic()
    client.topic(topic)
    admin = AdminClient({"bootstrap.servers": single.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result()
    produce(single.bootstrap_servers, topic, 1, range(10))
    ranges = [Range(topic, 1, 0, 10)]

    assert values(ranges, Fetcher(client, ranges)) == list(range(10))


def test_only_what_is_committed_is_waited_for_and_aborted_transactions_are_named(
    single: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producer = Producer({"bootstrap.servers": single.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for commits in (True, False):
        producer.begin_transaction()
        for value in range(5):
            producer.produce(topic, str(value))
        producer.flush()
        producer.commit_transaction() if commits else producer.abort_transaction()
    texts = {"bootstrap.servers": single.bootstrap_servers, "isolation.level": "read_committed"}
    with Client(client_settings(texts)) as client:
        end = list_offsets(client, {(topic, 0): LATEST})[topic, 0].offset
        fetched = list(Fetcher(client, [Range(topic, 0, 0, end)]))

    assert end == 12
    assert [first for each in fetched for _, first in each.aborted] == [6]


def test_a_partition_that_makes_no_progress_is_given_up_in_time(single: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = Producer({"bootstrap.servers": single.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, "open")
    producer.flush()
    texts = {"bootstrap.servers": single.bootstrap_servers, "isolation.level": "read_committed"}
    with (
        Client(client_settings({**texts, "default.api.timeout.ms": "2000", "fetch.max.wait.ms": "50"})) as client,
        pytest.raises(
            PartitionError, match=f"{topic}-0 at offset 0: .*no progress for 2 s; last: .* its records end at 0"
        ),
    ):
        list(Fetcher(client, [Range(topic, 0, 0, 1)]))
    producer.abort_transaction()

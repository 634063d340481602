"""What a topic holds of a fleet, judged as a reader of committed records sees it; without Spark."""

from collections.abc import Callable

from ottla.pipeline.arrow.aborted import AbortedTransactions
from ottla.pipeline.arrow.decoder import Decoder
from ottla.pipeline.fleet.judge import Judge
from ottla.pipeline.fleet.names import of_values
from ottla.pipeline.wire.cluster import Cluster
from ottla.pipeline.wire.errors import UnknownTopicError
from ottla.pipeline.wire.fetch import Fetcher
from ottla.pipeline.wire.metadata import Topic
from ottla.pipeline.wire.offsets import EARLIEST, LATEST, list_offsets
from ottla.pipeline.wire.reading import Range
from ottla.pipeline.wire.settings import client_settings


def judge_topic(judge: Judge, bootstrap: str, name: str, advance: Callable[[int], None] = lambda rows: None) -> int:
    """Has a judge take all that is committed now; the bytes of it, on the log. Raises ClientError."""
    settings = client_settings({"bootstrap.servers": bootstrap, "isolation.level": "read_committed"})
    with Cluster(settings) as cluster:
        topic = cluster.topics([name]).get(name)
        if topic is None:
            raise UnknownTopicError(name)
        ranges = _ranges(cluster, topic)
        decoders = [Decoder(name, each.partition, ("value",), start=each.start, end=each.end) for each in ranges]
        size = 0
        for fetched in Fetcher(cluster, ranges):
            size += len(fetched.records)
            for rows in decoders[fetched.range].feed(fetched.records, AbortedTransactions(fetched.aborted)):
                judge.take(*of_values(rows["value"]))
                advance(rows.num_rows)
        return size


def _ranges(cluster: Cluster, topic: Topic) -> list[Range]:
    places = [(topic.name, partition) for partition in topic.partitions]
    first = list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    last = list_offsets(cluster, dict.fromkeys(places, LATEST))
    return [Range(*place, first[place].offset, last[place].offset, topic.id) for place in sorted(places)]

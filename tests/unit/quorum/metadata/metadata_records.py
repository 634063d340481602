"""Records of the metadata by the handful, stories made of them, and a store in memory."""

from collections.abc import Iterable, Iterator

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.families.table import FAMILIES
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.records import partition_record

Record = pb.MetadataRecord


class DictStore:
    """A `KeyValueStore` in memory."""

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]] = (), files: "dict[str, DictStore] | None" = None) -> None:
        """``files``: what may be restored."""
        self.pairs = dict(pairs)
        self.files = files or {}

    def get(self, key: bytes) -> bytes | None:
        return self.pairs.get(key)

    def scan(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted((key, value) for key, value in self.pairs.items() if key.startswith(prefix)))

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = (), *, durable: bool) -> None:
        for key in deletes:
            self.pairs.pop(key, None)
        self.pairs.update(puts)

    def sync(self) -> None: ...

    def clear(self) -> None:
        self.pairs.clear()

    def copy_to(self, path: str) -> None: ...

    def restore(self, path: str) -> None:
        self.pairs = dict(self.files[path].pairs)

    def close(self) -> None: ...


def topic_id(number: int) -> bytes:
    return b"topic" + number.to_bytes(11)


def broker(broker_id: int, epoch: int = 5, **more: object) -> Record:
    return pb.MetadataRecord(
        register_broker=pb.RegisterBroker(
            broker_id=broker_id,
            broker_epoch=epoch,
            incarnation_id=bytes([broker_id]) * 16,
            endpoints=[pb.Endpoint(name="PLAINTEXT", host="localhost", port=9092 + broker_id)],
            features=[pb.FeatureRange(name="metadata.version", min_version=25, max_version=30)],
            fenced=True,
            directories=[bytes([broker_id]) * 16],
            **more,  # type: ignore[arg-type]  # keywords of many types
        )
    )


def topic(number: int) -> Record:
    return pb.MetadataRecord(topic=pb.Topic(name=f"topic-{number}", topic_id=topic_id(number)))


def partition(number: int, index: int) -> Record:
    return pb.MetadataRecord(
        partition=pb.Partition(
            topic_id=topic_id(number), partition_id=index, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1,
            directories=[bytes([each]) * 16 for each in (1, 2, 3)],
        )
    )  # fmt: skip


def change(number: int, index: int, **fields: object) -> Record:
    body = pb.PartitionChange(topic_id=topic_id(number), partition_id=index, **fields)  # type: ignore[arg-type]  # keywords of many types
    return pb.MetadataRecord(partition_change=body)


def config(name: str, value: str | None, resource: str = "topic-1") -> Record:
    return pb.MetadataRecord(config=pb.Config(resource_type=2, resource_name=resource, name=name, value=value))


def build(records: Iterable[Record]) -> MetadataImage:
    image, delta = MetadataImage(), MetadataDelta()
    for record in records:
        image.apply(record, delta)
    return image


def image_records(image: MetadataImage) -> Iterator[pb.MetadataRecord]:
    """Records that turn an empty image into an equal one."""
    for family in FAMILIES.values():
        for key, value in image.entries(family).items():
            for _, record in family.parts(key, value):
                yield record
    for topic in image.topics_by_id.values():
        yield pb.MetadataRecord(topic=pb.Topic(name=topic.name, topic_id=topic.id))
        for index, partition in topic.partitions.items():
            yield partition_record(topic.id, index, partition)


def batch(base: int, records: list[Record]) -> CommittedBatch:
    return CommittedBatch(base, base + max(len(records), 1) - 1, 1, 0, [each.SerializeToString() for each in records])


SOME = [
    Record(feature_level=pb.FeatureLevel(name="metadata.version", level=30)),
    broker(1),
    broker(2, rack="b"),
    topic(1),
    partition(1, 0),
    partition(1, 1),
    topic(2),
    partition(2, 0),
    config("retention.ms", "1000"),
    Record(producer_ids=pb.ProducerIds(broker_id=1, broker_epoch=5, next_producer_id=1000)),
    Record(register_controller=pb.RegisterController(controller_id=1, incarnation_id=b"c" * 16, rack="r")),
    Record(register_controller=pb.RegisterController(controller_id=2, incarnation_id=b"d" * 16)),
    Record(unregister_controller=pb.UnregisterController(controller_id=2)),
]


def begin() -> Record:
    return pb.MetadataRecord(begin_transaction=pb.BeginTransaction(name="x"))


def end() -> Record:
    return pb.MetadataRecord(end_transaction=pb.EndTransaction())


def abort() -> Record:
    return pb.MetadataRecord(abort_transaction=pb.AbortTransaction(reason="x"))


def large_image(topics: int = 5, partitions: int = 900) -> MetadataImage:
    records = [topic(number) for number in range(1, topics + 1)]
    records += [partition(number, index) for number in range(1, topics + 1) for index in range(partitions)]
    return build(records)

"""The metadata image in a key-value store, with the offset it stands at: a restart opens it and replays only the tail.

Every commit writes what it changed and the new offset in one transaction that need not be durable: the store is a copy
of what the log says, and after a crash it stands, whole, at some earlier offset. Keys, by first byte:

    o                        offset and epoch of the last record applied
    <family> …               the records that make the entries of each record family (families/table.py); a key that is too long
                             for a store ends with its digest: only the records are read again
    t <topic id>             the topic's name
    p <topic id> <index>     a partition: PartitionView in MessagePack (a protobuf message takes six times as long to read)
"""

import struct
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import islice
from typing import Any

import msgspec

from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.families.family import RecordFamily
from ottla.quorum.metadata.families.table import FAMILIES
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.records import decode
from ottla.quorum.metadata.views import PartitionView
from ottla.runtime.key_value import KeyValueStore, Pair

_FORMAT = 1
_OFFSET_KEY = b"o"
_OFFSET = struct.Struct(">Bqq")  # format, offset, epoch
_INDEX = struct.Struct(">I")
_WIPE_CHUNK_KEYS = 10_000
_PIECE_PAIRS = 1000
_KEY_BYTES_MAX = 511  # of a `KeyValueStore`; names of groups may have 32,767
_WHOLE_BYTES = 400

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PartitionView).decode
_index_of = struct.Struct(">I").unpack_from


class StoreFormatError(Exception):
    """The store was written by a version that lays it out differently."""


def stored_position(store: KeyValueStore) -> tuple[int, int] | None:
    """(offset, epoch) of the last record in a store of this layout; None for an empty store. Raises StoreFormatError."""
    position = store.get(_OFFSET_KEY)
    if position is None:
        return None
    version, offset, epoch = _OFFSET.unpack(position)
    if version != _FORMAT:
        raise StoreFormatError(f"the metadata store has format {version}, this version reads {_FORMAT}")
    return offset, epoch


class ImageStore:
    """Keeps an image in a store of its own; the election state must be elsewhere, for a snapshot replaces everything."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store
        self.unsynced = 0
        """Pairs written since the last `sync` began: what that will have to write."""

    def load(self) -> MetadataImage:
        """The image as it was last written; an empty one at offset -1 from an empty store. Raises StoreFormatError."""
        image = MetadataImage()
        for _ in self.load_into(image):
            pass
        return image

    def load_into(self, image: MetadataImage) -> Iterator[None]:
        """`load` in pieces, into an empty image."""
        position = stored_position(self._store)
        if position is None:
            return
        image.offset, image.epoch = position
        delta = MetadataDelta()
        for family in FAMILIES.values():
            for pairs in _pieces(self._store.scan(family.prefix)):
                for _, value in pairs:
                    image.apply(decode(value), delta)
                yield
        yield from self._load_topics(image)

    def _load_topics(self, image: MetadataImage) -> Iterator[None]:
        for pairs in _pieces(self._store.scan(b"t")):
            for key, value in pairs:
                image.add_topic(value.decode(), key[1:])
            yield
        prefix = b""
        partitions: dict[int, PartitionView] = {}
        decoded = _PartitionDecoder(image).decode
        for pairs in _pieces(self._store.scan(b"p")):
            for key, value in pairs:
                if not prefix or not key.startswith(prefix):
                    prefix = key[:17]
                    partitions = image.topics_by_id[prefix[1:]].partitions  # just made, nobody else has it
                partitions[_index_of(key, 17)[0]] = decoded(value)
            yield

    def write(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Brings the store from where it was to ``image``, which differs by ``delta``. OSError when the disk fails."""
        puts, deletes = _changes(delta, image)
        puts.append((_OFFSET_KEY, _OFFSET.pack(_FORMAT, image.offset, image.epoch)))
        self.unsynced += len(puts) + len(deletes)
        self._store.write(puts, deletes, durable=False)

    def replace(self, image: MetadataImage) -> None:
        """Makes the store hold ``image`` and nothing else. A crash in the middle leaves it empty: to be filled again."""
        self._store.clear()
        puts, _ = _changes(MetadataDelta.between(MetadataImage(), image), image)
        for start in range(0, len(puts), _WIPE_CHUNK_KEYS):
            self._store.write(puts[start : start + _WIPE_CHUNK_KEYS], durable=False)
        position = (_OFFSET_KEY, _OFFSET.pack(_FORMAT, image.offset, image.epoch))
        self._store.write([position], durable=True)

    def restore(self, path: str, image: MetadataImage) -> None:
        """Makes the store hold what the snapshot at ``path`` does: ``image``, but for where that stands. On any thread, while
        nobody else reads or writes."""
        self._store.restore(path)
        self.write(MetadataDelta(), image)

    def clear(self) -> None:
        """Makes the store hold nothing, as at the beginning of the log; durably, and as `restore` does."""
        self._store.clear()

    def sync(self) -> None:
        """Makes what was written durable; on any thread."""
        syncing, self.unsynced = self.unsynced, 0
        try:
            self._store.sync()
        except OSError:
            self.unsynced += syncing
            raise

    def copy_to(self, path: str) -> None:
        """A snapshot: a compact copy in a new file, at the offset of the last write. On any thread."""
        self._store.copy_to(path)

    def close(self) -> None:
        self._store.close()


def _pieces(pairs: Iterator[Pair]) -> Iterator[list[Pair]]:
    """1 to 3 ms of reading each."""
    while piece := list(islice(pairs, _PIECE_PAIRS)):
        yield piece


class _PartitionDecoder:
    """Partitions with tuples that others use too: most of the memory of a large image. Called a million times in a restart.

    The same replicas mostly are in sync all of them, and in the same directories: to compare costs less than to hash.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._intern = image.intern
        self._usual: dict[tuple[int, ...], tuple[tuple[int, ...], tuple[bytes, ...]]] = {}

    def decode(self, value: bytes) -> PartitionView:
        """ValueError when it is not a partition."""
        read = _decode(value)
        isr, directories = read.isr, read.directories
        usual = self._usual.get(read.replicas)
        if usual is None:
            usual = self._usual[read.replicas] = self._intern(read.replicas), self._intern(directories)
        replicas, same = usual
        return PartitionView(
            replicas,
            replicas if isr == replicas else self._intern(isr),
            read.leader,
            read.leader_epoch,
            read.partition_epoch,
            read.leader_recovery_state,
            read.adding,
            read.removing,
            same if directories == same else self._intern(directories),
            read.elr,
            read.last_known_elr,
        )


def _changes(delta: MetadataDelta, image: MetadataImage) -> tuple[list[Pair], list[bytes]]:
    puts: list[Pair] = []
    deletes: list[bytes] = []
    for key, value in _changed_pairs(delta, image):
        if value is None:
            deletes.append(key)
        else:
            puts.append((key, value))
    return puts, deletes


def _changed_pairs(delta: MetadataDelta, image: MetadataImage) -> Iterator[tuple[bytes, bytes | None]]:
    for family in FAMILIES.values():
        yield from _changed_entries(family, delta, image)
    yield from _changed_topics(delta, image)


def _changed_entries(
    family: RecordFamily[Any, Any], delta: MetadataDelta, image: MetadataImage
) -> Iterator[tuple[bytes, bytes | None]]:
    entries = image.entries(family)
    for key, before in delta.changed(family).items():
        now = entries.get(key)
        old = {} if before is None else dict(family.parts(key, before))
        new = {} if now is None else dict(family.parts(key, now))
        for suffix in old:
            if suffix not in new:
                yield _key(family, suffix), None
        for suffix, record in new.items():
            if old.get(suffix) != record:
                yield _key(family, suffix), record.SerializeToString()


def _key(family: RecordFamily[Any, Any], suffix: bytes) -> bytes:
    key = family.prefix + suffix
    return key if len(key) <= _KEY_BYTES_MAX else key[:_WHOLE_BYTES] + sha256(key).digest()


def _changed_topics(delta: MetadataDelta, image: MetadataImage) -> Iterator[tuple[bytes, bytes | None]]:
    for topic_id in delta.deleted_topics:
        yield b"t" + topic_id, None
    for topic_id, name in delta.created_topics.items():
        yield b"t" + topic_id, name.encode()
    for topic_id, partitions in _by_topic(delta.partitions):
        topic = image.topics_by_id.get(topic_id)
        for index in partitions:
            partition = topic.partitions.get(index) if topic is not None else None
            yield b"p" + topic_id + _INDEX.pack(index), None if partition is None else _encode(partition)


def _by_topic(partitions: Iterable[tuple[bytes, int]]) -> Iterable[tuple[bytes, list[int]]]:
    grouped: dict[bytes, list[int]] = {}
    for topic_id, index in partitions:
        grouped.setdefault(topic_id, []).append(index)
    return grouped.items()

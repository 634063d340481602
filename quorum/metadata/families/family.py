"""A record family: one kind of thing that the metadata knows, and all that there is to say about it.

Its entries are a dictionary of the image. Whoever handles entries (image, delta, store, snapshots, history, the command line) goes
through the families of the table (`table.py`) and knows none by name. Topics and their partitions are no family: there are a million
of them, and they have ways of their own in each of these places.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from ottla.proto import metadata_pb2 as pb

K = TypeVar("K")
V = TypeVar("V")

Part = tuple[bytes, pb.MetadataRecord]
"""A record and the key under which a store keeps it, without the family's prefix."""

_NOTHING: Mapping[int, int] = {}


class UnreadableRecordError(Exception):
    """A record that this image cannot take: of a newer version, or one that contradicts what is there. There is no way
    on from here, for the next records rely on it."""


class RecordLevel(NamedTuple):
    """The metadata.version that brought a kind of record, ``first``, and its fields. ``fields``: the highest field number it
    had then. ``later``: the levels of the fields that came afterwards, by number."""

    first: int
    fields: int
    later: Mapping[int, int] = _NOTHING


class RecordKind(NamedTuple):
    """A kind of record that changes one entry of a family. ``change`` is given the entries and the record, and says which entry
    and what becomes of it (None: it goes). It changes nothing itself. Raises UnreadableRecordError."""

    change: Callable[[Mapping[Any, Any], Any], tuple[Any, Any]]
    level: RecordLevel


class Telling(NamedTuple):
    """How people are told of entries. ``lines``: an entry as names and texts, one for each that may differ by itself.
    ``before_topics``: where it comes in a list of everything."""

    noun: str
    lines: Callable[[Any, Any], Iterable[tuple[str, str]]]
    before_topics: bool = False


class RecordFamily(msgspec.Struct, Generic[K, V], frozen=True, kw_only=True):
    """A row of the table.

    ``attribute``: the dictionary's name in an image, and that of the changed entries in a delta. ``prefix``: the first byte of its keys
    in a store. ``kinds``: what changes entries, by the name in `MetadataRecord`. ``parts``: the records that make an entry.
    ``path``: its place in the tree of `ottla metadata shell`. ``telling``: None for what is in that tree alone.
    """

    attribute: str
    prefix: bytes
    kinds: Mapping[str, RecordKind]
    parts: Callable[[K, V], Iterable[Part]]
    path: tuple[str, ...]
    telling: Telling | None = None


def one_record(
    encode_key: Callable[[K], bytes], to_record: Callable[[K, V], pb.MetadataRecord]
) -> Callable[[K, V], Iterable[Part]]:
    """``parts`` of a family whose entries are one record each."""
    return lambda key, value: ((encode_key(key), to_record(key, value)),)

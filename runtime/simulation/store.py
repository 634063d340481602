"""`KeyValueStore` on a simulated disk.

Why not LMDB on a tmpfs folder: LMDB maps a real file, which no simulated power cut can reach between two of its writes,
and copying the folder at each sync costs more than a whole simulated election. So the simulation has a store of its own
with the promises of `LmdbStore` and nothing more: a journal of transactions with checksums, replayed when opened. Writes
that are not durable wait in memory, as there, and are lost when the process dies.
"""

import posixpath
import struct
import zlib
from collections.abc import Iterable, Iterator

from ottla.runtime.disk import Disk, File
from ottla.runtime.key_value import Pair

_FRAME = struct.Struct(">II")  # length and CRC-32 of what follows
_CHANGE = struct.Struct(">Ii")  # lengths of key and value; -1: deleted
_REWRITE_BYTES_MIN = 1 << 20

_Changes = dict[bytes, bytes | None]


class SimulatedStore:
    """One journal file at ``path``, created with its directory when missing."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._values: dict[bytes, bytes] = {}
        self._waiting: _Changes = {}
        self._writes = 0
        self._file = self._open()
        self._size = self._replay()

    def _open(self) -> File:
        directory = posixpath.dirname(self._path) or "/"
        is_new = not self._disk.exists(self._path)
        self._disk.make_directories(directory)
        file = self._disk.open(self._path, create=True)
        if is_new:
            file.sync()
            self._disk.sync_directory(directory)
        return file

    def _replay(self) -> int:
        data, position = self._file.read_at(self._file.size(), 0), 0
        while (payload := _whole_frame(data, position)) is not None:
            self._apply(_decode(payload))
            position += _FRAME.size + len(payload)
        if position < len(data):  # torn by a power cut: never acknowledged
            self._file.truncate(position)
            self._file.sync()
        return position

    def _apply(self, changes: _Changes) -> None:
        for key, value in changes.items():
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def scan(self, prefix: bytes = b"") -> Iterator[Pair]:
        writes = self._writes
        for key in sorted(key for key in self._values if key.startswith(prefix)):
            if self._writes != writes:
                raise RuntimeError("the store was written to during a scan")
            yield key, self._values[key]

    def write(self, puts: Iterable[Pair], deletes: Iterable[bytes] = (), *, durable: bool) -> None:
        changes: _Changes = dict.fromkeys(deletes)
        changes.update(puts)
        self._writes += 1
        self._apply(changes)
        self._waiting.update(changes)
        if durable:
            self.sync()

    def sync(self) -> None:
        if not self._waiting:
            return
        frame = _encode(self._waiting)
        self._size += self._file.write_at([frame], self._size)
        self._file.sync()
        self._waiting = {}
        if self._size > _REWRITE_BYTES_MIN and self._size > 4 * self._live_bytes():
            self._rewrite()

    def _live_bytes(self) -> int:
        return sum(len(key) + len(value) for key, value in self._values.items())

    def _rewrite(self) -> None:
        self._disk.write_atomically(self._path, _encode(dict(self._values)))
        self._file = self._disk.open(self._path)
        self._size = self._file.size()

    def clear(self) -> None:
        self._writes += 1
        self._values, self._waiting = {}, {}
        self._rewrite()

    def copy_to(self, path: str) -> None:
        self._disk.write_atomically(path, _encode(dict(self._values)))

    def restore(self, path: str) -> None:
        self._writes += 1
        self._values, self._waiting = {}, {}
        self._disk.write_atomically(self._path, self._disk.read_bytes(path))
        self._file = self._disk.open(self._path)
        self._size = self._replay()

    def close(self) -> None:
        self.sync()
        self._file.close()


def _whole_frame(data: bytes, position: int) -> bytes | None:
    """The frame's payload; None at the end, or when it is torn."""
    if position + _FRAME.size > len(data):
        return None
    length, checksum = _FRAME.unpack_from(data, position)
    payload = data[position + _FRAME.size : position + _FRAME.size + length]
    return payload if len(payload) == length and zlib.crc32(payload) == checksum else None


def _encode(changes: _Changes) -> bytes:
    parts: list[bytes] = []
    for key, value in changes.items():
        parts += (_CHANGE.pack(len(key), -1 if value is None else len(value)), key, value or b"")
    payload = b"".join(parts)
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def _decode(payload: bytes) -> _Changes:
    changes: _Changes = {}
    position = 0
    while position < len(payload):
        key_length, value_length = _CHANGE.unpack_from(payload, position)
        key_end = position + _CHANGE.size + key_length
        key, position = payload[position + _CHANGE.size : key_end], key_end + max(value_length, 0)
        changes[key] = None if value_length < 0 else payload[key_end:position]
    return changes

"""What nodes' processes are loaded with where a fault is inside them: a disk that fails, a clock that jumps (LD_PRELOAD)."""

import ctypes.util
import errno
import mmap
import struct
import subprocess
from importlib.resources import as_file, files
from pathlib import Path
from typing import NamedTuple, Protocol

from ottla.cli.local_node import LocalNode

DISK, CLOCK = "disk", "clock"

WRITES, SYNCS, READS, OPENS = 1, 2, 4, 8
EVERYTHING = WRITES | SYNCS | READS | OPENS
NO_ROOM, BROKEN = errno.ENOSPC, errno.EIO

_ORDERS = struct.Struct("=IIII")
_COUNTS = struct.Struct("=QQ")
_CONTROL_BYTES = _ORDERS.size + _COUNTS.size

FAKETIME = "libfaketime.so.1"
_FAKETIME_PLACES = ("/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/local/lib/faketime", "/usr/lib64/faketime")


class Missing(Exception):
    """This machine has not what the fault needs; the message says what to install."""


class Library(Protocol):
    """What a process is loaded with."""

    def environment(self, node: LocalNode) -> dict[str, str]: ...


def load(name: str, directory: Path) -> "Library | None":
    """``directory`` is for what it needs. Raises Missing."""
    match name:
        case "":
            return None
        case "disk":
            return FaultDisks(directory)
        case _:
            return Clocks(directory)


class Struck(NamedTuple):
    """Calls on a node's files that failed, and that were delayed, since it was first started."""

    failed: int
    delayed: int


class FaultDisks:
    """Each node's data directories lie on a disk that fails on request: a library between the process and its C library
    (acts/faultdisk.c). A loop mount or the device mapper would need root, and modules that many machines do not have."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._controls: dict[int, mmap.mmap] = {}
        directory.mkdir(parents=True, exist_ok=True)
        self._library = directory / "faultdisk.so"
        with as_file(files("ottla.testing.chaos.acts") / "faultdisk.c") as source:
            command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(self._library), str(source), "-ldl", "-lpthread"]
            try:
                subprocess.run(command, check=True, capture_output=True, text=True)
            except FileNotFoundError as error:
                raise Missing("no C compiler: apt-get install gcc libc6-dev") from error
            except subprocess.CalledProcessError as error:
                raise Missing(f"{' '.join(command)}: {error.stderr}") from error

    def environment(self, node: LocalNode) -> dict[str, str]:
        control = self._directory / f"disk-{node.node_id}"
        control.write_bytes(bytes(_CONTROL_BYTES))
        with control.open("r+b") as file:
            self._controls[node.node_id] = mmap.mmap(file.fileno(), _CONTROL_BYTES)
        return {
            "LD_PRELOAD": str(self._library),
            "OTTLA_FAULT_DISK": str(control),
            "OTTLA_FAULT_UNDER": str(node.home.resolve() / "data"),
        }

    def strike(self, node_id: int, affected: int, *, error: int = 0, delay_ms: int = 0) -> None:
        """From now on these calls fail with ``error``, or take so much longer."""
        _ORDERS.pack_into(self._controls[node_id], 0, affected, error, delay_ms * 1000, 0)

    def spare(self, node_id: int) -> None:
        self.strike(node_id, 0)

    def struck(self, node_id: int) -> Struck:
        return Struck(*_COUNTS.unpack_from(self._controls[node_id], _ORDERS.size))


class Clocks:
    """Each node's wall clock goes so many seconds before or after this machine's (libfaketime). Its monotonic clock is left alone,
    as by a clock that is set."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._library = _faketime()

    def environment(self, node: LocalNode) -> dict[str, str]:
        self.set(node.node_id, 0)
        return {
            "LD_PRELOAD": self._library,
            "FAKETIME_TIMESTAMP_FILE": str(self._file(node.node_id)),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, node_id: int, ahead_s: int) -> None:
        """Within a second or two, which is how often the library reads it."""
        new = self._file(node_id).with_suffix(".new")
        new.write_text(f"{ahead_s:+d}s\n", encoding="utf-8")
        new.replace(self._file(node_id))

    def _file(self, node_id: int) -> Path:
        return self._directory / f"clock-{node_id}"


def _faketime() -> str:
    for place in _FAKETIME_PLACES:
        for found in Path("/").glob(f"{place.lstrip('/')}/{FAKETIME}"):
            return str(found)
    named = ctypes.util.find_library("faketime")
    if named:
        return named
    raise Missing("no libfaketime: apt-get install libfaketime")

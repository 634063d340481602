"""What nodes' processes are loaded with where a fault is inside them: a disk that fails, a clock that jumps (LD_PRELOAD)."""

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

_AHEAD = struct.Struct("=q")


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
        self._library = _built("faultdisk", directory)

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
    """Each node's wall clock goes so many seconds before or after this machine's: a library as above (acts/faultclock.c, which says why it
    is not libfaketime). Its monotonic clock is left alone, as by a clock that is set."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ahead: dict[int, mmap.mmap] = {}
        self._library = _built("faultclock", directory)

    def environment(self, node: LocalNode) -> dict[str, str]:
        path = self._directory / f"clock-{node.node_id}"
        path.write_bytes(_AHEAD.pack(0))
        with path.open("r+b") as file:
            self._ahead[node.node_id] = mmap.mmap(file.fileno(), _AHEAD.size)
        return {"LD_PRELOAD": str(self._library), "OTTLA_FAULT_CLOCK": str(path)}

    def set(self, node_id: int, ahead_s: float) -> None:
        """At once."""
        _AHEAD.pack_into(self._ahead[node_id], 0, round(ahead_s * 1e9))


def _built(name: str, directory: Path) -> Path:
    """Raises Missing."""
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / f"{name}.so"
    with as_file(files("ottla.testing.chaos.acts") / f"{name}.c") as source:
        command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl", "-lpthread"]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise Missing("no C compiler: apt-get install gcc libc6-dev") from error
        except subprocess.CalledProcessError as error:
            raise Missing(f"{' '.join(command)}: {error.stderr}") from error
    return library

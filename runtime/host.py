"""Everything the program takes from the machine, in one value, so that a simulation can hand out another machine."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random, SystemRandom

from ottla.runtime.clock import Clock, SystemClock
from ottla.runtime.descriptors import MANY, Descriptors, claim
from ottla.runtime.disk import Disk
from ottla.runtime.key_value import KeyValueStore
from ottla.runtime.loop_watch import LoopWatch
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.sync_later import SyncLater


@dataclass(frozen=True, slots=True)
class Host:
    """What a node runs on. ``open_store`` opens or creates the key-value store in the file at a path.

    ``descriptors``: how many it may have open, and for whom. ``loop_watch`` sees nothing until somebody starts it.
    """

    clock: Clock
    rng: Random
    disk: Disk
    open_store: Callable[[str], KeyValueStore]
    sync_later: SyncLater
    descriptors: Descriptors = MANY
    loop_watch: LoopWatch = field(default_factory=LoopWatch)

    @classmethod
    def real(cls) -> "Host":
        """This machine, with a generator seeded by the operating system."""
        seed = SystemRandom().getrandbits(64)
        rng = Random(seed)  # noqa: S311 - not for secrets
        return cls(SystemClock(), rng, RealDisk(), _open_lmdb, SyncLater(), claim())


def _open_lmdb(path: str) -> KeyValueStore:
    from ottla.runtime.lmdb_store import LmdbStore  # only a node that keeps metadata pays for the import

    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    return LmdbStore(path)

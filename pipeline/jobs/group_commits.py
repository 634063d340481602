"""Offsets of a group, committed after each batch, so that every tool that knows Kafka's groups sees how far the job is.

A consumer with partitions of its own choice commits like this: no member, generation -1. They are for people; the query itself goes on by its
checkpoint. So a commit that fails holds nothing up: the next batch's tells more anyway.
"""

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from ottla.pipeline.jobs.checkpoint import Offsets

if TYPE_CHECKING:
    from ottla.pipeline.wire.cluster import Cluster

LAST_S = 10.0
"""For the last one, at the end of a job."""


class Commit(Protocol):
    """Where offsets are committed."""

    def __call__(self, offsets: Offsets, /) -> None: ...

    def close(self) -> None: ...


class GroupCommits:
    """A thread that commits the newest offsets it was told of."""

    def __init__(self, group: str, commit: Commit, say: Callable[[str], None]) -> None:
        self._group, self._commit, self._say = group, commit, say
        self._told = threading.Condition()
        self._newest: Offsets | None = None
        self._committed: Offsets = {}
        self._is_closing = False
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="group commits", daemon=True)
        self._thread.start()

    def tell(self, offsets: Offsets) -> None:
        if not offsets:
            return
        with self._told:
            self._newest = offsets
            self._told.notify()

    def close(self, timeout_s: float = LAST_S) -> None:
        """What was told last is tried before."""
        with self._told:
            self._is_closing = True
            self._told.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._told:
                self._told.wait_for(lambda: self._newest is not None or self._is_closing)
                offsets, self._newest = self._newest, None
            if offsets is None:
                self._commit.close()
                return
            if offsets != self._committed:
                self._try(offsets)

    def _try(self, offsets: Offsets) -> None:
        try:
            self._commit(offsets)
        except Exception as error:  # noqa: BLE001 - whatever it is, the job goes on
            if not self._is_failing:
                self._say(f"group {self._group}: offsets are not committed: {' '.join(str(error).split())}")
            self._is_failing = True
        else:
            self._committed = offsets
            if self._is_failing:
                self._say(f"group {self._group}: offsets are committed again")
            self._is_failing = False


class WireCommit:
    """Through our own client, with the ``kafka.`` options of the source. Of one thread."""

    def __init__(self, group: str, options: Mapping[str, str]) -> None:
        """Raises ValueError for options that cannot be."""
        from ottla.pipeline.wire.settings import client_settings

        prefix = "kafka."
        chosen = {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}
        self._group, self._settings = group, client_settings(chosen)
        self._cluster: Cluster | None = None

    def __call__(self, offsets: Offsets) -> None:
        """Raises ClientError."""
        from ottla.pipeline.wire.cluster import Cluster
        from ottla.pipeline.wire.groups import commit_offsets

        if self._cluster is None:
            self._cluster = Cluster(self._settings)
        commit_offsets(self._cluster, self._group, offsets)

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

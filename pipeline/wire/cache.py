"""A process keeps its clusters: a worker of Spark's runs task after task, and need not connect for each."""

import os

from ottla.pipeline.wire.cluster import Cluster
from ottla.pipeline.wire.settings import ClientSettings

_clusters: dict[tuple[int, ClientSettings], Cluster] = {}


def shared(settings: ClientSettings) -> Cluster:
    """The process's cluster of these settings, with the connections that it has. For one thread at a time.

    By process id: a worker that was forked must not use its parent's connections.
    """
    key = (os.getpid(), settings)
    found = _clusters.get(key)
    if found is None:
        found = _clusters[key] = Cluster(settings)
    return found


def close_all() -> None:
    """Ends the process's connections; they are opened anew when they are needed."""
    for (process, _), cluster in _clusters.items():
        if process == os.getpid():
            cluster.close()
    _clusters.clear()

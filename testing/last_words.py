"""What the nodes of a test's clusters have to say of its failure: it would go with their directories."""

from weakref import WeakSet

from ottla.cli.local_cluster import LocalCluster

LINES = 60
"""Of each node's log."""

_running = WeakSet[LocalCluster]()


def listen_to(cluster: LocalCluster) -> None:
    """As long as it is anybody's."""
    _running.add(cluster)


def last_words(cluster: LocalCluster) -> str:
    """The end of each node's log."""
    lines = list[str]()
    for node in cluster.nodes:
        told = node.log_file.read_text(errors="replace").splitlines() if node.log_file.exists() else []
        lines += (f"--- node {node.node_id}", *told[-LINES:])
    return "\n".join(lines)


def all_last_words() -> str:
    """Of all clusters whose directories are there."""
    return "\n".join(last_words(each) for each in _running if each.home.exists())

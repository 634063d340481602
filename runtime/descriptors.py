"""Who may have how many of the process's descriptors. Clients must never hold the last one that a log or a peer needs.

A log that cannot open its next file fails its partition, a broker that cannot be accepted falls out of every ISR; a client that is
turned away tries again. So clients are counted against a share of their own, and the rest is kept.
"""

import resource
from typing import NamedTuple

_LIMIT_MAX = 1 << 20  # what kernels allow by default; a container's "unlimited" may be a thousand times that
_PROGRAM_MAX = 192  # the loop, LMDB, the metadata log, gRPC's threads, listeners, and files opened for a moment
_PEERS_MAX = 512  # controllers and brokers, each with a few connections


class Descriptors(NamedTuple):
    """Shares of ``limit``; together they are all of it.

    ``logs`` is for segments that are open at once, ``peers`` for connections of and to other nodes of the cluster.
    """

    limit: int
    program: int
    peers: int
    logs: int
    clients: int


def divide(limit: int) -> Descriptors:
    """A quarter at most for the program, an eighth at most for peers; of the rest logs and clients have half each."""
    program = min(_PROGRAM_MAX, limit // 4)
    peers = min(_PEERS_MAX, limit // 8)
    rest = limit - program - peers
    return Descriptors(limit, program, peers, rest - rest // 2, rest // 2)


MANY = divide(1 << 16)


def claim() -> Descriptors:
    """Raises the soft limit of this process (RLIMIT_NOFILE) to the hard one, as a JVM does, and divides what there is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(_finite(hard), _LIMIT_MAX)
    if _finite(soft) < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # the kernel's own maximum (fs.nr_open) may be lower: stay with what we have
            wanted = _finite(soft)
    return divide(max(wanted, min(_finite(soft), _LIMIT_MAX)))


def _finite(limit: int) -> int:
    return _LIMIT_MAX if limit == resource.RLIM_INFINITY else limit

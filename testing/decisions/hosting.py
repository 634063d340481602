"""Brokers give their replicas a log, and tell the controller in which directory it lies.

A replica whose directory is gone is not made anew where it may hold what counts: its broker says that it is lost, or waits for the
directory. So the product does (`broker/replication/hosting.py`), and the deciders rely on it.
"""

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.metadata.delta import PartitionKey
from ottla.quorum.metadata.views import (
    DIRECTORIES_NOWHERE,
    DIRECTORY_ALWAYS_ONLINE,
    DIRECTORY_LOST,
    DIRECTORY_NOT_MADE,
    PartitionView,
)
from ottla.testing.decisions.brokers import Broker, Process
from ottla.testing.decisions.cluster import Cluster
from ottla.testing.decisions.disks import Log, age

NO_ROOM = 0.05  # of the replicas that are to be made
TELLS = 0.7  # at once where a replica lies


def host_all(cluster: Cluster) -> None:
    """Every broker does what the metadata of now want."""
    for broker in cluster.brokers.values():
        process = broker.registered
        for key, partition in cluster.partitions().items() if process is not None else ():
            if process is not None and broker.id in partition.replicas:
                _host(cluster, broker, process, key, partition)
            elif process is not None:
                _let_go(cluster, broker, process, key)


def _let_go(cluster: Cluster, broker: Broker, process: Process, key: PartitionKey) -> None:
    process.failed.discard(key)
    process.unhosted.pop(key, None)
    for directory, _ in broker.disks.logs_of(key, process.working):
        del broker.disks.logs[directory, key]


def _host(cluster: Cluster, broker: Broker, process: Process, key: PartitionKey, partition: PartitionView) -> None:
    if key in process.failed:
        return
    here = broker.disks.logs_of(key, process.working)
    is_new = _is_new(broker, process, key, partition)
    known = partition.directory_of(broker.id)
    if not _can_host(cluster, process, known, bool(here), is_new):
        _cannot_host(cluster, broker, process, key, partition, bool(here), is_new)
        return
    was_new = process.unhosted.pop(key, False)
    if not here:
        directory = known if known in process.working else cluster.rng.choice(process.working)
        here = [(directory, broker.disks.logs.setdefault((directory, key), []))]
    directory = _keep_newest(broker, key, here, known)
    if directory != known and cluster.rng.random() < TELLS:
        _tell_directory(cluster, broker.id, process.epoch, key, directory, DIRECTORIES_NOWHERE if was_new else ())


def _is_new(broker: Broker, process: Process, key: PartitionKey, partition: PartitionView) -> bool:
    """Whether nobody relies on what it has."""
    trusted = (*partition.isr, *partition.elr, *partition.last_known_elr)
    was_never_made = partition.partition_epoch == 0 or partition.directory_of(broker.id) == DIRECTORY_NOT_MADE
    return broker.id not in trusted or was_never_made or process.unhosted.get(key, False)


def _can_host(cluster: Cluster, process: Process, known: bytes, is_here: bool, is_new: bool) -> bool:
    may_lie_elsewhere = bool(process.missing) and not is_new
    if not is_here:
        return not may_lie_elsewhere and not (cluster.are_faults_on and cluster.rng.random() < NO_ROOM)
    reserved = (*DIRECTORY_ALWAYS_ONLINE, *DIRECTORIES_NOWHERE)
    return not may_lie_elsewhere or known in reserved or known in process.working


def _cannot_host(
    cluster: Cluster,
    broker: Broker,
    process: Process,
    key: PartitionKey,
    partition: PartitionView,
    is_here: bool,
    is_new: bool,
) -> None:
    """Once it says so, where the controller would count on it: it is lost, or there was never any."""
    if key in process.unhosted:
        return
    process.unhosted[key] = is_new
    known = partition.directory_of(broker.id)
    has_others = any(each != broker.id for each in (*partition.isr, *partition.elr))
    if not is_here and (known in DIRECTORY_ALWAYS_ONLINE or (has_others and known in process.working)):
        directory = DIRECTORY_NOT_MADE if is_new else DIRECTORY_LOST
        _tell_directory(cluster, broker.id, process.epoch, key, directory, ())


def _keep_newest(broker: Broker, key: PartitionKey, here: list[tuple[bytes, Log]], known: bytes) -> bytes:
    """Of two logs of a replica the older goes; in which directory the other lies."""
    newest = max(here, key=lambda each: (age(each[1]), each[0] == known))[0]
    for directory, _ in here:
        if directory != newest:
            del broker.disks.logs[directory, key]
    return newest


def _tell_directory(
    cluster: Cluster, broker_id: int, epoch: int, key: PartitionKey, directory: bytes, earlier: tuple[bytes, ...]
) -> None:
    """``earlier``: where it lay before, and took along all that it had."""
    body = rpc.AssignReplicasToDirectoriesRequest(broker_id=broker_id, broker_epoch=epoch)
    topic = body.directories.add(id=directory).topics.add(topic_id=key[0], partitions=[key[1]])
    if earlier:
        topic.moved.add(partition_index=key[1], earlier_directories=earlier)
    cluster.controller.ask(rpc.ControllerRequest(assign_replicas_to_directories=body))

"""What goes wrong with brokers: processes die, power is cut, disks fail and come back, replicas are damaged."""

from typing import Any

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.decisions.decision import NO_ERROR
from ottla.testing.decisions.brokers import Broker
from ottla.testing.decisions.cluster import Cluster

POWER_CUT = 0.6  # of crashes
NOTICED = 0.5  # of crashes, at once: the connection breaks
FOR_EVER = 0.3  # of failed disks: what was on it is gone
FULL = 0.3  # of replicas that report damage: they have no room, and lost nothing


def crash(cluster: Cluster, broker: Broker) -> None:
    """A process dies, and what it had not synced is lost if the power goes with it."""
    if broker.process is None:
        return
    broker.die()
    loses = cluster.rng.random() < POWER_CUT
    if loses:
        broker.disks.lose_tails(cluster.rng)
    cluster.say("crashes:", broker.id, "with a loss" if loses else "")
    cluster.promises.note_losses()
    if cluster.rng.random() < NOTICED:
        cluster.controller.state.sessions.gone(broker.id, cluster.registered_epoch(broker.id))


def fail_disk(cluster: Cluster, broker: Broker) -> None:
    """Under a running process, which goes on with another one."""
    process = broker.process
    if process is None or len(process.working) < 2:
        return
    directory = cluster.rng.choice(process.working)
    for_ever = cluster.rng.random() < FOR_EVER
    process.offline.append(directory)
    process.failed.update(broker.disks.fail(directory, for_ever=for_ever))
    cluster.say("a disk fails:", broker.id, directory[:3].hex(), "for ever" if for_ever else "")
    cluster.promises.note_losses()


def leave_directory_out(cluster: Cluster, broker: Broker) -> None:
    """The next start has one directory less in its configuration, and is not told that anything is missing."""
    disks = broker.disks
    if broker.process is None and len(disks.there) > 1:
        directory = cluster.rng.choice(disks.there)
        disks.left_out.add(directory)
        cluster.say("a directory is left out:", broker.id, directory[:3].hex())
        cluster.promises.note_losses()


def repair_disks(cluster: Cluster, broker: Broker) -> None:
    """Before the next start, which has all directories in its configuration."""
    if broker.process is None and not broker.disks.are_whole:
        broker.disks.gone.clear()
        broker.disks.left_out.clear()
        cluster.say("disks are back:", broker.id)


def slow_down(cluster: Cluster, broker: Broker) -> None:
    """It fetches nothing, though it lives, until it is told the same again."""
    cluster.slow ^= {broker.id}


def damage(cluster: Cluster) -> None:
    """A replica finds records that are not what was written, or no room, and says so. Once the controller agrees it cuts its log."""
    key = cluster.any_partition()
    partition = cluster.partitions()[key]
    broker = cluster.brokers[cluster.rng.choice(partition.replicas)]
    log, process = broker.hosted(key), broker.registered
    if process is None or not log:
        return
    is_full = cluster.rng.random() < FULL
    body = rpc.ReportDamageRequest(broker_id=broker.id, broker_epoch=process.epoch)
    body.topics.add(topic_id=key[0]).partitions.add(
        partition_index=key[1], leader_epoch=partition.leader_epoch, is_full=is_full
    )

    def answered(response: Any, _: int) -> None:
        is_granted = response is not None and response.topics[0].partitions[0].error_code == NO_ERROR
        if is_granted and not is_full:
            del log[cluster.rng.randrange(len(log)) :]
            cluster.promises.note_losses()

    cluster.controller.ask(rpc.ControllerRequest(report_damage=body), answered)

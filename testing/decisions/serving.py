"""Leaders and followers: records are written, fetched, committed, and leaders say who is in sync.

A leader goes by the metadata of now. What it asks the controller may come late, and twice.
"""

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.decisions.elr import MIN_IN_SYNC
from ottla.quorum.metadata.delta import PartitionKey
from ottla.quorum.metadata.views import PartitionView
from ottla.testing.decisions.cluster import TOPIC, Cluster
from ottla.testing.decisions.disks import Log, agreed

SKIPPED = 0.3  # of fetches
FETCHED = (0, 1, 2, 99)  # records at once
EXPANDS = 0.8  # where somebody may join
SHRINKS = 0.15  # where more than one is in sync
LAGGARDS = 0.5  # where somebody in sync fetches nothing
TWICE = 0.2  # of what is asked


def write(cluster: Cluster, key: PartitionKey) -> None:
    """A producer's record."""
    found = cluster.leading(key)
    if found is not None:
        partition, log = found
        log.append((partition.leader_epoch, cluster.next_record()))


def follow(cluster: Cluster, key: PartitionKey) -> None:
    """Followers fetch, most of them."""
    found = cluster.leading(key)
    if found is None:
        return
    partition, log = found
    for broker_id in partition.replicas:
        if broker_id != partition.leader and cluster.rng.random() >= SKIPPED:
            _fetch(cluster, key, broker_id, log)
    cluster.promises.note_loss(key, partition)


def _fetch(cluster: Cluster, key: PartitionKey, broker_id: int, leading: Log) -> None:
    """What parts from the leader's log is cut off, and some of what follows there is taken over."""
    broker = cluster.brokers[broker_id]
    log = broker.hosted(key)
    if broker.registered is None or log is None or (broker_id in cluster.slow and cluster.are_faults_on):
        return
    start = agreed(log, leading)
    log[start:] = leading[start : start + cluster.rng.choice(FETCHED)]
    cluster.told.setdefault(key, {})[broker_id] = (broker.registered.epoch, len(log))
    if len(log) == len(leading):
        broker.suspect.discard(key)


def advance(cluster: Cluster, key: PartitionKey) -> None:
    """The leader commits what all in sync have, if enough are. Who is on its way in is waited for as well."""
    found = cluster.leading(key)
    if found is None or len(found[0].isr) < _min_in_sync(cluster, found[0]):
        return
    partition, log = found
    waited_for = [*partition.isr]
    for proposed in _pending(cluster, key, partition):
        waited_for += [member.broker_id for member in proposed.new_isr]
    told = cluster.told.get(key, {})
    ends = [told.get(each, (0, -1))[1] for each in waited_for if each != partition.leader]
    cluster.promises.commit(key, partition, log, min([len(log), *ends]))


def _min_in_sync(cluster: Cluster, partition: PartitionView) -> int:
    minimum = int(cluster.controller.state.topic_config(TOPIC, MIN_IN_SYNC, "1"))
    return min(minimum, len(partition.replicas))


def _pending(
    cluster: Cluster, key: PartitionKey, partition: PartitionView
) -> list[rpc.AlterPartitionRequest.Partition]:
    """What the leader asked and may still be granted. Once the partition is another it knows that nothing will come of it."""
    asked = [request.alter_partition.topics[0].partitions[0] for request, of in cluster.proposals if of == key]
    return [each for each in asked if each.partition_epoch == partition.partition_epoch]


def propose(cluster: Cluster, key: PartitionKey) -> None:
    """A leader that waits for no answer asks for another ISR, if there is reason for one."""
    found = cluster.leading(key)
    if found is None or _pending(cluster, key, found[0]):
        return
    partition, log = found
    isr = _better_isr(cluster, key, partition, log)
    if isr not in (None, partition.isr):
        cluster.proposals.append((_alter_partition(cluster, key, partition, isr or ()), key))


def _better_isr(cluster: Cluster, key: PartitionKey, partition: PartitionView, log: Log) -> tuple[int, ...] | None:
    rng = cluster.rng
    joining = _may_join(cluster, key, partition, log)
    if joining and rng.random() < EXPANDS:
        return (*partition.isr, rng.choice(joining))
    if not cluster.are_faults_on:
        return None
    if cluster.slow.intersection(partition.isr) and rng.random() < LAGGARDS:
        return tuple(each for each in partition.isr if each == partition.leader or each not in cluster.slow)
    if len(partition.isr) > 1 and rng.random() < SHRINKS:
        return tuple(each for each in partition.isr if each == partition.leader or rng.random() < 0.5)
    return None


def _may_join(cluster: Cluster, key: PartitionKey, partition: PartitionView, log: Log) -> list[int]:
    """Who has what is committed, and the beginning of the leader's epoch."""
    told = cluster.told.get(key, {})
    begins = next((index for index, (epoch, _) in enumerate(log) if epoch >= partition.leader_epoch), len(log))
    needed = max(begins, len(cluster.promises.of(key)))
    return [each for each in partition.replicas if each not in partition.isr and told.get(each, (0, -1))[1] >= needed]


def _alter_partition(
    cluster: Cluster, key: PartitionKey, partition: PartitionView, isr: tuple[int, ...]
) -> rpc.ControllerRequest:
    told = cluster.told.get(key, {})
    epochs = {each: told[each][0] if each in told else cluster.registered_epoch(each) for each in isr}
    body = rpc.AlterPartitionRequest(
        broker_id=partition.leader, broker_epoch=cluster.registered_epoch(partition.leader)
    )
    body.topics.add(topic_id=key[0]).partitions.add(
        partition_index=key[1],
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr=[rpc.AlterPartitionRequest.Member(broker_id=each, broker_epoch=epochs[each]) for each in isr],
    )
    return rpc.ControllerRequest(alter_partition=body)


def deliver(cluster: Cluster) -> None:
    """One of the leaders' requests comes to the controller, and some of them again later."""
    if not cluster.proposals:
        return
    index = cluster.rng.randrange(len(cluster.proposals))
    request, _ = cluster.proposals[index]
    if not cluster.are_faults_on or cluster.rng.random() >= TWICE:
        del cluster.proposals[index]
    cluster.controller.ask(request)

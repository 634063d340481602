"""What people ask of the controller while all that goes on."""

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.decisions.configs import SET
from ottla.quorum.controller.decisions.elections import PREFERRED, UNCLEAN
from ottla.quorum.controller.decisions.elr import ELR_VERSION, MIN_IN_SYNC
from ottla.quorum.controller.decisions.features import SAFE_DOWNGRADE, UPGRADE
from ottla.quorum.controller.decisions.state import UNCLEAN_ELECTION
from ottla.quorum.metadata.views import DIRECTORY_LOST, NO_LEADER, TOPIC_RESOURCE
from ottla.testing.decisions.cluster import TOPIC, Cluster

FACTOR = 3
TARGETS = (2, 3, 3, 3, 1)  # replicas
GIVES_UP = 0.3  # of moves that are asked for


def create_topic(cluster: Cluster, partitions: int) -> None:
    topic = rpc.CreateTopicsRequest.Topic(name=TOPIC, num_partitions=partitions, replication_factor=FACTOR)
    cluster.controller.ask(rpc.ControllerRequest(create_topics=rpc.CreateTopicsRequest(topics=[topic])))


def keep_eligible(cluster: Cluster, level: int) -> None:
    """Eligible leaders are kept from now on (1), or no more (0)."""
    body = rpc.UpdateFeaturesRequest()
    kind = UPGRADE if level else SAFE_DOWNGRADE
    body.updates.add(name=ELR_VERSION, max_version_level=level, upgrade_type=kind)
    cluster.controller.ask(rpc.ControllerRequest(update_features=body))


def raise_or_lower(cluster: Cluster) -> None:
    keep_eligible(cluster, cluster.rng.choice((0, 1)))


def set_min_in_sync(cluster: Cluster) -> None:
    _configure(cluster, MIN_IN_SYNC, str(cluster.rng.choice((1, 2, 3))))


def toggle_unclean(cluster: Cluster) -> None:
    _configure(cluster, UNCLEAN_ELECTION, cluster.rng.choice(("true", "false")))


def _configure(cluster: Cluster, name: str, value: str) -> None:
    body = rpc.IncrementalAlterConfigsRequest()
    resource = body.resources.add(resource_type=TOPIC_RESOURCE, resource_name=TOPIC)
    resource.changes.add(name=name, operation=SET, value=value)
    cluster.controller.ask(rpc.ControllerRequest(incremental_alter_configs=body))


def reassign(cluster: Cluster) -> None:
    """A move of one partition, to any brokers, also while another is under way; or it is given up. Where nobody but who was coming is in sync
    (or nobody at all) those who were coming stay, and are among the replicas to which a move that is given up goes back."""
    key = cluster.any_partition()
    partition = cluster.partitions()[key]
    asked_for = cluster.asked_for.setdefault(key, [partition.replicas])
    if all(each in partition.adding for each in partition.isr):
        cluster.stuck.add(key)
    body = rpc.AlterPartitionReassignmentsRequest(allow_replication_factor_change=True)
    asked = body.topics.add(name=TOPIC).partitions.add(partition_index=key[1])
    if cluster.rng.random() < GIVES_UP:
        asked.cancel = True
    else:
        target = cluster.rng.sample(list(cluster.brokers), cluster.rng.choice(TARGETS))
        asked_for.append(tuple(target))
        asked.replicas.extend(target)
    cluster.controller.ask(rpc.ControllerRequest(alter_partition_reassignments=body))


def elect(cluster: Cluster) -> None:
    """The first replicas are to lead."""
    body = rpc.ElectLeadersRequest(election_type=PREFERRED, all_partitions=True)
    cluster.controller.ask(rpc.ControllerRequest(elect_leaders=body))


def say_who_leads(cluster: Cluster) -> None:
    """As a person does where all that was last trusted is lost: it was told so, and nobody is elected without being asked."""
    for (_, index), partition in cluster.partitions().items():
        known = (*partition.isr, *partition.elr, *partition.last_known_elr)
        are_lost = known and all(partition.directory_of(each) == DIRECTORY_LOST for each in known)
        if partition.leader == NO_LEADER and are_lost:
            body = rpc.ElectLeadersRequest(election_type=UNCLEAN)
            body.topics.add(name=TOPIC, partitions=[index])
            cluster.controller.ask(rpc.ControllerRequest(elect_leaders=body))


def unregister(cluster: Cluster) -> None:
    """Anybody, whether it runs or not."""
    body = rpc.UnregisterBrokerRequest(broker_id=cluster.any_broker().id)
    cluster.controller.ask(rpc.ControllerRequest(unregister_broker=body))

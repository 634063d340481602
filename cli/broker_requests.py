"""What `ottla brokers list` and `describe` show. Both raise CommandError."""

from ottla.cli.cluster_state import BrokerNow, ClusterNow, read_cluster
from ottla.cli.failures import CommandError
from ottla.cli.output import Row
from ottla.cli.placing import Place


def the_broker(now: ClusterNow, broker_id: int) -> BrokerNow:
    """Raises CommandError when there is none."""
    if broker_id not in now.brokers:
        there = ", ".join(map(str, sorted(now.brokers)))
        raise CommandError(f"broker {broker_id} is not registered: there are {there}")
    return now.brokers[broker_id]


def broker_rows(bootstrap: str) -> list[Row]:
    """A row a broker; replicas on brokers that are registered no more have rows too."""
    now = read_cluster(bootstrap)
    rows = [_row(broker.node_id, broker, now) for broker in now.brokers.values()]
    lost = sorted({each for place in now.partitions.values() for each in place.replicas} - set(now.brokers))
    return [*rows, *(_row(each, None, now) for each in lost)]


def _row(node_id: int, broker: BrokerNow | None, now: ClusterNow) -> Row:
    there = now.on(node_id)
    state = "not registered" if broker is None else "away" if broker.is_fenced else "in service"
    known = broker is not None and bool(broker.directories)
    return {
        "broker": node_id,
        "address": broker.address if broker is not None else None,
        "rack": broker.rack if broker is not None else None,
        "state": state,
        "leads": sum(each.leader == node_id for each in there.values()),
        "replicas": len(there),
        "out of sync": sum(node_id not in each.in_sync for each in there.values()),
        "moving in": sum(node_id in each.adding for each in now.moving.values()),
        "bytes": sum(now.sizes.get((place, node_id), 0) for place in there) if known else None,
    }


def replica_rows(bootstrap: str, broker_id: int) -> list[Row]:
    """A row a replica."""
    now = read_cluster(bootstrap)
    broker = the_broker(now, broker_id)
    directories: dict[Place, str] = {
        (topic.name, each.partition_index): directory.log_dir
        for directory in broker.directories
        for topic in directory.topics
        for each in topic.partitions
        if not each.is_future_key
    }
    return [
        {
            "topic": place[0],
            "partition": place[1],
            "role": "leader" if each.leader == broker_id else "follower",
            "in sync": broker_id in each.in_sync,
            "bytes": now.sizes.get((place, broker_id)),
            "directory": directories.get(place),
            "moves": _moves(place, broker_id, now),
        }
        for place, each in sorted(now.on(broker_id).items())
    ]


def _moves(place: Place, broker_id: int, now: ClusterNow) -> str | None:
    moving = now.moving.get(place)
    if moving is None:
        return None
    if broker_id in moving.adding:
        return "comes"
    return "goes" if broker_id in moving.removing else None

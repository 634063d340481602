"""Eligible leader replicas (KIP-966): who is out of the ISR and still has all that is committed.

While fewer replicas are in sync than min.insync.replicas, the leader commits nothing (`high_watermark.py`). So who leaves an ISR that is,
or thereby gets, smaller than that lacks nothing, for as long as it stays smaller, and unless it loses what it has: a broker that did not
stop in order, a directory that failed, damage.
"""

from typing import TYPE_CHECKING

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions.decision import Record
from ottla.quorum.metadata.families.settings import config_record
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import BROKER_RESOURCE, NO_LEADER, PartitionView

if TYPE_CHECKING:
    from ottla.quorum.controller.decisions.state import ControllerState

ELR_VERSION = "eligible.leader.replicas.version"
MIN_IN_SYNC = "min.insync.replicas"


def uses_elr(image: MetadataImage) -> bool:
    return image.features.get(ELR_VERSION, 0) > 0


def min_in_sync(state: "ControllerState", topic_id: bytes) -> int | None:
    """The topic's min.insync.replicas, as every broker goes by it; None: eligible leaders are not kept."""
    if not uses_elr(state.image):
        return None
    return int(state.topic_config(state.image.topics_by_id[topic_id].name, MIN_IN_SYNC, "1"))


def out_of_sync(before: PartitionView, replicas: tuple[int, ...], isr: tuple[int, ...], loser: int) -> tuple[int, ...]:
    """Who is not in ``isr``, the one of now, and was, or was eligible. ``loser`` lost what it had."""
    known = dict.fromkeys((*before.elr, *before.isr))
    return tuple(each for each in known if each in replicas and each not in isr and each != loser)


def eligible(
    candidates: tuple[int, ...], replicas: tuple[int, ...], isr: tuple[int, ...], minimum: int
) -> tuple[int, ...]:
    """Those of them who have what is committed from here on: all or none. ``isr``: with who was elected, if it came of them."""
    return candidates if len(isr) < min(minimum, len(replicas)) else ()


def last_known(
    before: PartitionView, replicas: tuple[int, ...], known: tuple[int, ...], leader: int
) -> tuple[int, ...]:
    """Who led last, of a partition that nobody leads: from then on, for whoever is in sync still may be lost as well. ``known``: who
    was known as that, ``leader``: the one of now. Who is no replica any more will never lead, and takes nobody's place."""
    if leader != NO_LEADER:
        return ()
    return (before.leader,) if before.leader in replicas else known


def records_to_begin(state: "ControllerState") -> list[Record]:
    """min.insync.replicas is one for all brokers from here on, as `min_in_sync` takes it: of their files and their own settings
    none counts any more."""
    configs = state.image.configs
    records = []
    if MIN_IN_SYNC not in configs.get((BROKER_RESOURCE, ""), {}):
        value = state.settings.topic_defaults.get(MIN_IN_SYNC, "1")
        records.append(config_record(BROKER_RESOURCE, "", MIN_IN_SYNC, value))
    for (kind, name), values in configs.items():
        if kind == BROKER_RESOURCE and name and MIN_IN_SYNC in values:
            records.append(config_record(kind, name, MIN_IN_SYNC, None))
    return records


def records_to_end(state: "ControllerState") -> list[Record]:
    """Partitions without anybody in sync get back what would have stayed in sync without eligible leaders; the others need none."""
    records = []
    for topic_id in list(state.replicas.leaderless_topics()):
        for index, partition in state.image.topics_by_id[topic_id].partitions.items():
            if partition.elr or partition.last_known_elr:
                change = pb.PartitionChange(topic_id=topic_id, partition_id=index)
                change.isr.ids.extend(partition.isr or partition.elr or partition.last_known_elr)
                change.eligible_leader_replicas.SetInParent()
                change.last_known_elr.SetInParent()
                records.append(Record(partition_change=change))
    return [*records, Record(clear_elr=pb.ClearElr())]

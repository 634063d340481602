"""Feature levels: what every node of the cluster can read, so that nobody meets a record it does not know (kraft.md 2.9)."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions.decision import Decision, Record
from ottla.quorum.controller.decisions.elr import ELR_VERSION, records_to_begin, records_to_end, uses_elr
from ottla.quorum.controller.decisions.record_levels import METADATA_VERSION, written_above
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.raft.voters import KRAFT_VERSION, STATIC_VOTERS, VOTERS_IN_LOG
from ottla.runtime.errors import ErrorCode, KafkaError

GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


class Levels(NamedTuple):
    """What this version of Ottla reads, and what a new cluster starts with (0: not finalized)."""

    lowest: int
    highest: int
    initial: int


SUPPORTED: Mapping[str, Levels] = {
    # Kafka's numbers: 25 is 4.0-IV3, 30 is 4.3-IV0. Clients and tools see them; our records have not changed yet.
    METADATA_VERSION: Levels(25, 30, 30),
    # Not a record of the metadata: a control record of the log, written with the first voters (KIP-853).
    KRAFT_VERSION: Levels(STATIC_VOTERS, VOTERS_IN_LOG, STATIC_VOTERS),
    # 1: records of transactions with tagged fields. 2: each end of a transaction bumps its producer's epoch (KIP-890).
    TRANSACTION_VERSION: Levels(0, 2, 2),
    # 1: who is out of the ISR and has all that is committed may lead (KIP-966).
    ELR_VERSION: Levels(0, 1, 0),
    # 1: the coordinator of groups serves the consumer protocol (KIP-848), and writes its records.
    GROUP_VERSION: Levels(0, 1, 1),
}


def metadata_version(state: ControllerState) -> int:
    """The finalized level; that of a new cluster before it has written its first record."""
    return state.image.features.get(METADATA_VERSION) or SUPPORTED[METADATA_VERSION].initial


def supported_ranges() -> list[pb.FeatureRange]:
    """What a node of this version registers with."""
    return [
        pb.FeatureRange(name=name, min_version=levels.lowest, max_version=levels.highest)
        for name, levels in SUPPORTED.items()
    ]


def first_records(state: ControllerState) -> list[Record]:
    """The first records of a new cluster, with what its levels ask for."""
    levels = SUPPORTED.get(ELR_VERSION)
    return [*bootstrap_records(), *(records_to_begin(state) if levels is not None and levels.initial else [])]


def bootstrap_records() -> list[Record]:
    """The levels that a new cluster begins with."""
    return [
        Record(feature_level=pb.FeatureLevel(name=name, level=levels.initial))
        for name, levels in SUPPORTED.items()
        if levels.initial
    ]


def finalized(image: MetadataImage, kraft_version: int) -> dict[str, int]:
    """The levels in use; a feature that is not, is missing."""
    return {**image.features, KRAFT_VERSION: kraft_version} if kraft_version else dict(image.features)


def check_ranges(state: ControllerState, ranges: Iterable[pb.FeatureRange], who: str) -> None:
    """Raises KafkaError (UNSUPPORTED_VERSION) unless ``who`` reads every finalized level."""
    by_name = {each.name: each for each in ranges}
    for name, level in finalized(state.image, state.members.kraft_version).items():
        known = by_name.get(name)
        if known is None or not known.min_version <= level <= known.max_version:
            reads = f"{known.min_version} to {known.max_version}" if known is not None else "none of its levels"
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"the cluster uses {name} at level {level}, {who} reads {reads}"
            )


def register_controller(
    state: ControllerState, request: rpc.RegisterControllerRequest
) -> Decision[rpc.RegisterControllerResponse]:
    """Notes what a controller node can read. The same incarnation again changes nothing."""
    check_ranges(state, request.features, f"controller {request.controller_id}")
    known = state.image.controllers.get(request.controller_id)
    if known is not None and known.incarnation_id == request.incarnation_id:
        return Decision(rpc.RegisterControllerResponse())
    body = pb.RegisterController(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        endpoints=request.endpoints,
        features=request.features,
        rack=request.rack if request.HasField("rack") else None,
    )
    return Decision(rpc.RegisterControllerResponse(), [Record(register_controller=body)])


def forget_controllers(state: ControllerState) -> list[Record]:
    """Controllers that neither vote nor follow the log are gone, and hold no level back; one that comes back registers again."""
    members = state.members
    return [
        Record(unregister_controller=pb.UnregisterController(controller_id=node_id))
        for node_id in state.image.controllers
        if node_id not in members.voters and node_id not in members.present
    ]


def update_features(state: ControllerState, request: rpc.UpdateFeaturesRequest) -> Decision[rpc.UpdateFeaturesResponse]:
    """Raises or lowers levels: all of them or none. Raises KafkaError: INVALID_UPDATE_VERSION, INVALID_REQUEST."""
    records = []
    upgrades_quorum = False
    seen: dict[str, None] = {}
    for update in request.updates:
        if update.name in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{update.name} is named twice")
        seen[update.name] = None
        _check_update(state, update)
        if update.name == KRAFT_VERSION:
            members = state.members
            upgrades_quorum = update.max_version_level > members.kraft_version or not members.is_committed
            continue
        level = pb.FeatureLevel(name=update.name, level=update.max_version_level)
        records += [*_before_level(state, update), Record(feature_level=level)]
    records = [] if request.validate_only else records
    return Decision(rpc.UpdateFeaturesResponse(), records, upgrades_quorum=upgrades_quorum)


def _before_level(state: ControllerState, update: rpc.UpdateFeaturesRequest.Update) -> list[Record]:
    """What has to be so when the level takes effect."""
    if update.name != ELR_VERSION or bool(update.max_version_level) == uses_elr(state.image):
        return []
    return records_to_begin(state) if update.max_version_level else records_to_end(state)


def _check_update(state: ControllerState, update: rpc.UpdateFeaturesRequest.Update) -> None:
    name, level = update.name, update.max_version_level
    levels = SUPPORTED.get(name)
    if levels is None:
        raise _refused(f"{name} is not known")
    lowest = levels.lowest if name == METADATA_VERSION else 0
    if not lowest <= level <= levels.highest:
        raise _refused(f"{name} has the levels {lowest} to {levels.highest}, not {level}")
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{update.upgrade_type} is no kind of upgrade")
    current = finalized(state.image, state.members.kraft_version).get(name, 0)
    if level < current and update.upgrade_type == UPGRADE:
        raise _refused(f"{name} is at {current}: to go back to {level}, ask for a downgrade")
    if level > current and update.upgrade_type != UPGRADE:
        raise _refused(f"{name} is at {current}: {level} is no downgrade")
    if level < current and name == KRAFT_VERSION:
        raise _refused(f"{name} has no downgrade: the log names the voters for good")
    if update.upgrade_type == UNSAFE_DOWNGRADE and name == METADATA_VERSION:
        raise _refused("metadata.version has no unsafe downgrade")
    if name == METADATA_VERSION and (unreadable := written_above(level, current)) is not None:
        raise _refused(f"the log may hold {unreadable}: it cannot be taken back")
    # Who has not registered yet is refused when it comes and does not read the lower level.
    voters = state.members.voters if level > current else ()
    reason = who_cannot_read(state.image, name, level, voters) if level != current else None
    if reason is not None:
        raise _refused(reason)


def who_cannot_read(
    image: MetadataImage, name: str, level: int, voters: Iterable[int], leaving: int = -1
) -> str | None:
    """Who keeps the cluster from that level, and what to do; None: everybody reads it. The voter ``leaving`` need not."""
    unknown = [voter for voter in voters if voter not in image.controllers and voter != leaving]
    if unknown:
        return f"controller {unknown[0]} votes and has not registered: start it, or remove it from the quorum"
    nodes = [("broker", each.id, each.features) for each in image.brokers.values()]
    nodes += [("controller", each.id, each.features) for each in image.controllers.values() if each.id != leaving]
    for role, node_id, features in nodes:
        known = features.get(name)
        if known is None or not known.min_version <= level <= known.max_version:
            way = "it is too new for it" if known is not None and level < known.min_version else "upgrade it"
            return f"{role} {node_id} does not read level {level} of {name}: {way}, or unregister it if it is gone"
    return None


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)

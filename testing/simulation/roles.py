"""Names for whoever has an office at the moment: in a fault's arguments they stand for the node that has it when it begins."""

from ottla.testing.simulation.invariants import Invariants

CONTROLLER = "controller"
ALWAYS_THERE = "flights"
LEADER, FOLLOWER, OTHER, THIRD, FORMER = "leader", "follower", "other", "third", "former"


def leader_of(topic: str, index: int) -> str:
    """Who leads the partition."""
    return f"{LEADER}:{topic}:{index}"


def follower_of(topic: str, index: int) -> str:
    """The first of its replicas that does not lead."""
    return f"{FOLLOWER}:{topic}:{index}"


def other_follower_of(topic: str, index: int) -> str:
    """The second of them."""
    return f"{OTHER}:{topic}:{index}"


def third_of(topic: str, index: int) -> str:
    """The first of them that is not the controller either."""
    return f"{THIRD}:{topic}:{index}"


def former_leader_of(topic: str, index: int) -> str:
    """Who led it before."""
    return f"{FORMER}:{topic}:{index}"


def resolve(name: str, invariants: Invariants) -> str:
    """The node's name; "" when nobody has that office. Any other text is itself. `flights` stands for a topic that the run lacks."""
    if name == CONTROLLER:
        return f"node-{invariants.quorum_leader}" if invariants.quorum_leader >= 0 else ""
    office, _, place = name.partition(":")
    if office not in (LEADER, FOLLOWER, OTHER, THIRD, FORMER) or not place:
        return name
    topic, _, index = place.partition(":")
    topics = invariants.metadata.topics_by_name
    view = topics.get(topic, topics.get(ALWAYS_THERE))
    partition = view.partitions.get(int(index)) if view is not None else None
    if partition is None or partition.leader < 0:
        return ""
    followers = [each for each in partition.replicas if each != partition.leader]
    thirds = [each for each in followers if each != invariants.quorum_leader]
    former = invariants.former_leader(view.id, int(index), partition.leader) if view is not None else -1
    holders = {
        LEADER: [partition.leader],
        FOLLOWER: followers[:1],
        OTHER: followers[1:2],
        THIRD: thirds[:1],
        FORMER: [former] if former >= 0 else [],
    }[office]
    return f"node-{holders[0]}" if holders else ""

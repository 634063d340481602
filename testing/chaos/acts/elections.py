"""Leaders that are asked for, and leaders that lack records."""

from collections.abc import Iterable

from ottla.broker.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.broker.wire.messages.elect_leaders_response import ElectLeadersResponse
from ottla.broker.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.broker.wire.messages.metadata_response import MetadataResponse
from ottla.testing.chaos.acts import Act
from ottla.testing.chaos.cluster import ChaosCluster
from ottla.testing.chaos.roles import Place
from ottla.testing.chaos.scene import Scene
from ottla.testing.chaos.workloads import kept
from ottla.testing.processes import wait_for

PREFERRED, UNCLEAN = 0, 1
_BEHIND_S = 3.0


def elect(cluster: ChaosCluster, kind: int, places: Iterable[Place]) -> None:
    """Whether it came to that, the metadata say."""
    asked = ElectLeadersRequest(kind, [TopicPartitions(place.topic, [place.partition]) for place in places], 10_000)
    cluster.ask_any(asked, ElectLeadersResponse, lambda answer: answer.error_code == 0)


def unclean(*, asked: bool) -> Act:
    """One broker dies and falls behind; the two others die at once, and the first comes back alone: it leads, because that is allowed or
    because somebody asks for it. Controllers are nodes of their own, and live."""

    def act(scene: Scene) -> None:
        cluster, places = scene.cluster, scene.subjects.places
        late = scene.who("follower")
        rest = [each for each in cluster.broker_ids if each != late]
        cluster.kill(late)
        wait_for(
            lambda: not any(late in scene.roles.partition(place).isr_nodes for place in places),
            f"broker {late} to be out of sync",
        )
        done = scene.went_on()
        scene.hold(_BEHIND_S)
        scene.tell(f"{scene.went_on() - done} operations went well without broker {late}")
        before = {place: scene.roles.partition(place).leader_epoch for place in places}
        in_sync = {place: scene.roles.partition(place).isr_nodes for place in _all_of(cluster, late, places)}
        for node in rest:
            cluster.kill(node)
        kept.write(
            cluster.home.parent, {place: _common(cluster, place, late, nodes) for place, nodes in in_sync.items()}
        )
        cluster.start(late)
        if asked:
            _wait_until_nobody_leads(cluster, places)
            elect(cluster, UNCLEAN, places)
        wait_for(lambda: all(scene.roles.leader(place) == late for place in places), f"broker {late} to lead", 60)
        epochs = [scene.roles.partition(place).leader_epoch > epoch for place, epoch in before.items()]
        scene.prove(all(epochs), f"broker {late} leads {len(places)} partitions, and was in sync in none of them")
        scene.hold()

    return act


def _wait_until_nobody_leads(cluster: ChaosCluster, places: Iterable[Place]) -> None:
    """Who asks for an election before the dead are known to be dead is told that none is needed, and nobody asks again."""
    indexes: dict[str, set[int]] = {}
    for place in places:
        indexes.setdefault(place.topic, set()).add(place.partition)
    asked = MetadataRequest([MetadataRequestTopic(name=topic) for topic in indexes], allow_auto_topic_creation=False)

    def is_leaderless(answer: MetadataResponse) -> bool:
        leaderless = {
            (topic.name, each.partition_index)
            for topic in answer.topics
            for each in topic.partitions
            if each.leader_id < 0
        }
        return all((topic, index) in leaderless for topic, of_topic in indexes.items() for index in of_topic)

    cluster.ask_any(asked, MetadataResponse, is_leaderless)


def _all_of(cluster: ChaosCluster, node: int, places: Iterable[Place]) -> list[Place]:
    """Every partition of these topics: a broker holds a replica of each."""
    topics = {place.topic for place in places}
    names = [path.name.rpartition("-") for root in cluster.data_directories()[node] for path in root.iterdir()]
    return [Place(topic, int(index)) for topic, _, index in names if topic in topics and index.isdecimal()]


def _common(cluster: ChaosCluster, place: Place, late: int, in_sync: Iterable[int]) -> int:
    """Up to where the log of ``late`` is that of those who were in sync. It may have led before it died: then its end is nobody's."""
    name, directories = f"{place.topic}-{place.partition}", cluster.data_directories()
    [log] = [path / name for path in directories[late]]
    return max(kept.common(log, path / name) for node in in_sync for path in directories[node])

"""Changes that an administrator makes while everybody works: replicas, leaders, voters, features."""

from collections.abc import Mapping, Sequence

from ottla.cli import feature_requests, quorum_requests, reassign_requests
from ottla.cli.where import Where
from ottla.testing.chaos.acts import Act
from ottla.testing.chaos.acts.elections import PREFERRED, elect
from ottla.testing.chaos.cluster import servers
from ottla.testing.chaos.roles import Place
from ottla.testing.chaos.scene import Scene
from ottla.testing.processes import wait_for

UPGRADE, SAFE_DOWNGRADE = 1, 2
_MOVED_S = 60.0
_CHANGE_MS = 20_000


def reassignment(*, kill: str = "") -> Act:
    """Every partition of the workloads gives a replica away and gets another back, again and again; a node of the role ``kill`` is
    killed while that is under way."""

    def act(scene: Scene) -> None:
        moved = 0
        places = scene.subjects.places
        for turn in range(2):
            whole = {place: _rotated(scene, place) for place in places}
            moved += _move(scene, {place: replicas[:2] for place, replicas in whole.items()})
            if kill and turn == 0:
                node = scene.who(kill)
                scene.cluster.kill(node)
                scene.tell(f"node {node} was killed")
            moved += _begin(scene, whole)
            if kill and turn == 0:
                scene.cluster.start(node)
            _wait(scene, whole)
        scene.prove(moved > 0, f"{moved} times a partition's replicas changed while records were written")

    return act


def elections() -> Act:
    """Leaders change by preferred elections, again and again."""

    def act(scene: Scene) -> None:
        changed = 0
        for _ in range(max(2, int(scene.seconds / 1.5))):
            before = {place: scene.roles.leader(place) for place in scene.subjects.places}
            _move(scene, {place: _rotated(scene, place) for place in before})
            elect(scene.cluster, PREFERRED, before)
            scene.hold(1.0)
            changed += sum(scene.roles.leader(place) != leader for place, leader in before.items())
        scene.prove(changed > 0, f"{changed} times a partition's leader changed by an election")

    return act


def feature(name: str, *, back: bool) -> Act:
    """A feature goes from 0 to 1, and back to 0 where that may be."""

    def act(scene: Scene) -> None:
        levels = [_level(scene, name)]
        for level, kind in [(1, UPGRADE), (0, SAFE_DOWNGRADE)] if back else [(1, UPGRADE)]:
            feature_requests.update_features(Where(_servers(scene)), {name: level}, kind, dry_run=False)
            wait_for(lambda level=level: _level(scene, name) == level, f"{name} {level}")  # type: ignore[misc]  # bound now
            levels.append(level)
            scene.hold(scene.seconds / 2)
        scene.prove(len(levels) > 1, f"{name} was {', then '.join(map(str, levels))}")

    return act


def voters(*, active: bool) -> Act:
    """A controller loses its vote, the active one or another, and gets it back."""

    def act(scene: Scene) -> None:
        if _level(scene, "kraft.version") == 0:
            feature_requests.update_features(Where(_servers(scene)), {"kraft.version": 1}, UPGRADE, dry_run=False)
            wait_for(lambda: _level(scene, "kraft.version") == 1, "voters in the log")
        node = scene.who("controller" if active else "voter")
        described = quorum_requests.described_controller(scene.cluster.nodes[node].properties)
        quorum_requests.remove(Where(_servers(scene)), node, described.directory_id, _CHANGE_MS)
        without = scene.roles.quorum()[2]
        scene.tell(f"voters are {without}")
        scene.hold()
        quorum_requests.add(Where(_servers(scene)), described, _CHANGE_MS)
        again = scene.roles.quorum()[2]
        scene.prove(node not in without and node in again, f"voters were {without}, and {again} again")

    return act


def _servers(scene: Scene) -> str:
    return servers(scene.cluster, scene.cluster.broker_ids)


def _level(scene: Scene, name: str) -> int:
    rows = feature_requests.feature_rows(Where(_servers(scene)))
    return next(int(str(row["finalized"])) for row in rows if row["feature"] == name)


def _rotated(scene: Scene, place: Place) -> list[int]:
    """All brokers, another one first than now."""
    now = scene.roles.partition(place).replica_nodes
    rest = [each for each in scene.cluster.broker_ids if each not in now]
    return [*now[1:], *rest, now[0]]


def _move(scene: Scene, plan: Mapping[Place, Sequence[int]]) -> int:
    begun = _begin(scene, plan)
    _wait(scene, plan)
    return begun


def _begin(scene: Scene, plan: Mapping[Place, Sequence[int]]) -> int:
    differ = {
        place: wanted for place, wanted in plan.items() if scene.roles.partition(place).replica_nodes != list(wanted)
    }
    reassign_requests.begin(
        _servers(scene), {(place.topic, place.partition): wanted for place, wanted in differ.items()}
    )
    return len(differ)


def _wait(scene: Scene, plan: Mapping[Place, Sequence[int]]) -> None:
    for place, wanted in plan.items():
        wait_for(
            lambda place=place, wanted=wanted: _is_done(scene, place, wanted),  # type: ignore[misc]  # bound now
            f"the replicas of {place.topic}-{place.partition} to be {wanted}",
            _MOVED_S,
        )


def _is_done(scene: Scene, place: Place, wanted: Sequence[int]) -> bool:
    partition = scene.roles.partition(place)
    return sorted(partition.replica_nodes) == sorted(wanted) == sorted(partition.isr_nodes)

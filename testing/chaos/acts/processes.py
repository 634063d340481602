"""Processes that are killed, stopped and started again."""

import signal
import time

from ottla.testing.chaos.acts import Act
from ottla.testing.chaos.cluster import process_state
from ottla.testing.chaos.rest import wait_for_rest
from ottla.testing.chaos.scene import Scene


def killed(role: str) -> Act:
    """kill -9, and a start when the time is over."""

    def act(scene: Scene) -> None:
        node = scene.who(role)
        pid = scene.cluster.kill(node)
        scene.prove(process_state(pid) == "", f"process {pid} of node {node} was killed with signal 9")
        scene.hold()
        scene.cluster.start(node)

    return act


def killed_pair(first: str, second: str) -> Act:
    """Two of three, one shortly after the other."""

    def act(scene: Scene) -> None:
        nodes = [scene.who(first)]
        _kill(scene, nodes[0])
        scene.hold(scene.rng.uniform(0.2, 1.5))
        left = [each for each in scene.cluster.broker_ids if each not in nodes]
        second_node = scene.who(second)
        nodes.append(second_node if second_node not in nodes else scene.rng.choice(left))
        _kill(scene, nodes[1])
        scene.hold()
        for node in scene.rng.sample(nodes, len(nodes)):
            scene.cluster.start(node, wait=False)

    return act


def _kill(scene: Scene, node: int) -> None:
    pid = scene.cluster.kill(node)
    scene.prove(process_state(pid) == "", f"process {pid} of node {node} was killed with signal 9")


def stopped(role: str) -> Act:
    """SIGSTOP, and SIGCONT when the time is over: it goes on as if no time had passed."""

    def act(scene: Scene) -> None:
        _stop(scene, [scene.who(role)])

    return act


def all_stopped() -> Act:
    def act(scene: Scene) -> None:
        _stop(scene, list(scene.cluster.nodes))

    return act


def _stop(scene: Scene, nodes: list[int]) -> None:
    pids = {node: scene.cluster.kill(node, signal.SIGSTOP) for node in nodes}
    time.sleep(0.05)
    scene.hold()
    states = {node: process_state(pid) for node, pid in pids.items()}
    scene.prove(set(states.values()) == {"T"}, f"stopped by a signal for {scene.seconds:.1f} s: nodes {sorted(states)}")
    for node in scene.rng.sample(nodes, len(nodes)):
        scene.cluster.kill(node, signal.SIGCONT)


def storm(role: str, times: int = 4) -> Act:
    """The same node is killed again and again, also before it is up."""

    def act(scene: Scene) -> None:
        node = scene.who(role)
        pids = []
        for _ in range(times):
            pids.append(scene.cluster.kill(node))
            scene.cluster.start(node, wait=False)
            scene.hold(scene.rng.uniform(0.3, 2.5))
        scene.prove(len(dict.fromkeys(pids)) == times, f"node {node} was killed {times} times: processes {pids}")
        scene.cluster.wait_ready(node)

    return act


def rolling() -> Act:
    """All nodes are stopped in order (SIGTERM) and started, the next when the cluster is at rest."""

    def act(scene: Scene) -> None:
        pids = []
        for node in scene.rng.sample(list(scene.cluster.nodes), len(scene.cluster.nodes)):
            pids.append(scene.cluster.kill(node, signal.SIGTERM))
            scene.cluster.start(node)
            wait_for_rest(scene.cluster)
        scene.prove(
            all(process_state(pid) == "" for pid in pids), f"processes {pids} ended in order, one after another"
        )

    return act


END_S = 30.0
"""Who is asked to end does so in two or three seconds, when nobody starves; and it is not asked again."""


def everybody(number: signal.Signals) -> Act:
    """All nodes at once, and all are started again."""

    def act(scene: Scene) -> None:
        cluster = scene.cluster
        pids = [cluster.nodes[node].alive_pid() for node in cluster.nodes]
        for node in cluster.nodes:
            cluster.send(node, number)
        scene.hold(0.5)
        until = time.monotonic() + END_S
        while (left := [node for node in cluster.nodes if cluster.is_alive(node)]) and time.monotonic() < until:
            scene.hold(0.1)
        scene.tell(f"{len(cluster.nodes) - len(left)} of {len(cluster.nodes)} nodes ended")
        for node in left:
            cluster.kill(node)
        scene.prove(not any(process_state(pid) for pid in pids if pid), f"processes {pids} are gone at once")
        scene.prove(number is signal.SIGKILL or not left, f"all ended by themselves after {number.name}")
        cluster.revive()

    return act

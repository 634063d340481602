"""Links that are slow, choked, broken or cut. What passed is counted by the kernel at the proxies; a probe meets what others meet."""

from collections.abc import Callable, Sequence

from ottla.testing.chaos import probes
from ottla.testing.chaos.acts import Act
from ottla.testing.chaos.links import CLIENTS, QUORUM, REPLICATION, Link
from ottla.testing.chaos.proxies import DOWN, UP, Attributes
from ottla.testing.chaos.scene import Scene
from ottla.testing.chaos.sockets import Traffic

Proof = Callable[[Scene, Sequence[Link]], None]

BLACK_HOLE: Attributes = {"timeout": 0}
"""Bytes are dropped for as long as it is there; connections end when it goes."""

_PROBE_S = 10.0
_MORE_TIMES = 15


def slow(kind: str, on: str, attributes: Attributes, least_ms: int) -> Act:
    """A toxic in both directions on all links of a kind. A stranger's question over one of them takes ``least_ms`` at least."""

    def act(scene: Scene) -> None:
        links = scene.cluster.links_of_kind(on)
        traffic = scene.traffic(links)
        for stream in (UP, DOWN):
            scene.cluster.give(links, f"{kind}-{stream}", kind, stream, attributes)
        _takes(scene, scene.rng.choice(links), least_ms)
        scene.hold(traffic=traffic)
        _passed(scene, traffic, links)
        for stream in (UP, DOWN):
            scene.cluster.take(links, f"{kind}-{stream}")

    return act


def _takes(scene: Scene, link: Link, least_ms: int) -> None:
    # Somebody may be killed or busy just then: three times is enough for one that is well.
    for _ in range(3):
        answer = probes.ask(scene.cluster.ports([link])[0], link.kind, _PROBE_S)
        if answer.what == probes.ANSWERED:
            break
    took = answer.seconds * 1000
    scene.prove(
        answer.what == probes.ANSWERED and took >= least_ms,
        f"a question over {link.name} was {answer.what} after {took:.0f} ms, {least_ms} or more with the toxic",
    )


def _passed(scene: Scene, traffic: Traffic, links: Sequence[Link]) -> None:
    scene.prove(
        traffic.received > 0,
        f"{traffic.received:,} bytes went and {traffic.sent:,} came back over {len(links)} links with the toxic",
    )


def slow_to_close(on: str, delay_ms: int) -> Act:
    """Who closes is heard of late. Connections are cut once meanwhile, so that there is something to close."""

    def act(scene: Scene) -> None:
        links = scene.cluster.links_of_kind(on)
        traffic = scene.traffic(links)
        for stream in (UP, DOWN):
            scene.cluster.give(links, f"slow-{stream}", "slow_close", stream, {"delay": delay_ms})
        took = 1000 * probes.seconds_to_close(scene.cluster.ports([links[0]])[0], _PROBE_S)
        scene.prove(took >= delay_ms, f"{links[0].name} took {took:.0f} ms to close, {delay_ms} or more with the toxic")
        scene.hold(traffic=traffic)
        _passed(scene, traffic, links)
        for stream in (UP, DOWN):
            scene.cluster.take(links, f"slow-{stream}")

    return act


def broken(kind: str, on: str, attributes: Attributes, on_s: float = 0.3, off_s: float = 0.7) -> Act:
    """A toxic that ends connections, on and off again until the time is over, and until it has ended one: of what ends them after so
    many bytes a machine that is slow enough may send fewer."""

    def act(scene: Scene) -> None:
        links = scene.cluster.links_of_kind(on)
        traffic = scene.traffic(links)
        least = max(1, round(scene.seconds / (on_s + off_s)))
        times = 0
        while times < least or (traffic.ended == 0 and times < least + _MORE_TIMES):
            times += 1
            for stream in (UP, DOWN):
                scene.cluster.give(links, f"{kind}-{stream}", kind, stream, attributes)
            scene.hold(on_s, traffic)
            for stream in (UP, DOWN):
                scene.cluster.take(links, f"{kind}-{stream}")
            scene.hold(off_s, traffic)
        scene.prove(traffic.ended > 0, f"{traffic.ended} of {traffic.opened} connections ended, {kind} {times} times")

    return act


def lost_one_way(source: int, target: int) -> Act:
    """What one node sends to another is lost, on connections of either; the other way bytes pass. ``source`` and ``target`` count
    brokers from 0, or controllers from 0 where they are nodes of their own and both roles are asked for by `lost_one_way_quorum`."""

    def act(scene: Scene) -> None:
        brokers = scene.cluster.broker_ids
        _lost(scene, brokers[source], brokers[target])

    return act


def lost_one_way_quorum() -> Act:
    """What the active controller sends to another voter is lost, or the other way."""

    def act(scene: Scene) -> None:
        pair = [scene.who("controller"), scene.who("voter")]
        scene.rng.shuffle(pair)
        _lost(scene, *pair)

    return act


def _lost(scene: Scene, source: int, target: int) -> None:
    cluster = scene.cluster
    there = [each for each in cluster.links if each.source == source and each.target == target]
    back = [each for each in cluster.links if each.source == target and each.target == source]
    asked, answered = scene.traffic(there), scene.traffic(back)
    cluster.give(there, "lost", "timeout", UP, BLACK_HOLE)
    cluster.give(back, "lost", "timeout", DOWN, BLACK_HOLE)
    scene.tell(f"what node {source} sends to node {target} is lost")
    answer = probes.ask(cluster.ports(there)[0], there[0].kind, 1.0)
    scene.prove(answer.what != probes.ANSWERED, f"a question over {there[0].name} was {answer.what}")
    scene.hold(traffic=asked)
    answered.look()
    scene.prove(
        asked.received > 0 or answered.received > 0,
        f"{asked.received:,} bytes of node {source} to node {target} were lost, and its answers to {answered.received:,} bytes",
    )
    cluster.take(there, "lost")
    cluster.take(back, "lost")


def cut_off(role: str, *, from_clients: bool | None = None) -> Act:
    """A node and its peers reach one another no more: refused or in silence, as drawn; and clients reach it, or not."""

    def act(scene: Scene) -> None:
        node = scene.who(role)
        links = scene.cluster.links_between([node], scene.cluster.others(node))
        away = scene.rng.random() < 0.5 if from_clients is None else from_clients
        if away and node in scene.cluster.broker_ids:
            links += scene.cluster.links_to_clients([node])
            scene.tell("clients do not reach it either")
        apart(scene, links)

    return act


def only_clients(role: str) -> Act:
    """Clients do not reach it; its peers do."""

    def act(scene: Scene) -> None:
        apart(scene, scene.cluster.links_to_clients([scene.who(role)]))

    return act


def bridge() -> Act:
    """Two nodes do not reach one another; a third reaches both. Where controllers are nodes of their own, two of them as well."""

    def act(scene: Scene) -> None:
        links: dict[Link, None] = {}
        for nodes in {scene.cluster.broker_ids, scene.cluster.controller_ids}:
            one, other = scene.rng.sample(nodes, 2)
            scene.tell(f"nodes {one} and {other} do not reach one another")
            links.update(dict.fromkeys(scene.cluster.links_between([one], [other])))
        apart(scene, list(links))

    return act


def halves() -> Act:
    """A broker and a controller on one side, all others on the other side; clients reach both sides."""

    def act(scene: Scene) -> None:
        few = {scene.rng.choice(scene.cluster.broker_ids), scene.rng.choice(scene.cluster.controller_ids)}
        if scene.cluster.shape.both:
            few = set(list(few)[:1])
        rest = [each for each in scene.cluster.nodes if each not in few]
        scene.tell(f"nodes {sorted(few)} and {rest} do not reach one another")
        apart(scene, scene.cluster.links_between(few, rest))

    return act


def blinking(on: str) -> Act:
    """All links of a kind come and go, one after another."""

    def act(scene: Scene) -> None:
        links = scene.cluster.links_of_kind(on)
        traffic = scene.traffic(links)
        for _ in range(max(2, int(scene.seconds / 0.5))):
            link = [scene.rng.choice(links)]
            scene.cluster.cut(link)
            scene.hold(0.25, traffic)
            scene.cluster.heal(link)
            scene.hold(0.25, traffic)
        scene.prove(traffic.ended > 0, f"{traffic.ended} of {traffic.opened} connections ended")

    return act


def apart(scene: Scene, links: Sequence[Link]) -> None:
    """Cuts links for the time of the fault, refused or in silence as drawn, and shows it."""
    if scene.rng.random() < 0.5:
        _refused(scene, links)
    else:
        _silent(scene, links)


def _refused(scene: Scene, links: Sequence[Link]) -> None:
    traffic = scene.traffic(links)
    scene.cluster.cut(links)
    traffic.look()
    ended, before = traffic.ended, traffic.opened
    answer = probes.ask(scene.cluster.ports(links)[0], links[0].kind, 1.0)
    scene.prove(
        answer.what == probes.REFUSED and ended == before > 0,
        f"{ended} of {before} connections on {len(links)} links ended, and one more was {answer.what}",
    )
    scene.hold()
    scene.cluster.heal(links)


def _silent(scene: Scene, links: Sequence[Link]) -> None:
    traffic = scene.traffic(links)
    for stream in (UP, DOWN):
        scene.cluster.give(links, f"silent-{stream}", "timeout", stream, BLACK_HOLE)
    answer = probes.ask(scene.cluster.ports(links)[0], links[0].kind, 1.0)
    scene.hold(traffic=traffic)
    scene.prove(
        answer.what == probes.SILENT and traffic.received > 0,
        f"{traffic.received:,} bytes over {len(links)} links were lost, and a question was {answer.what}",
    )
    for stream in (UP, DOWN):
        scene.cluster.take(links, f"silent-{stream}")


ALL_KINDS = (CLIENTS, REPLICATION, QUORUM)

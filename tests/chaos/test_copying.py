"""Consume, produce and commit in one transaction: exactly once, whoever dies meanwhile, and however bad the network is.

The properties have the names under which Jepsen found them broken elsewhere. Longer: `python -m tests.chaos.copying.trouble --rounds 5`.
"""

import time
from collections.abc import Callable

import pytest

from ottla.testing.chaos.cluster import COMBINED, ChaosCluster
from ottla.testing.chaos.links import CLIENTS
from ottla.testing.chaos.proxies import DOWN, ProxyServer
from ottla.testing.checker import Kind
from ottla.testing.processes import ProcessCluster
from tests.chaos.copying import history
from tests.chaos.copying.copiers import KINDS
from tests.chaos.copying.history import Attempt, Copy
from tests.chaos.copying.java import JAVA
from tests.chaos.copying.trouble import SETTINGS, Copying, Done, deaths, trouble

ENDURING = tuple(each for each in KINDS if each != JAVA)


@pytest.fixture(scope="module")
def survived() -> dict[str, Done]:
    """Jobs of which processes, a coordinator of transactions, a leader and the active controller were killed."""
    with ProcessCluster(nodes=3, settings=SETTINGS) as cluster:
        roles = deaths(cluster, ("transaction coordinator", "controller", "leader"))
        return {each.kind: each for each in trouble(cluster, KINDS, 7, roles)}


@pytest.fixture(scope="module")
def endured(toxiproxy: ProxyServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    """Jobs whose network was slow, in pieces, and cut."""
    with ChaosCluster(toxiproxy, tmp_path_factory.mktemp("endured"), COMBINED, SETTINGS) as cluster:
        links = cluster.links_of_kind(CLIENTS)

        def cut(job: Copying) -> None:
            cluster.cut(links[:1])
            time.sleep(1)
            cluster.heal(links[:1])

        def toxic(kind: str, attributes: dict[str, int]) -> Callable[[Copying], None]:
            def suffer(job: Copying) -> None:
                cluster.give(links, "bad", kind, DOWN, attributes)
                time.sleep(1)
                cluster.take(links, "bad")

            return suffer

        slow = toxic("latency", {"latency": 60, "jitter": 30})
        pieces = toxic("slicer", {"average_size": 20, "size_variation": 10, "delay": 50})
        return {each.kind: each for each in trouble(cluster, ENDURING, 8, [cut, slow, pieces])}


@pytest.fixture(params=[*(f"{kind}-survived" for kind in KINDS), *(f"{kind}-endured" for kind in ENDURING)])
def done(request: pytest.FixtureRequest) -> Done:
    kind, _, how = request.param.partition("-")
    found: Done = request.getfixturevalue(how)[kind]
    return found


def found(done: Done, kind: Kind) -> list[str]:
    return [str(each) for each in done.judged().anomalies if each.kind is kind]


def test_no_committed_write_is_lost(done: Done) -> None:
    assert found(done, Kind.LOST) == []
    assert {len(copies) for copies in done.output.values()} == {done.written}


def test_no_aborted_write_is_read(done: Done) -> None:
    assert any(each.outcome == "aborted" for each in done.attempts.values())
    assert found(done, Kind.ABORTED_READ) == []


def test_no_transaction_is_torn(done: Done) -> None:
    assert found(done, Kind.HALF_TRANSACTION) == []


def test_nothing_is_copied_twice(done: Done) -> None:
    assert found(done, Kind.DUPLICATED) == []


def test_offsets_do_not_jump(done: Done) -> None:
    """Neither committed ones, on which the copiers go on, nor those that a reader comes to: and nothing else is wrong."""
    assert found(done, Kind.REORDERED) == []
    assert done.judged().valid


TRIED = {
    1: Attempt("a", {(0, 0), (1, 0)}, "committed"),
    2: Attempt("a", {(0, 1)}, "aborted"),
    3: Attempt("b", {(0, 1)}, "unknown"),
}
SOUND = {0: [Copy(0, 1), Copy(1, 3)], 1: [Copy(0, 1)]}


def test_a_sound_output_is_found_sound() -> None:
    assert history.judged({0: SOUND[0][:1], 1: SOUND[1]}, 1, TRIED).valid
    assert {each.kind for each in history.judged(SOUND, 2, TRIED).anomalies} == {Kind.LOST}, "1 of 2 of partition 1"


@pytest.mark.parametrize(
    ("output", "kind", "words"),
    [
        ({0: [Copy(0, 1), Copy(1, 2)], 1: [Copy(0, 1)]}, Kind.ABORTED_READ, "of the aborted transaction 2"),
        ({0: [Copy(0, 1), Copy(1, 3), Copy(1, 3)], 1: [Copy(0, 1)]}, Kind.DUPLICATED, "was written once"),
        ({0: [Copy(0, 1), Copy(0, 3)], 1: [Copy(0, 1)]}, Kind.PHANTOM, "nobody wrote it"),
        ({0: [Copy(0, 1)], 1: []}, Kind.LOST, "'1: 0 by 1' was acknowledged and is nowhere"),
        ({0: [Copy(1, 3)], 1: []}, Kind.LOST, "'0: 0 by 1' was acknowledged and is nowhere"),
        ({0: [Copy(1, 3), Copy(0, 1)], 1: [Copy(0, 1)]}, Kind.REORDERED, "stands behind it"),
    ],
)
def test_what_is_wrong_with_an_output_is_said(output: dict[int, list[Copy]], kind: Kind, words: str) -> None:
    told = [each.sentence for each in history.judged(output, 1, TRIED).anomalies if each.kind is kind]
    assert any(words in each for each in told), told

"""Power is cut only where replication without eligible leaders survives it: what the plan of a run waits for."""

import pytest

from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.plan import Faults
from ottla.testing.simulation.scenario import SimulationFailure, run_seed

SEED, HAVING = 10122, ("hasty", "pipelines", "sweeps")
CUT = Fault(1602, "crash", ("node-3",), 1384)
# Node 3 leads arrivals-0 and asks, over a link that has just healed, to be alone in sync. The controller takes that when its
# power is gone, and cannot commit it before it is back.
ALONE = [Fault(626, "isolate", ("node-1",), 3000), Fault(875, "cut", ("node-3", "node-2"), 674)]


@pytest.fixture(name="answers")
def _answers(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each fault that stops a node might begin, as often as it asked."""
    answers: list[bool] = []
    may_stop = Faults._may_stop

    def noted(self: Faults, fault: Fault) -> bool:
        answers.append(may_stop(self, fault))
        return answers[-1]

    monkeypatch.setattr(Faults, "_may_stop", noted)
    return answers


@pytest.fixture(name="whoever_is_away")
def _whoever_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts between nodes do not count: they alone would forbid what is looked at here."""
    monkeypatch.setattr(Faults, "_parts", lambda *_: ())


@pytest.mark.usefixtures("whoever_is_away")
def test_power_is_not_cut_while_a_leader_asks_to_be_alone_in_sync(answers: list[bool]) -> None:
    run_seed(SEED, [*ALONE, CUT], HAVING)
    assert answers[0] is False


@pytest.mark.usefixtures("whoever_is_away")
def test_a_leader_that_loses_power_while_it_asks_that_loses_records(
    answers: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule taken away: as in Kafka without eligible leader replicas, the last in sync leads with what it has."""
    monkeypatch.setattr(Faults, "_is_shrinking_isrs", lambda *_: False)
    with pytest.raises(SimulationFailure) as caught:
        run_seed(SEED, [*ALONE, CUT], HAVING)
    assert (answers, caught.value.invariant) == ([True], "a leader has every committed record")


@pytest.mark.parametrize(("weather", "is_cut"), [([], True), (ALONE[:1], False)], ids=["fair", "a node is away"])
def test_power_is_cut_while_no_leader_asks_for_less_and_nobody_is_cut_off(
    weather: list[Fault], is_cut: bool, answers: list[bool]
) -> None:
    """One that was cut off a moment ago is still in sync, as far as anybody has asked, and will not be when the power is back."""
    run_seed(SEED, [*weather, Fault(800, "crash", ("node-3",), 1384)], HAVING)
    assert answers[0] is is_cut


def test_a_power_cut_waits_for_its_moment_while_the_other_faults_last(answers: list[bool]) -> None:
    away, cut = Fault(626, "isolate", ("node-1",), 900), Fault(800, "crash", ("node-3",), 600)
    run_seed(SEED, [away, cut, Fault(3500, "clock-jump", ("node-2", 5000), 500)], HAVING)
    assert len(answers) > 2
    assert answers == [False] * (len(answers) - 1) + [True]


def test_nobody_is_cut_off_until_who_lost_his_power_is_known_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others would be out of sync when he is back, and he the only one."""
    began = list[str]()
    may_begin = Faults._may_begin

    def noted(self: Faults, fault: Fault) -> bool:
        may = may_begin(self, fault)
        began.extend([fault.kind] if may else [])
        return may

    monkeypatch.setattr(Faults, "_may_begin", noted)
    later = [Fault(at_ms, "isolate", ("node-1",), 200) for at_ms in (801, 5000)]
    run_seed(SEED, [Fault(800, "crash", ("node-3",), 500), *later], HAVING)
    assert began == ["crash", "isolate"]


@pytest.mark.parametrize(
    ("weather", "is_new"), [([], True), ([Fault(665, "isolate", ("node-2",), 2150)], False)], ids=["fair", "cut off"]
)
def test_no_machine_is_replaced_while_who_else_is_in_sync_is_cut_off(
    weather: list[Fault], is_new: bool, answers: list[bool]
) -> None:
    """Nodes 5 and 2 have orders-1. Node 2's session ended two milliseconds after node 5's disk was gone."""
    new = Fault(2089, "machine-is-new", ("node-5",), 1325)
    run_seed(26000, [Fault(79, "kill", ("node-4",), 3000), *weather, new])
    assert answers == [True, is_new]

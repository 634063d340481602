"""How the invariants hang on the servers' methods."""

import gc
from unittest.mock import patch

from ottla.broker.replication.partition import Partition
from ottla.quorum.election_store import ElectionStore
from ottla.runtime.simulation.run import collected_afterwards
from ottla.testing.simulation.length import BRIEF
from ottla.testing.simulation.observer import Watch
from ottla.testing.simulation.scenario import run_seed


def test_the_hooks_stay_between_runs_and_nobody_looks_on() -> None:
    run_seed(3, length=BRIEF)
    hooked = Partition.committed
    run_seed(4, length=BRIEF)
    assert Partition.committed is hooked
    assert Watch.invariants is None


def test_what_stands_in_the_place_of_a_hook_is_hooked_for_the_run() -> None:
    run_seed(3, length=BRIEF)
    saved = []
    save = ElectionStore.save

    def noted(store: ElectionStore, *args: object) -> None:
        saved.append(args)
        save(store, *args)  # type: ignore[arg-type]

    with patch.object(ElectionStore, "save", noted):
        run_seed(3, length=BRIEF)
        assert ElectionStore.save is noted
    assert saved
    assert ElectionStore.save is save


def test_what_a_run_left_is_collected_when_it_is_over() -> None:
    class Left:
        pass

    def run() -> None:
        left = Left()
        left.itself = left  # type: ignore[attr-defined]

    assert gc.isenabled()
    with collected_afterwards():
        assert not gc.isenabled()
        run()
    assert gc.isenabled()
    assert not any(isinstance(each, Left) for each in gc.get_objects())

"""The proof that a seed of the whole cluster is a run, and that its failure is replayed."""

import io
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from ottla.runtime.simulation.faults import Bundle, Fault
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.testing.simulation.dimensions import brief_dimensions_of, dimensions_of
from ottla.testing.simulation.length import BRIEF, USUAL, Length
from ottla.testing.simulation.run import explain, main
from ottla.testing.simulation.scenario import SimulationFailure, drawn, faults_of, run_seed
from tests.simulation.conftest import Rig, play

LIMIT_S = 3600  # of a machine that does much else; a run that hangs ends itself, by virtual time


def test_a_brief_run_is_a_run_too() -> None:
    assert run_seed(3, length=BRIEF) == run_seed(3, length=BRIEF)
    failure = SimulationFailure(9, brief_dimensions_of(9), [], AssertionError("lost"), "", BRIEF)
    assert str(failure).endswith("--seed 9 --brief")


def test_a_brief_run_stays_one_in_another_process() -> None:
    there = pickle.loads(pickle.dumps(BRIEF))
    assert drawn(3, there) == brief_dimensions_of(3)


def test_a_seed_is_a_run() -> None:
    assert run_seed(3) == run_seed(3)


@pytest.mark.parametrize("length", [BRIEF, USUAL])
def test_a_run_that_leaves_no_trace_is_the_same_run(length: Length) -> None:
    """Thousands are searched so, and whichever fails is run again with its trace."""
    untraced = run_seed(5, on_loop=SimulationLoop.leave_untraced, length=length)
    assert (untraced.digest, untraced.events) == (0, 0)
    traced = run_seed(5, length=length)
    assert traced.digest
    assert traced == untraced._replace(digest=traced.digest, events=traced.events)


def test_a_failure_that_does_not_come_again_is_told(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=200)
    explain(3, None, console, tmp_path, BRIEF)
    assert console.file.getvalue() == "seed 3 did not fail again: the run depends on more than its seed\n"  # type: ignore[attr-defined]  # a StringIO
    assert not list(tmp_path.iterdir())


def test_a_node_that_was_started_again_is_not_up_as_in_its_life_before() -> None:
    """A disk would be taken from one of three, because the others had everything a moment ago."""

    async def story(rig: Rig) -> None:
        rig.cluster.nodes[1].restart()
        assert not rig.up(1)
        assert not rig.cluster.stop(rig.cluster.nodes[1]), "nothing runs there yet that could hear of it"
        await rig.until(lambda: rig.up(1))

    play(story, nodes=1)


def test_seeds_differ() -> None:
    assert run_seed(3).digest != run_seed(4).digest


def test_a_run_with_all_dimensions_is_the_same_in_another_process() -> None:
    """Whatever the order of its sets; the seed is one whose weather passes soon."""
    script = (
        "from ottla.testing.simulation.dimensions import ALL\n"
        "from ottla.testing.simulation.scenario import run_seed\n"
        "print(run_seed(6, dimensions=ALL).digest)"
    )
    first, second = (
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    )
    assert first == second != ""


def test_a_bundle_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = Bundle("cluster", 3, (Fault(100, "kill", ("node-1",), 500),))
    path = tmp_path / "bundle.json"
    path.write_text(bundle.to_json(), encoding="utf-8")
    assert main(["--replay", str(path)]) == 0
    assert "kill node-1 for 500 ms" in capsys.readouterr().out


def test_faults_belong_to_the_seed() -> None:
    assert faults_of(5) == faults_of(5) != faults_of(6)


def test_a_forced_dimension_is_as_the_seed_would_draw_it() -> None:
    assert "rot" in dimensions_of(12)
    drawn, forced = (
        [fault for fault in faults if fault.kind == "rot"] for faults in (faults_of(12), faults_of(12, ["rot"]))
    )
    assert drawn == forced != []


def test_a_dimension_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="no dimension rto"):
        run_seed(1, dimensions=["rto"])


def test_a_run_has_the_dimensions_that_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "5", "--dimensions", "plain"]) == 0
    assert "dimensions=('plain',)" in capsys.readouterr().out


def test_a_failure_names_the_command_that_replays_it() -> None:
    failure = SimulationFailure(9, dimensions_of(9), [], AssertionError("lost"), "")
    assert str(failure).endswith("python -m ottla.testing.simulation.run --seed 9")
    failure = SimulationFailure(9, ["plain", "rot"], [], AssertionError("lost"), "")
    assert str(failure).endswith("python -m ottla.testing.simulation.run --seed 9 --dimensions plain,rot")

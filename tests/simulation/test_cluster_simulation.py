"""The whole cluster under seeded faults, and the proof that a seed is a run."""

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.runtime.simulation.faults import Bundle, Fault
from ottla.testing.simulation.dimensions import ALL, brief_dimensions_of, dimensions_of
from ottla.testing.simulation.length import BRIEF
from ottla.testing.simulation.run import main
from ottla.testing.simulation.scenario import SimulationFailure, drawn, faults_of, run_seed

SEEDS = 200  # about three minutes of CPU, as long as all the brief ones
BRIEF_SEEDS = 1000
LIMIT_S = 3600  # of a machine that does much else; a run that hangs ends itself, by virtual time
LEAST_A_SEED = {
    "segments rolled": 30,
    "forgotten": 0.1,
    "cleanings": 2,
    "snapshots taken": 15,
    "installed": 1,
    "records acknowledged": 150,
    "acknowledged of pipelines": 40,
    "records read": 60,
    "found again": 5,
    "of compacted topics read": 10,
    "names used again": 1,
    "records deleted": 1,
    "bursts": 2,
    "counted in ledgers": 10,
    "loaded by ledgers": 0.5,
    "generations of groups": 0.7,
    "assignments told": 1.5,
    "offsets committed": 5,
    "processed in groups": 20,
    "looks at coordinators": 3,
    "transactions committed": 4,
    "transactions aborted": 0.5,
    "copiers fenced": 0.3,
    "read at read_committed": 10,
    "looks at shards": 3,
    "changes of protocol": 0.4,
    "read by migrants": 15,
    "committed by couriers": 2.5,
    "changes of transaction.version": 0.05,
    "resets of groups": 0.02,
    "polls while they rebalanced": 0.03,
    "found by clerks": 1,
    "unregistered": 0.05,
    "failed operations": 0.15,
    "ended for their disks": 0.05,
    "stopped": 0.05,
    "came to be eligible": 0.3,
    "moves ended": 0.3,
    "moves given up": 0.02,
    "fetches of all that was hoarded": 3,
    "sent to who is near": 0.3,
    "answers of followers": 4,
    "unclean elections": 0.05,
    "records lost as permitted": 0.1,
    "power cuts of several": 0.08,
    "directories failed": 0.05,
    "of them replaced": 0.02,
    "moves between directories": 0.1,
    "machines replaced": 0.05,
}


LEAST_A_BRIEF_SEED = {
    "generations of groups": 0.7,
    "assignments told": 2,
    "offsets committed": 4,
    "processed in groups": 10,
    "looks at coordinators": 2.5,
    "found by clerks": 0.7,
    "resets of groups": 0.15,
    "transactions committed": 3,
    "transactions aborted": 0.7,
    "copiers fenced": 0.7,
    "read at read_committed": 5,
    "looks at shards": 2.5,
}


@pytest.mark.parametrize(
    ("options", "seeds", "least_a_seed"), [([], SEEDS, LEAST_A_SEED), (["--brief"], BRIEF_SEEDS, LEAST_A_BRIEF_SEED)]
)
def test_the_cluster_keeps_its_promises_under_seeded_faults(
    options: list[str], seeds: int, least_a_seed: dict[str, float], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "ottla.testing.simulation.run", *options, "--seeds", str(seeds)]
    command += ["--bundles", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    told = " ".join(run.stdout.split())
    for what, least in least_a_seed.items():
        found = re.search(rf"(\d+) {what}", told)
        assert found is not None, what
        assert int(found[1]) > least * seeds, what


def test_a_brief_run_is_a_run_too() -> None:
    assert run_seed(3, length=BRIEF) == run_seed(3, length=BRIEF)
    failure = SimulationFailure(9, brief_dimensions_of(9), [], AssertionError("lost"), "", BRIEF)
    assert str(failure).endswith("--seed 9 --brief")


def test_a_brief_run_stays_one_in_another_process() -> None:
    there = pickle.loads(pickle.dumps(BRIEF))
    assert drawn(3, there) == brief_dimensions_of(3)


@pytest.mark.parametrize("seed", [3, 17])
def test_a_seed_is_a_run(seed: int) -> None:
    assert run_seed(seed) == run_seed(seed)


def test_a_seed_is_a_run_with_all_dimensions() -> None:
    assert run_seed(1, dimensions=ALL) == run_seed(1, dimensions=ALL)


def test_seeds_differ() -> None:
    assert run_seed(3).digest != run_seed(4).digest


def test_a_run_does_not_depend_on_the_hash_seed() -> None:
    script = "from ottla.testing.simulation.scenario import run_seed; print(run_seed(17).digest)"
    digests = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert digests[0] == digests[1] == f"{run_seed(17).digest}\n"


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

"""Many seeds of the whole cluster, each drawn otherwise. Two stages of their own in `make test`: the searches have processes of their own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SEEDS = 100  # a minute and a half of CPU; `make deep-cluster` has 20,000
BRIEF_SEEDS = 1000  # two minutes: these have groups and transactions
LIMIT_S = 3600  # of a machine that does much else; a run that hangs ends itself, by virtual time
LEAST_A_SEED = {
    "segments rolled": 30,
    "forgotten": 0.1,
    "cleanings": 2,
    "checkpoints lost": 0.04,
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
    "generations of groups": 0.25,
    "assignments told": 1,
    "offsets committed": 3,
    "processed in groups": 12,
    "looks at coordinators": 2,
    "transactions committed": 4,
    "transactions aborted": 0.5,
    "copiers fenced": 0.3,
    "read at read_committed": 10,
    "looks at shards": 3,
    "looks at what was committed at once": 2,
    "changes of protocol": 0.4,
    "read by migrants": 15,
    "committed by couriers": 2.5,
    "changes of transaction.version": 0.05,
    "resets of groups": 0.02,
    "polls while they rebalanced": 0.03,
    "found by clerks": 0.5,
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
    "starts of older nodes": 0.15,
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
    ("options", "seeds", "least_a_seed"),
    [
        pytest.param([], SEEDS, LEAST_A_SEED, id="usual"),
        pytest.param(["--brief"], BRIEF_SEEDS, LEAST_A_BRIEF_SEED, id="brief"),
    ],
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

"""The runner of `make test`, on Makefiles of a few lines."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUNNER = Path(__file__).resolve().parents[3] / "tools" / "run_stages.py"
LIMIT_S = 60


class Stages:
    """A directory with a Makefile; ``begin`` starts the runner there."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._recipes = ""

    def stage(self, name: str, recipe: str) -> None:
        self._recipes += f"{name}:\n\t@{recipe}\n"

    def begin(self, *words: str) -> subprocess.Popen[str]:
        (self.home / "Makefile").write_text(self._recipes, encoding="utf-8")
        command = [sys.executable, str(RUNNER), *words]
        return subprocess.Popen(command, cwd=self.home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, *words: str) -> tuple[int, str]:
        """Exit code and output."""
        process = self.begin(*words)
        output, _ = process.communicate(timeout=LIMIT_S)
        return process.returncode, output


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    return Stages(tmp_path)


def is_alive(pid: int) -> bool:
    """Not gone, and not dead and yet to be collected."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def results(output: str) -> dict[str, str]:
    """As the table at the end says."""
    lines = output.partition("stage  ")[2].splitlines()[1:-1]
    return {line.split()[0]: line.split(" s  ")[-1].strip() for line in lines}


def test_a_stage_that_succeeds_prints_one_line(stages: Stages) -> None:
    stages.stage("quiet", "echo chatter")
    code, output = stages.run("quiet")
    assert code == 0
    assert "chatter" not in output
    assert results(output) == {"quiet": "ok"}


def test_a_stage_that_fails_is_shown_whole_and_fails_the_command_while_others_go_on(stages: Stages) -> None:
    stages.stage("bad", "echo the reason; false")
    stages.stage("after", "true")
    stages.stage("beside", "true")
    code, output = stages.run("bad after", "beside")
    assert code == 1
    assert "the reason" in output
    assert results(output) == {"bad": "FAILED", "after": "ok", "beside": "ok"}


def test_lanes_run_beside_each_other(stages: Stages) -> None:
    """Each waits for the other to begin: one after another they would never end."""
    wait_for_each_other(stages)
    assert stages.run("a", "b")[0] == 0


def test_what_comes_first_runs_beside_each_other_and_before_all_else(stages: Stages) -> None:
    wait_for_each_other(stages)
    stages.stage("after", "test -e a.begun -a -e b.begun")
    code, output = stages.run("--first", "a", "--first", "b", "after")
    assert (code, results(output)) == (0, {"a": "ok", "b": "ok", "after": "ok"})


def test_what_runs_alone_comes_between_and_stops_nobody_when_it_fails(stages: Stages) -> None:
    stages.stage("setup", "touch setup.ended")
    stages.stage("one", "test -e setup.ended; touch one.began; sleep 0.2; touch one.ended; false")
    stages.stage("two", "test -e one.ended; touch two.began; sleep 0.2; touch two.ended")
    stages.stage("rest", "test -e two.ended")
    code, output = stages.run("--first", "setup", "--alone", "one", "--alone", "two", "rest")
    assert (code, results(output)) == (1, {"setup": "ok", "one": "FAILED", "two": "ok", "rest": "ok"})


def wait_for_each_other(stages: Stages) -> None:
    for own, other in (("a", "b"), ("b", "a")):
        stages.stage(own, f"touch {own}.begun; until [ -e {other}.begun ]; do sleep 0.02; done")


def test_nothing_is_begun_when_what_comes_first_fails(stages: Stages) -> None:
    stages.stage("setup", "false")
    stages.stage("rest", "touch begun")
    code, output = stages.run("--first", "setup", "rest")
    assert code == 1
    assert results(output) == {"setup": "FAILED", "rest": "not begun"}
    assert not (stages.home / "begun").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_children_too_and_the_table_comes_all_the_same(
    stages: Stages, number: signal.Signals
) -> None:
    stages.stage("long", "sleep 600 & echo $$! > pid; wait")
    stages.stage("never", "true")
    process = stages.begin("long never")
    pid_file = stages.home / "pid"
    deadline = time.monotonic() + LIMIT_S
    while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert results(output) == {"long": "interrupted", "never": "not begun"}
    assert not is_alive(int(pid_file.read_text()))

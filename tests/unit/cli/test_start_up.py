"""A command that prints its help, or finds fault with its words, loads nothing of what it would work with: it answers at once."""

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.main import COMMANDS

SCRIPT = """
import importlib, sys
for module in sys.argv[1:]:
    importlib.import_module(module)
print(*sys.modules, sep="\\n")
"""
LIGHT = (
    "ottla.cli.where",
    "ottla.cli.main",
    "ottla.cli.lazy",
    "ottla.cli.output",
    "ottla.cli.failures",
    "ottla.cli.streams",
    "ottla.cli.up_words",
    "ottla.cli.metadata_options",
    "ottla.pipeline.jobs.registry",
    "ottla.runtime.printable",
)
HEAVY = ("msgspec", "asyncio", "google", "rich", "lmdb", "grpc", "confluent_kafka", "importlib.metadata")


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """By the modules of all commands together, in a process of their own."""
    command = [sys.executable, "-c", SCRIPT, *{module for module, _, _ in COMMANDS.values()}]
    return set(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split())


def test_a_commands_module_holds_its_words_only(loaded: set[str]) -> None:
    own = {module for module, _, _ in COMMANDS.values()}
    assert {name for name in loaded if name.startswith("ottla.")} - own - set(LIGHT) <= {
        "ottla.cli",
        "ottla.pipeline",
        "ottla.pipeline.jobs",
        "ottla.runtime",
    }


def test_no_library_is_loaded_but_clicks(loaded: set[str]) -> None:
    assert loaded.isdisjoint(HEAVY)


def test_settings_that_cannot_be_are_told_before_a_node_is_loaded(tmp_path: Path) -> None:
    script = "import sys; from ottla.cli.main import main\ntry: main()\nfinally: print(*sys.modules)"
    command = [sys.executable, "-c", script, "server", "start", "--config", str(tmp_path / "missing")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stderr) == (1, f"ottla: cannot read {tmp_path}/missing: No such file or directory\n")
    assert not [name for name in run.stdout.split() if name.startswith(("ottla.broker", "grpc", "asyncio"))]

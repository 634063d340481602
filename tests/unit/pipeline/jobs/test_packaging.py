"""The zip holds what a job needs, and works where this package is not installed."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.pipeline.jobs.package import package
from ottla.pipeline.jobs.packaging import write_zip


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("package")
    CliRunner().invoke(package, ["--out", str(directory)], catch_exceptions=False)
    return directory


def test_the_zip_has_the_package_and_click_and_nothing_compiled(directory: Path) -> None:
    names = zipfile.ZipFile(directory / "ottla.zip").namelist()
    assert {"ottla/__init__.py", "ottla/pipeline/jobs/main.py", "click/core.py"} <= set(names)
    assert not [each for each in names if "__pycache__" in each or each.endswith((".so", ".pyc"))]
    assert not [each for each in names if each.startswith(("ottla/testing/", "ottla/runtime/simulation/"))]


def test_the_same_package_gives_the_same_bytes(directory: Path, tmp_path: Path) -> None:
    write_zip(tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == (directory / "ottla.zip").read_bytes()


def test_the_script_runs_with_nothing_but_the_zip(directory: Path) -> None:
    """Without site-packages: no click, msgspec or rich but what is in the zip."""
    command = [sys.executable, "-S", str(directory / "ottla_job.py"), "--help"]
    environment = {"PYTHONPATH": str(directory / "ottla.zip")}
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert "package" in run.stdout


def test_words_that_are_off_end_with_two(directory: Path) -> None:
    command = [sys.executable, "-S", str(directory / "ottla_job.py"), "package", "--nonsense"]
    environment = {"PYTHONPATH": str(directory / "ottla.zip")}
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert run.returncode == 2
    assert "No such option" in run.stderr

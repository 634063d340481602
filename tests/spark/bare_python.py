"""Pythons that have what an executor, or a driver, is promised to need, and nothing else."""

import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

EXECUTOR = ("numpy", "pyarrow")
DRIVER = (*EXECUTOR, "deltalake", "arro3-core", "deprecated", "wrapt")
"""deltalake, and what it needs itself; Spark brings its own package along."""


def make(directory: Path, packages: tuple[str, ...] = EXECUTOR) -> Path:
    """Its interpreter. The packages are links to this environment's own, which takes no download and no space."""
    venv.create(directory, symlinks=True, with_pip=False)
    [libraries] = directory.glob("lib/python3*/site-packages")
    for package in packages:
        for top in _top_level(package):
            (libraries / top.name).symlink_to(top)
    return directory / "bin" / "python"


def imports(interpreter: Path, module: str) -> bool:
    """Whether it can."""
    command = [str(interpreter), "-I", "-c", f"import {module}"]
    return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0


def _top_level(package: str) -> set[Path]:
    """The directories and files in site-packages that belong to the package."""
    distribution = metadata.distribution(package)
    files = [file for file in distribution.files or [] if ".." not in file.parts]
    assert files, f"{package} is not installed for {sys.executable}"
    return {Path(str(distribution.locate_file(file.parts[0]))) for file in files if file.parts[0] != "__pycache__"}

"""A Python that has what an executor is promised to need and nothing else; on the driver, what that needs besides."""

import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

EXECUTOR = ("numpy", "pyarrow")
DRIVER = ("deltalake", "arro3-core", "deprecated", "typing-extensions", "wrapt")
"""deltalake, and what it needs itself; Spark brings its own package along."""

PATH = """import os, sys; "/work/app-" in os.getcwd() or sys.path.append({driver!r})
"""
"""Spark runs one interpreter by name on all machines. Here they are one machine, on which executors are told by the directory that they run in.
A line of a .pth file: Debian's Python has a sitecustomize of its own, which comes before any of ours."""


def make(directory: Path) -> Path:
    """Its interpreter. The packages are links to this environment's own, which takes no download and no space."""
    venv.create(directory, symlinks=True, with_pip=False)
    [libraries] = directory.glob("lib/python3*/site-packages")
    driver = directory / "driver"
    driver.mkdir()
    for packages, place in ((EXECUTOR, libraries), (DRIVER, driver)):
        for top in set().union(*map(_top_level, packages)):
            (place / top.name).symlink_to(top)
    (libraries / "driver.pth").write_text(PATH.format(driver=str(driver)))
    return directory / "bin" / "python"


def imports(interpreter: Path, module: str, directory: Path) -> bool:
    """Whether it can, when it runs there."""
    command = [str(interpreter), "-I", "-c", f"import {module}"]
    return subprocess.run(command, stderr=subprocess.DEVNULL, cwd=directory).returncode == 0


def _top_level(package: str) -> set[Path]:
    """The directories and files in site-packages that belong to the package."""
    distribution = metadata.distribution(package)
    files = [file for file in distribution.files or [] if ".." not in file.parts]
    assert files, f"{package} is not installed for {sys.executable}"
    return {Path(str(distribution.locate_file(file.parts[0]))) for file in files if file.parts[0] != "__pycache__"}

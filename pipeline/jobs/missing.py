"""What a job needs and this machine may not have: told in one line with what to install, before anything is loaded."""

import importlib.util
import os
import re
import shutil
from pathlib import Path

from ottla.cli.failures import CommandError

JAVA_MIN = 17
_VERSION = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)


def require(*modules: str) -> None:
    """Raises CommandError."""
    absent = [each for each in modules if importlib.util.find_spec(each) is None]
    if absent:
        raise CommandError(f"{', '.join(absent)} cannot be imported: pip install 'ottla[spark]'")


def require_java() -> None:
    """Spark brings none. Raises CommandError."""
    java = _java()
    if java is None:
        raise CommandError(
            f"Spark needs Java {JAVA_MIN} or newer, and there is none: apt install openjdk-{JAVA_MIN}-jre-headless"
            f" (dnf install java-{JAVA_MIN}-openjdk-headless, brew install openjdk@{JAVA_MIN}), or set JAVA_HOME"
        )
    version = _version(java)
    if version is not None and version < JAVA_MIN:
        raise CommandError(
            f"Spark needs Java {JAVA_MIN} or newer; {java} is Java {version}: set JAVA_HOME to a newer one"
        )


def _java() -> Path | None:
    """As Spark's own scripts look for it."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    return Path(found) if found is not None and Path(found).exists() else None


def _version(java: Path) -> int | None:
    """By the file that every JDK has beside ``bin``: to ask Java itself takes a quarter of a second."""
    try:
        found = _VERSION.search((java.resolve().parents[1] / "release").read_text())
    except (OSError, IndexError):
        return None
    return int(found.group(1)) if found else None

"""What a machine lacks is said in one line, with what to install."""

from pathlib import Path

import pytest

from ottla.cli.failures import CommandError
from ottla.pipeline.jobs import missing


def java_home(directory: Path, version: str) -> Path:
    (directory / "bin").mkdir()
    (directory / "bin" / "java").touch()
    (directory / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return directory


def test_a_missing_extra_names_what_pip_installs() -> None:
    with pytest.raises(CommandError, match=r"no_such_module cannot be imported: pip install 'ottla\[spark\]'"):
        missing.require("json", "no_such_module")


def test_missing_java_names_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandError, match="there is none: apt install openjdk-17"):
        missing.require_java()


def test_java_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, "1.8.0_392")))
    with pytest.raises(CommandError, match="is Java 8: set JAVA_HOME to a newer one"):
        missing.require_java()


@pytest.mark.parametrize("version", ["17.0.15", "25"])
def test_java_that_is_new_enough_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, version)))
    missing.require_java()


def test_java_that_does_not_tell_its_version_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, "x")))
    missing.require_java()

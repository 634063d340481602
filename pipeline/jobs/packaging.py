"""What spark-submit takes: this package and click as one zip, and a script of three lines. Pure Python, from what is installed."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

from ottla.cli.failures import CommandError

ZIP, SCRIPT = "ottla.zip", "ottla_job.py"
SCRIPT_TEXT = '''"""spark-submit --py-files ottla.zip ottla_job.py JOB ...: the same as `ottla spark JOB ...`."""

from ottla.pipeline.jobs.main import main

main()
'''
LEFT_OUT = ("testing", "runtime/simulation")
"""What tests are made of."""
SUFFIXES = (".py", ".schema", ".tsv", ".typed")
_TIME = (1980, 1, 1, 0, 0, 0)
"""The same package gives the same bytes."""


def write_zip(path: Path) -> None:
    """Raises CommandError, OSError."""
    import click

    import ottla

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package, out in ((ottla, LEFT_OUT), (click, ())):
            name, root = package.__name__, _root(package.__name__, package.__file__)
            for file in sorted(_files(root, out)):
                entry = zipfile.ZipInfo(f"{name}/{file.relative_to(root).as_posix()}", _TIME)
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                archive.writestr(entry, file.read_bytes())
        shim = Path(ottla.__file__).parent.parent / "pyspark_ottla"
        if shim.is_dir():
            for file in sorted(_files(shim, ())):
                archive.writestr(
                    zipfile.ZipInfo(f"{shim.name}/{file.relative_to(shim).as_posix()}", _TIME), file.read_bytes()
                )


def _root(name: str, file: str | None) -> Path:
    found = Path(file or "").parent
    if not found.is_dir():
        raise CommandError(f"{name} is itself in a zip ({found}): package it where it is installed")
    return found


def _files(root: Path, left_out: tuple[str, ...]) -> Iterator[Path]:
    """Through links too: a checkout has its areas linked."""
    for entry in root.iterdir():
        place = entry.relative_to(root).as_posix()
        if entry.is_dir():
            if entry.name != "__pycache__" and place not in left_out:
                inner = tuple(each.partition("/")[2] for each in left_out if each.partition("/")[0] == place)
                yield from _files(entry, inner)
        elif entry.suffix in SUFFIXES:
            yield entry

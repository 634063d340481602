"""A copier with Apache Kafka's Java client, as a process like those of the others."""

import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.chaos.copying.copiers import Job
from tests.conformance.kafka_tools import compiled

JAVA = "java"
FLAGS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class JavaCopier:
    """In the shape of `multiprocessing.Process`."""

    def __init__(self, job: Job, diary: Path) -> None:
        words = (job.bootstrap, job.source, job.target, job.group, job.transactional_id, str(diary))
        with diary.with_suffix(".error").open("ab") as errors:
            self._process = subprocess.Popen(["java", *FLAGS, "-cp", _classes(), "Copier", *words], stderr=errors)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()

    def join(self) -> None:
        self._process.wait()


@cache
def _home() -> TemporaryDirectory[str]:
    """Removed when Python ends."""
    return TemporaryDirectory(prefix="ottla-copier-")


@cache
def _classes() -> str:
    return compiled("Copier", Path(_home().name))

"""Spark's own cluster manager from the pip package: a master and workers on loopback, and spark-submit to it."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ottla.testing.lifetime import Lifetime
from ottla.testing.ports import free_ports
from ottla.testing.processes import wait_for
from tests.spark import bare_python
from tests.spark.session import HOME, SHORT_LIVED, connector_jars, settings, spark_home

TIMEOUT_S = 600
"""Of one job; on a machine that others use too it may take minutes."""


def bare_environment(directory: Path) -> dict[str, str]:
    """For processes of Spark that know nothing of this checkout: no PYTHONPATH, and what they leave stays in ``directory``."""
    kept = {
        name: os.environ[name] for name in ("HOME", "JAVA_HOME", "LANG", "PATH", "PEERS_HOME") if name in os.environ
    }
    return kept | {
        "SPARK_HOME": str(spark_home(directory)),
        "SPARK_LOCAL_DIRS": str(directory / "local"),
        "SPARK_WORKER_DIR": str(directory / "work"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    }


class Standalone(Lifetime):
    """``with Standalone(directory) as cluster``: one master, and workers of one core each."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self._directory = directory
        self._port, self._page_port = free_ports(2)
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def _begin(self) -> None:
        self._start("master", "master.Master", "--port", str(self._port), "--webui-port", str(self._page_port))
        for number in range(1, self._workers + 1):
            self._start(
                f"worker-{number}",
                "worker.Worker",
                "--cores",
                "1",
                "--memory",
                "1g",
                "--webui-port",
                "0",
                self.master,
            )
        wait_for(lambda: self.alive_workers() == self._workers, f"{self._workers} workers to register", 90)

    def alive_workers(self) -> int:
        """As the master tells."""
        page = f"http://127.0.0.1:{self._page_port}/json/"
        with suppress(OSError, ValueError), urllib.request.urlopen(page, timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
        return 0

    def _start(self, name: str, kind: str, *words: str) -> None:
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", *words]
        with (self._directory / f"{name}.log").open("ab") as log:
            environment = bare_environment(self._directory)
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        self._processes.append(process)

    def close(self) -> None:
        """Workers end their executors; what does not listen is killed with its children."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._processes:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            for process in self._processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(20)


@dataclass(frozen=True)
class Submission:
    """What `ottla spark package` wrote, and the Python that runs it."""

    directory: Path
    interpreter: Path

    @classmethod
    def prepare(cls, directory: Path) -> Self:
        interpreter = bare_python.make(directory / "python")
        package = [sys.executable, "-m", "ottla.cli.main", "spark", "package", "--out", str(directory)]
        subprocess.run(package, check=True, capture_output=True)
        return cls(directory, interpreter)

    def submit(self, master: str, *words: str) -> subprocess.CompletedProcess[str]:
        """spark-submit in client mode, from a process that knows nothing of this checkout."""
        files = ["--py-files", str(self.directory / "ottla.zip"), str(self.directory / "ottla_job.py")]
        command = [str(HOME / "bin" / "spark-submit"), "--master", master, *self._confs(), *files, *words]
        return self._run(command, bare_environment(self.directory))

    def call(self, master: str, job: str, *words: str) -> subprocess.CompletedProcess[str]:
        """`ottla spark JOB --master` of an installed package, which is this environment's."""
        command = [sys.executable, "-m", "ottla.cli.main", "spark", job, "--master", master, *self._confs(), *words]
        return self._run(command, os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"})

    def _confs(self) -> list[str]:
        chosen = settings(self.directory) | {
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": SHORT_LIVED,
            "spark.pyspark.python": str(self.interpreter),
        }
        if jars := connector_jars():
            chosen["spark.jars"] = jars
        return [word for name, text in chosen.items() for word in ("--conf", f"{name}={text}")]

    def _run(self, command: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            cwd=self.directory,
        )

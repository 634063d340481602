"""One run: a cluster, workloads, a fault; then peace, final reads, and the verdicts."""

import faulthandler
import shutil
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ottla.testing.chaos.cluster import SHAPES, START_S, ChaosCluster
from ottla.testing.chaos.libraries import Library, load
from ottla.testing.chaos.plan import Plan
from ottla.testing.chaos.proxies import ProxyServer
from ottla.testing.chaos.rest import wait_for_rest
from ottla.testing.chaos.result import FAILED, UNKNOWN, WELL, Cell, Result
from ottla.testing.chaos.roles import Place
from ottla.testing.chaos.scene import Scene, Subjects
from ottla.testing.chaos.site import Site
from ottla.testing.chaos.workloads.workload import Workload

WARM_OPERATIONS = 20
"""So many of each workload before the fault, and again when it is over."""
PATIENCE_S = 180.0

SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "initial.broker.registration.timeout.ms": str(int(START_S * 1000)),
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
}
"""Impatient, so that a fault of seconds has its consequences in seconds. But for a start: a node that gives up, because the machine gave
nobody any time for a minute, is no finding."""

Factories = Mapping[str, Callable[[], Workload]]


class NoProgress(Exception):
    """A workload does not go on."""


def run(plan: Plan, factories: Factories, toxiproxy: Path, directory: Path, *, keep: bool = False) -> Result:
    """Never raises for what the cluster or a workload did: that is in the result. The directory holds everything of a run that
    failed, and the histories alone of one that did not, unless told to ``keep`` it."""
    began = time.monotonic()
    directory.mkdir(parents=True)
    result = Result(plan.fault, plan.seed, plan.shape, plan.seconds, plan.command, str(directory))
    with ProxyServer(toxiproxy, plan.seed) as server:
        try:
            _Run(plan, [factories[name]() for name in plan.workloads], server, directory, result).play()
        except Exception as error:  # noqa: BLE001 - whatever it was, the run failed by it, and says so
            result.trouble = f"{type(error).__name__}: {error}"
            (directory / "trouble.txt").write_text(traceback.format_exc(), encoding="utf-8")
    result.took_s = round(time.monotonic() - began, 1)
    result.write(directory / "result.json")
    if result.is_well and not keep:
        shutil.rmtree(directory / "cluster", ignore_errors=True)
    return result


class _Run:
    def __init__(
        self, plan: Plan, workloads: Sequence[Workload], server: ProxyServer, directory: Path, result: Result
    ) -> None:
        self._plan = plan
        self._workloads = workloads
        self._directory = directory
        self._result = result
        self._server = server
        self._library: Library | None = None
        self._failed: dict[str, str] = {}
        """Workloads that raised, and what."""
        self._lap = time.monotonic()

    def play(self) -> None:
        home = self._directory / "cluster"
        fault = self._plan.what
        settings = {**SETTINGS, **fault.settings}
        self._library = load(fault.library, self._directory / fault.library)
        with ChaosCluster(self._server, home, SHAPES[self._plan.shape], settings, self._library) as cluster:
            self._took("start of the nodes")
            site = self._site(cluster)
            self._each("prepare", lambda workload: workload.prepare(site))
            wait_for_rest(cluster)
            self._took("topics")
            self._each("start", lambda workload: workload.start())
            self._attempt(lambda: self._meet(cluster))
            self._took("the fault, and peace")
            self._each("stop", lambda workload: workload.stop())
            self._attempt(lambda: wait_for_rest(cluster))
            self._took("end of the clients")
            self._each("finish", lambda workload: workload.finish())
            self._took("reading back")
        self._took("end of the nodes")
        self._result.cells = [self._judged(each) for each in self._workloads]
        self._took("judging")

    def _took(self, what: str) -> None:
        """Where a run's time goes: since this was last said."""
        now = time.monotonic()
        self._result.phases[what] = round(now - self._lap, 1)
        self._lap = now

    def _attempt(self, do: Callable[[], object]) -> None:
        """What goes wrong with a run is told, and what clients saw is judged nevertheless."""
        try:
            do()
        except Exception as error:  # noqa: BLE001 - whatever it was
            self._result.trouble = self._result.trouble or f"{type(error).__name__}: {error}"
            with (self._directory / "trouble.txt").open("a", encoding="utf-8") as file:
                traceback.print_exc(file=file)

    def _site(self, cluster: ChaosCluster) -> Site:
        return Site(
            cluster.bootstrap_servers,
            cluster.broker_ids,
            self._plan.seed,
            self._directory,
            self._plan.what.unclean,
            cluster.data_directories(),
        )

    def _meet(self, cluster: ChaosCluster) -> None:
        """The fault, and that everybody goes on before and after it."""
        self._go_on("before the fault")
        scene = Scene(cluster, self._plan.rng("fault"), self._subjects(), self._plan.seconds, self._library)
        scene.went_on = lambda: sum(each.operations() for each in self._workloads)
        self._result.proofs, self._result.story = scene.proofs, scene.story
        try:
            self._plan.what.act(scene)
            scene.tell("healed")
            if not scene.proofs:
                raise NoProgress("the fault says nothing of having fired")
        finally:
            cluster.restore()
        scene.tell(str(wait_for_rest(cluster)))
        self._go_on("after the fault")
        scene.tell("everybody went on")

    def _subjects(self) -> Subjects:
        places = [Place(topic, 0) for each in self._workloads for topic in each.topics]
        groups = [group for each in self._workloads for group in each.groups]
        ids = [name for each in self._workloads for name in each.transactional_ids]
        return Subjects(places, groups, ids)

    def _go_on(self, when: str) -> None:
        waiting = {each: each.operations() for each in self._workloads if each.name not in self._failed}
        deadline = time.monotonic() + PATIENCE_S
        while waiting:
            waiting = {each: done for each, done in waiting.items() if each.operations() < done + WARM_OPERATIONS}
            if waiting and time.monotonic() > deadline:
                names = ", ".join(each.name for each in waiting)
                raise NoProgress(f"{names} did not go on within {PATIENCE_S:.0f} s {when}")
            time.sleep(0.05)

    def _each(self, what: str, do: Callable[[Workload], None]) -> None:
        """At once; who raises has failed, and the others go on."""
        able = [each for each in self._workloads if each.name not in self._failed]

        def attempt(workload: Workload) -> None:
            try:
                do(workload)
            except Exception as error:  # noqa: BLE001 - it is that workload's finding
                self._failed[workload.name] = f"{what}: {type(error).__name__}: {error}"
                with (self._directory / f"{workload.name}.{what}.txt").open("w", encoding="utf-8") as file:
                    traceback.print_exc(file=file)
                    file.write("\nWhat all threads did then:\n")
                    file.flush()
                    faulthandler.dump_traceback(file)

        with ThreadPoolExecutor(len(able) or 1) as pool:
            list(pool.map(attempt, able))

    def _judged(self, workload: Workload) -> Cell:
        history = self._directory / f"{workload.name}.jsonl"
        cell = Cell(workload.name, FAILED, history=str(history) if history.exists() else "")
        if workload.name in self._failed:
            cell.findings = [self._failed[workload.name]]
            return cell
        try:
            verdict = workload.check()
        except Exception as error:  # noqa: BLE001 - as above
            cell.findings = [f"check: {type(error).__name__}: {error}"]
            (self._directory / f"{workload.name}.check.txt").write_text(traceback.format_exc(), encoding="utf-8")
            return cell
        cell.operations = verdict.operations
        cell.findings = [str(each) for each in (*verdict.anomalies, *verdict.unknown)]
        cell.permitted = [str(each) for each in verdict.permitted]
        cell.verdict = WELL if verdict.valid else FAILED if verdict.anomalies else UNKNOWN
        return cell

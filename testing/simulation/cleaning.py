"""Log cleaning without processes: the work is done on the simulated disk, in one moment, when it is waited for."""

from ottla.log.batch import CorruptBatchError
from ottla.log.compaction.cleaner import CleaningJob, clean
from ottla.log.compaction.worker import Outcome
from ottla.runtime.disk import Disk
from ottla.runtime.errors import KafkaError


class SimulatedWorker:
    """Stands for `ottla.log.compaction.worker.CleanerProcess`. Killed before it is waited for, it does nothing."""

    def __init__(self, disk: Disk, job: CleaningJob, bytes_per_second: int = 0) -> None:
        """``bytes_per_second`` means nothing here: the disk has its own time."""
        self._disk = disk
        self._job = job
        self._killed = False

    def wait(self) -> Outcome:
        if self._killed:
            return Outcome(failure="killed")
        try:
            return Outcome(result=clean(self._disk, self._job))
        except CorruptBatchError as error:
            return Outcome(damage=error.message)
        except (OSError, KafkaError) as error:
            return Outcome(failure=str(error))

    def kill(self) -> None:
        self._killed = True

    def set_speed(self, bytes_per_second: int) -> None:
        """Means nothing here, either."""

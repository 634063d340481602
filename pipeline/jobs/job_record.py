"""What a job was started with, kept in its checkpoint: a checkpoint goes on with the same table, and says what its schemas were."""

import json
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from ottla.cli.failures import CommandError
from ottla.pipeline.jobs.checkpoint import Checkpoint
from ottla.pipeline.jobs.files import files_of

NAME = "ottla-job.json"
SCHEMA = "value.schema"


@dataclass(frozen=True)
class JobRecord:
    """Of one start."""

    job: str
    table: str
    table_format: str
    partition_by: list[str]
    value: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    """What the state in the checkpoint is of."""

    def keep(self, checkpoint: str, *, may_change_schema: bool) -> None:
        """Writes it, with the schemas of before. Raises CommandError when the checkpoint is another job's."""
        files = files_of(checkpoint)
        before = self._before(checkpoint) if Checkpoint(checkpoint) else None
        if before is not None:
            self._require_same(before, checkpoint, may_change_schema=may_change_schema)
            if self._of(before) == asdict(self):
                return
        schemas = [] if before is None else before.get("schemas", [])
        now = {"since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **self.value}
        files.write(NAME, json.dumps({**asdict(self), "schemas": [*schemas, now]}, indent=1))

    def _before(self, checkpoint: str) -> dict[str, Any] | None:
        """Of a start that came as far as a batch; what failed sooner binds nobody."""
        try:
            found = json.loads(files_of(checkpoint).text(NAME))
        except CommandError:
            return None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise CommandError(f"{checkpoint}/{NAME} cannot be read: restore it, or remove it")
        return found

    def _of(self, before: dict[str, Any]) -> dict[str, Any]:
        return {name: before.get(name) for name in asdict(self)}

    def _require_same(self, before: dict[str, Any], checkpoint: str, *, may_change_schema: bool) -> None:
        known = self._of(before)
        for name in ("job", "table", "table_format", "partition_by"):
            if known[name] != getattr(self, name):
                raise CommandError(
                    f"the checkpoint {checkpoint} is of {known['job']} to {known['table']} ({known['table_format']}, by"
                    f" {','.join(known['partition_by'] or ()) or 'nothing'}), not to {self.table} ({self.table_format}, by"
                    f" {','.join(self.partition_by) or 'nothing'}): name another --checkpoint, or the same table"
                )
        for name, text in self.query.items():
            before_it = (known["query"] or {}).get(name)
            if before_it != text:
                raise CommandError(
                    f"{checkpoint} holds open windows of another query ({name}: {before_it}, not {text}): name another --checkpoint and table,"
                    " or ask for the same"
                )
        if known["value"] != self.value and not may_change_schema:
            raise CommandError(
                f"the values' schema is not the one that {checkpoint} went on with: --merge-schema goes on with the new one, and the table"
                " grows its new columns"
            )

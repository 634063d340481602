"""What a plain Parquet table is made of: `_manifests/N.json`, one a commit, each taking its number from nobody else.

A manifest says what its commit adds and removes. Every SNAPSHOT_EVERYth also lists all files, so a reader opens that one and the few behind it.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ottla.pipeline.sinks.changes import Commit
from ottla.pipeline.sinks.errors import TableDamaged, WriteConflict, space_is_named
from ottla.pipeline.sinks.schemas import Schema
from ottla.pipeline.sinks.store import Store

FOLDER = "_manifests"
SNAPSHOT_EVERY = 50
ATTEMPTS = 100
"""At a number that others take as well, each time one of them goes on."""


@dataclass
class Table:
    """As of one version. Files by path: size, rows, and the values of what the table is partitioned by."""

    version: int = -1
    schema: Schema | None = None
    partition_by: list[str] = field(default_factory=list)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    """Of each query, its last batch."""

    def take(self, manifest: dict[str, Any]) -> None:
        self.version = manifest["version"]
        self.schema, self.partition_by, self.last = manifest["schema"], manifest["partitionBy"], manifest["last"]
        if (whole := manifest.get("files")) is not None:
            self.files = {each["path"]: each for each in whole}
            return
        for path in manifest["remove"]:
            self.files.pop(path, None)
        self.files |= {each["path"]: each for each in manifest["add"]}


def newest(store: Store) -> Table:
    table = Table()
    for version in _chain(store):
        table.take(_manifest(store, version))
    return table


def versions(store: Store) -> list[int]:
    return sorted(int(name[:-5]) for name in store.names(FOLDER) if name.endswith(".json") and name[:-5].isdecimal())


def put(store: Store, table: Table, manifest: dict[str, Any]) -> bool:
    """The next version of that table, or False: somebody else made it."""
    told = {**manifest, "version": table.version + 1, "time": int(time.time() * 1000)}
    if told["version"] % SNAPSHOT_EVERY == 0:
        after = Table(files=dict(table.files))
        after.take(told)
        told["files"] = list(after.files.values())
    with space_is_named(store.uri):
        try:
            store.put_new(name(told["version"]), json.dumps(told).encode())
        except FileExistsError:
            return False
    return True


def name(version: int) -> str:
    return f"{FOLDER}/{version:012d}.json"


def conflict(store: Store) -> WriteConflict:
    return WriteConflict(f"The table {store.uri}: others commit to it all the while; let one query write to a table")


def needed(store: Store) -> set[str]:
    """The manifests that say what the newest version is made of."""
    return {name(version) for version in _chain(store)}


def told(store: Store) -> Iterable[dict[str, Any]]:
    """All manifests that are still there, oldest first."""
    return (_manifest(store, version) for version in versions(store))


def commit_of(manifest: dict[str, Any]) -> Commit:
    rows = sum(each["rows"] for each in manifest["add"])
    told = (manifest["version"], manifest["query"], manifest["batch"], manifest["offsets"], rows, manifest["time"])
    return Commit(*told, manifest.get("info", ""))


def _chain(store: Store) -> list[int]:
    """From the last snapshot on, without a gap."""
    found = versions(store)
    first = next((index for index in reversed(range(len(found))) if found[index] % SNAPSHOT_EVERY == 0), None)
    if not found:
        return []
    chain = found[first or 0 :]
    if first is None or chain != list(range(chain[0], chain[0] + len(chain))):
        raise TableDamaged(
            f"The table {store.uri} lacks manifests: there are {FOLDER}/ {found[0]} to {found[-1]}, with gaps"
        )
    return chain


def _manifest(store: Store, version: int) -> dict[str, Any]:
    try:
        read: dict[str, Any] = json.loads(store.read(name(version)))
    except ValueError as error:
        raise TableDamaged(f"The table {store.uri}: {name(version)} cannot be read ({error})") from error
    return read

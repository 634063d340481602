"""A plan of `ottla reassign` as a file: the JSON that kafka-reassign-partitions takes and prints."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ottla.cli.failures import CommandError
from ottla.cli.placing import Assignment, Place

ANYWHERE = "any"


def to_json(plan: Mapping[Place, Sequence[int]]) -> str:
    """One partition a line, so that a person can change one."""
    lines = [
        json.dumps(
            {"topic": topic, "partition": index, "replicas": list(replicas), "log_dirs": [ANYWHERE] * len(replicas)}
        )
        for (topic, index), replicas in sorted(plan.items())
    ]
    return '{"version": 1, "partitions": [\n  ' + ",\n  ".join(lines) + "\n]}\n"


def write_plan(path: Path, plan: Mapping[Place, Sequence[int]]) -> None:
    """Whole, or not at all."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(to_json(plan), encoding="utf-8")
    beside.replace(path)


def read_plan(path: Path) -> Assignment:
    """Raises CommandError for what is no plan; what Kafka's tool writes besides is passed over."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CommandError(f"{path} is not JSON: {error}") from error
    plan: Assignment = {}
    try:
        if told.get("version", 1) != 1:
            raise CommandError(f"{path}: version {told['version']} of plans is not known")
        for each in told["partitions"]:
            place, replicas = (str(each["topic"]), int(each["partition"])), tuple(map(int, each["replicas"]))
            _check(path, place, replicas, each, plan)
            plan[place] = replicas
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        what = '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}'
        raise CommandError(f"{path} is no plan ({error!r}): write {what}") from error
    return plan


def _check(path: Path, place: Place, replicas: tuple[int, ...], told: Any, before: Assignment) -> None:
    name = f"{place[0]}-{place[1]}"
    if place in before:
        raise CommandError(f"{path}: {name} comes twice")
    if not replicas or len(dict.fromkeys(replicas)) != len(replicas):
        raise CommandError(f"{path}: {name} has the replicas {list(replicas)}: name each broker once")
    if any(each != ANYWHERE for each in told.get("log_dirs") or ()):
        raise CommandError(f"{path}: {name} names directories: kafka-reassign-partitions --execute moves those")

"""Which jobs there are, listed without importing them."""

import importlib
import importlib.util

import click

# job: (module, attribute, one line of help)
JOBS = {
    "ingest": ("ottla.pipeline.jobs.ingest", "ingest", "Land topics in a table, each record exactly once."),
    "aggregate": ("ottla.pipeline.jobs.aggregate", "aggregate", "Count and average records by windows of event time."),
    "snapshot": ("ottla.pipeline.jobs.snapshot", "snapshot", "Make a table of the latest record of each key."),
    "replay": ("ottla.pipeline.jobs.replay", "replay", "Send a table's rows to a topic, in order, at a rate."),
    "audit": ("ottla.pipeline.jobs.audit", "audit", "Check all brokers' log directories against each other."),
    "generate": (
        "ottla.pipeline.jobs.generate",
        "generate",
        "Make a vehicle fleet's telemetry, the same for the same seed.",
    ),
    "check": (
        "ottla.pipeline.jobs.check",
        "check",
        "Judge what became of a fleet's records: lost, doubled, reordered.",
    ),
    "lag": ("ottla.pipeline.jobs.lag", "lag", "How far a job is behind, from its checkpoint; it may be dead."),
    "package": ("ottla.pipeline.jobs.package", "package", "Write ottla.zip and ottla_job.py for spark-submit."),
}


class Jobs(click.Group):
    """A group whose jobs are imported when they are called, not when they are listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, (module, _, _) in JOBS.items() if importlib.util.find_spec(module) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module, attribute, _ = JOBS[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Jobs"):
            formatter.write_dl([(name, JOBS[name][2]) for name in self.list_commands(ctx)])

"""``ottla spark lag``: how far a query is behind, from its checkpoint. It starts no Spark."""

import click

from ottla.cli.output import bootstrap_option, output_option, show


@click.command()
@click.option("--checkpoint", required=True, metavar="DIR", help="The job's --checkpoint, a path or a URI.")
@bootstrap_option
@click.option("--commit-group", metavar="GROUP", help="Commit the offsets for this group, for tools that know groups.")
@output_option
def lag(checkpoint: str, bootstrap: str, commit_group: str | None, output: str) -> None:
    """Show how far a job has read each partition.

    How many records are left, how old the first of them is, how fast they are read and written, and when, at these rates, the job
    will have caught up. The checkpoint says what is done also when the job is dead, and before it has committed anything.
    """
    from ottla.pipeline.jobs import missing

    missing.require("msgspec")
    from ottla.cli.group_lag import columns, table_rows
    from ottla.pipeline.jobs.lag_rows import commit, standing

    found = standing(checkpoint, bootstrap)
    if commit_group is not None:
        commit(bootstrap, commit_group, found.offsets)
    if output == "json":
        show(found.rows, [], output)
        return
    click.echo(found.summary)
    unseen = {"member", "host"}
    show(table_rows(found.rows), [each for each in columns(found.rows) if each not in unseen], output)
    if commit_group is not None:
        click.echo(f"committed for group {commit_group}")

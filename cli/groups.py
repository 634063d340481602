"""``ottla groups``: list, describe, explain and delete consumer groups, and set how far they have read."""

import click

from ottla.cli.failures import CommandError
from ottla.cli.output import AnyCase, bootstrap_option, output_option, plain, show

STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Assigning", "Reconciling", "Dead")
"""Of groups of both protocols, as brokers name them."""

dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be done.")


@click.group()
def groups() -> None:
    """List, describe, explain and delete consumer groups, and reset their offsets."""


@groups.command("list")
@bootstrap_option
@click.option(
    "--state",
    "states",
    type=AnyCase(STATES),
    multiple=True,
    help="Only those in this state; again for more.",
)
@output_option
def list_command(bootstrap: str, states: tuple[str, ...], output: str) -> None:
    """List the groups."""
    from ottla.cli.group_requests import group_rows

    show(group_rows(bootstrap, states), ["group", "state", "protocol type", "type", "coordinator"], output)


@groups.command()
@click.argument("names", nargs=-1, required=True)
@bootstrap_option
@output_option
def describe(names: tuple[str, ...], bootstrap: str, output: str) -> None:
    """Show how far groups NAMES have read each partition, and who reads it.

    How many records are left, how old the first of them is, how fast they are read and written, and when, at these rates, the group
    will have caught up.
    """
    from ottla.cli.group_lag import columns, describe, table_rows

    found = [describe(bootstrap, name) for name in names]
    if output == "json":
        show([row for each in found for row in each.rows], [], output)
        return
    for each in found:
        click.echo(plain(each.summary))
        if each.rows:
            show(table_rows(each.rows), columns(each.rows), output)


@groups.command()
@click.argument("name")
@bootstrap_option
@output_option
def explain(name: str, bootstrap: str, output: str) -> None:
    """Say why group NAME rebalanced.

    Who asked for it and why, how long it took, who was waited for, and which partitions moved: of the last hundred times, as far as
    the group's coordinator was there.
    """
    from ottla.cli.group_explain import explain

    found = explain(bootstrap, name)
    if output == "json":
        show(found.details, [], output)
        return
    for sentence in found.sentences:
        click.echo(plain(sentence))
    if found.records:
        click.echo()
        show(found.rows, found.rows[0], output)


@groups.command()
@click.argument("names", nargs=-1, required=True)
@bootstrap_option
@dry_run_option
def delete(names: tuple[str, ...], bootstrap: str, dry_run: bool) -> None:
    """Delete groups NAMES, which have no members, and their offsets."""
    from ottla.cli.group_requests import delete_group

    failed = []
    for name in names:
        try:
            count = delete_group(bootstrap, name, dry_run=dry_run)
        except CommandError as error:
            failed.append(str(error))
        else:
            offsets = f" and its {count} offset{'s' * (count != 1)}" if count else ""
            click.echo(f"{'would delete' if dry_run else 'deleted'} {name}{offsets}")
    if failed:
        raise CommandError("; ".join(failed))


@groups.command("delete-offsets")
@click.argument("name")
@bootstrap_option
@click.option(
    "--topic", "topics", multiple=True, required=True, help="TOPIC, or TOPIC:0,2 for some partitions; again for more."
)
@dry_run_option
@output_option
def delete_offsets(name: str, bootstrap: str, topics: tuple[str, ...], dry_run: bool, output: str) -> None:
    """Forget how far group NAME has read topics that none of its members reads."""
    from ottla.cli.group_requests import delete_offsets
    from ottla.cli.group_resets import chosen

    rows = delete_offsets(bootstrap, name, chosen(bootstrap, topics), dry_run=dry_run)
    show(rows, ["group", "topic", "partition", "committed"], output)


@groups.command("reset-offsets")
@click.argument("name")
@bootstrap_option
@click.option(
    "--topic", "topics", multiple=True, help="TOPIC, or TOPIC:0,2; again for more. Default: all it has committed."
)
@click.option("--to-earliest", is_flag=True, help="To each partition's first record.")
@click.option("--to-latest", is_flag=True, help="Behind each partition's last record.")
@click.option("--to-current", is_flag=True, help="Where it is, or the nearest that there is (for --export).")
@click.option("--to-offset", type=click.IntRange(0), help="To this offset, or the nearest that there is.")
@click.option("--shift-by", type=int, help="By so many records, back if negative.")
@click.option("--to-datetime", help="To the first record from 2026-11-21T20:15:00.000 on; UTC, or with +01:00.")
@click.option("--by-duration", help="To the first record of the last PT1H30M, 90m, 2h, 1d.")
@click.option(
    "--from-file", type=click.Path(exists=True, dir_okay=False), help="To the offsets of a CSV: topic,partition,offset."
)
@click.option("--export", is_flag=True, help="Print the new offsets as such a CSV.")
@dry_run_option
@output_option
def reset_offsets(
    name: str,
    bootstrap: str,
    topics: tuple[str, ...],
    export: bool,
    dry_run: bool,
    output: str,
    **target: object,
) -> None:
    """Set how far group NAME, which has no members, has read."""
    from ottla.cli.group_resets import reset_rows, target_of, written_offsets

    rows = reset_rows(bootstrap, name, topics, target_of(target), dry_run=dry_run)
    if export:
        click.echo(written_offsets(rows), nl=False)
    else:
        show(rows, ["group", "topic", "partition", "committed", "new"], output)

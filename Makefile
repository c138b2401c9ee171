# Every target sets up what it needs. PYTHON names the interpreter that makes .venv.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp
SAMPLE ?= sample_traces/pp6-base.dat
REPORT ?= build/report.html

.PHONY: help setup test report lint type check bench bench-data fuzz wheel clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with traceana and everything its development needs

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "traceana needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "no venv module? on Debian: apt install python3-venv" >&2; rm -rf $(VENV); exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

test: $(STAMP) ## run the whole test suite (ARGS=... are handed to pytest)
	$(BIN)/python -m pytest $(ARGS)

report: $(STAMP) ## the main job: report on a real capture (SAMPLE=FILE for another)
	@mkdir -p $(dir $(REPORT))
	@$(BIN)/traceana report $(SAMPLE) -o $(REPORT) --force

lint: $(STAMP) ## style and layout (ruff)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(STAMP) ## types (mypy --strict)
	$(BIN)/mypy

check: lint type test ## all that CI runs

bench-data: $(STAMP) ## make the bench's inputs under build/bench/
	$(BIN)/python tests/bench/make_data.py

bench: bench-data ## speed against trace-cmd and perf, as a table
	$(BIN)/python tests/bench/bench.py $(ARGS)

fuzz: $(STAMP) ## damage the samples at random and read them (ARGS="--seconds 600")
	$(BIN)/python tests/fuzz/run.py $(ARGS)

wheel: $(STAMP) ## build the wheel into dist/
	$(BIN)/python -m build --wheel --no-isolation --outdir dist .

clean: ## remove what was built, .venv included
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

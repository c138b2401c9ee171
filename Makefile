# Every target sets up what it needs. PYTHON names the interpreter that makes .venv.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp
SAMPLE ?= sample_traces/pp6-base.dat
REPORT ?= build/report.html

.PHONY: help setup test report lint type check bench bench-batch bench-data bench-long fuzz man wheel clean

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

lint: $(STAMP) ## style and layout (ruff), and record.sh (shellcheck)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@check=$$(command -v $(BIN)/shellcheck || command -v shellcheck) || \
	  { echo "no shellcheck here: record.sh is not checked" >&2; exit 0; }; \
	  echo "$$check -s sh record.sh"; "$$check" -s sh record.sh

type: $(STAMP) ## types (mypy --strict)
	$(BIN)/mypy

check: lint type test ## all that CI runs

bench-data: $(STAMP) ## make the bench's inputs under build/bench/
	$(BIN)/python tests/bench/make_data.py
	$(BIN)/python tests/bench/make_text.py

bench: bench-data ## speed against trace-cmd and perf, as a table
	$(BIN)/python tests/bench/bench.py $(ARGS)

bench-long: $(STAMP) ## time per event and memory of 5 and of 50 million events (2.5 GB under build/)
	$(BIN)/python tests/bench/make_data.py --only pp6-v6.dat --events 5000000 --out build/bench/long/5M
	$(BIN)/python tests/bench/make_data.py --only pp6-v6.dat --events 50000000 --out build/bench/long/50M
	$(BIN)/python tests/bench/bench.py --long --runs 1

man: $(STAMP) ## write the man page anew from the program's help
	$(BIN)/python -m traceana.cli.manual > docs/traceana.1

bench-batch: $(STAMP) ## 200 captures in a batch that is killed, on Dask, by two workers; a fleet of 1,000
	$(BIN)/python tests/bench/batch.py $(ARGS)

fuzz: $(STAMP) ## read some 400,000 damaged inputs of all forms (ARGS="--only FORM")
	$(BIN)/python tests/fuzz/run.py $(ARGS)

wheel: $(STAMP) ## build the wheel into dist/
	$(BIN)/python -m build --wheel --no-isolation --outdir dist .

clean: ## remove what was built, .venv included
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

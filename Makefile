# `make app` opens the app; `make test` is what CI runs. Both make .venv on their first run.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
# Which python makes .venv: python3.11, or python3 where it is 3.11 or newer.
PYTHON ?=
PORT ?= 8501
# Where the demo studies lie that the app opens.
DEMO_STUDIES := assets/studies

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help app test test-slow lint format types demo-table circuit-tables bench demo-studies clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# An interrupted creation leaves a folder without pip, which is then made again.
$(BIN)/pip:
	@.ci/make-venv "$(VENV)" "$(PYTHON)"

$(VENV)/.requirements.stamp: requirements.txt | $(BIN)/pip
	@echo "Installing requirements.txt into $(VENV) (some GB and some minutes the first time)"
	@$(BIN)/pip install --quiet -r requirements.txt
	@touch $@

$(VENV)/.requirements-dev.stamp: requirements-dev.txt $(VENV)/.requirements.stamp
	@echo "Installing requirements-dev.txt into $(VENV)"
	@$(BIN)/pip install --quiet -r requirements-dev.txt
	@touch $@

app: $(VENV)/.requirements.stamp ## open the app on http://127.0.0.1:8501 (PORT=... for another port)
	@.ci/system-packages libraries
	@$(BIN)/streamlit run app.py --server.port $(PORT)

lint: $(VENV)/.requirements-dev.stamp ## ruff: lint and format, checked
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.requirements-dev.stamp ## ruff: mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.requirements-dev.stamp ## mypy strict on hydra_core
	$(BIN)/mypy

test: lint types ## lint, types and every test that fits ten minutes
	@.ci/system-packages libraries browser
	HF_HUB_OFFLINE=1 $(BIN)/pytest -n 2 --dist loadfile $(PYTEST_ARGS)

test-slow: $(VENV)/.requirements-dev.stamp ## the tests that do not fit ten minutes
	@.ci/system-packages libraries browser
	HF_HUB_OFFLINE=1 $(BIN)/pytest -m slow $(PYTEST_ARGS)

demo-table: $(VENV)/.requirements.stamp ## the zero-shot table of each demo, as Markdown (half an hour on 2 cores)
	HF_HUB_OFFLINE=1 $(BIN)/python -m hydra_core table --out benchmarks/results

circuit-tables: $(VENV)/.requirements.stamp ## how few heads carry each demo, by ranking and seed (goes on where it was stopped)
	HF_HUB_OFFLINE=1 $(BIN)/python -m benchmarks.faithfulness
	$(BIN)/python -m benchmarks.readme

bench: $(VENV)/.requirements.stamp ## the speed tables, two hours on 2 cores; the GPU part says so where there is no GPU
	$(BIN)/python -m benchmarks.fusion
	$(BIN)/python -m benchmarks.headmap
	$(BIN)/python -m benchmarks.gpu

demo-studies: $(VENV)/.requirements.stamp ## compute the demo studies that the app opens again
	HF_HUB_OFFLINE=1 $(BIN)/python -m benchmarks.demo_studies --out $(DEMO_STUDIES)

clean: ## remove caches and .venv, never a study
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis test-results
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

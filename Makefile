# Two commands need nothing set up beforehand: `make run` and `make test`.
# Each makes .venv when it is missing and installs what it lacks.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ARGS   ?=
# Most tests wait for processes and sockets: two at once take half the time of one by one, and
# three no less. Files go out in their order: those of few and long tests must not come last.
JOBS   ?= 2

RUN_STAMP := $(VENV)/.installed-run
DEV_STAMP := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.PHONY: help run test lint check doctest wheel proof-engine proof-ladder proof-front proof-api proof-rollback clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(RUN_STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --progress-bar on -e ".[engine]"
	@touch $@

$(DEV_STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --progress-bar on -e ".[engine,dev]"
	@touch $(RUN_STAMP) $@

run: $(RUN_STAMP) ## start the default engine: make run ARGS="--port 8123"
	@exec $(BIN)/failsoft up $(ARGS)

test: $(DEV_STAMP) ## run every test and doctest (at most 10 minutes on 2 cores)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(DEV_STAMP) ## ruff, mypy --strict, import order
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy failsoft tests benchmarks
	$(BIN)/lint-imports

check: lint test ## everything that must hold before a change lands

wheel: $(DEV_STAMP) ## build sdist and wheel into dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

proof-engine: $(DEV_STAMP) ## measure every line the engine must hold
	$(BIN)/python -m benchmarks.proof_engine $(ARGS)

proof-ladder: $(DEV_STAMP) ## measure every line the ladder must hold
	$(BIN)/python -m benchmarks.proof_ladder $(ARGS)

proof-front: $(DEV_STAMP) ## measure every line front and supervisor must hold
	$(BIN)/python -m benchmarks.proof_front $(ARGS)

proof-api: $(DEV_STAMP) ## measure every line the engine's API and its bench must hold
	$(BIN)/python -m benchmarks.proof_api $(ARGS)

proof-rollback: $(DEV_STAMP) ## measure every line that moves of pins and fingerprints must hold
	$(BIN)/python -m benchmarks.proof_rollback $(ARGS)

clean: ## remove the environment and what was built
	rm -rf $(VENV) dist build *.egg-info .mypy_cache .pytest_cache .ruff_cache

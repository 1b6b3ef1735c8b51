# `make demo` and `make test` do all the set-up that they need; `make help` lists the rest.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: help demo test check format bench sim interop clouds browser nightly fuzz mutate docs site lock coverage java chromium clean

VENV := .venv
PY := $(VENV)/bin/python
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(PY) -m pip install --quiet
STAMP := $(VENV)/installed
# Tests and the demo start many processes: without compiled modules, each compiles both packages anew (0.7 s).
unexport PYTHONDONTWRITEBYTECODE
export PYSPARK_PYTHON := $(abspath $(PY))
export PYSPARK_DRIVER_PYTHON := $(abspath $(PY))
# PINNED=no VENV=.venv-latest: the newest versions of all dependencies, in an environment of their own
PINNED ?= yes
# Tests run in so many processes side by side. A worker mostly waits, for a disk or a process: four keep two cores busy.
WORKERS ?= 4
IN_WORKERS := -n $(WORKERS) --dist loadscope --no-loadscope-reorder
# Sets have the same order in each run, so tests draw the same histories from them. `make nightly` draws another seed.
export PYTHONHASHSEED ?= 0
# Arguments for pytest, the demo, the benches or the simulator: make test ARGS='-k fencing'
ARGS ?=

help: ## Lists the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1|/' | column -t -s '|'

demo: $(STAMP) java ## Runs the main job on real data: exactly-once through two kills
	@echo "installation took $$(cat $(STAMP)) s (once; not part of the demo's time)"
	@$(PY) examples/flights_demo.py $(ARGS)

test: $(STAMP) java ## Runs all tests but the nightly ones, and those of `make interop`, `make clouds` and `make browser`
	@$(PY) -m pytest -m 'not nightly and not interop and not clouds and not browser' $(IN_WORKERS) $(ARGS)

check: $(STAMP) ## Lint, format, types, import layers and prose
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports
	@$(PY) docs/check_prose.py

format: $(STAMP) ## Formats the code
	@$(VENV)/bin/ruff check --fix --select I .
	@$(VENV)/bin/ruff format .

bench: $(STAMP) ## Measures speed and memory, each against a peer
	@$(PIP) --editable '.[bench]'
	@$(PY) -m bench $(ARGS)

sim: $(STAMP) ## Runs the simulator: make sim ARGS='--seed 7'
	@$(PY) -m tests.simulation.simulate $(ARGS)

interop: $(STAMP) java ## Runs Kafka's tools and clients, confluent-kafka's modules, stream frameworks, hadoop-aws, engines that read tables (fetches them once)
	@$(PY) -m pytest -m interop $(ARGS)

clouds: $(STAMP) ## Runs stores on emulators of Google Cloud Storage and Azure (fetches them once)
	@.ci/ensure-clouds
	@$(PIP) --constraint .ci/constraints.txt --editable '.[gcs,azure]'
	@$(PY) -m pytest -m 'clouds and not nightly' tests/stores tests/maintenance tests/crash $(ARGS)

browser: chromium ## Runs the tests of the console's pages in Chromium (installs it once)
	@$(PY) -m pytest -m browser tests/browser $(ARGS)

nightly: $(STAMP) java ## Runs all that is long or random, in less than six hours: make nightly ARGS='--only crash' or '--resume'
	@.ci/ensure-clouds
	@.ci/ensure-chromium
	@$(PIP) --constraint .ci/constraints.txt --editable '.[fuzz,mutate,gcs,azure,browser]'
	@$(PY) -m tests.nightly $(ARGS)

fuzz: $(STAMP) ## Fuzzes every decoder, guided by coverage: make fuzz ARGS='--seconds 600'
	@$(PIP) --editable '.[fuzz]'
	@$(PY) -m tests.fuzz $(ARGS)

mutate: $(STAMP) ## Looks for changes of the state machine, or of any modules, that no test rejects: make mutate ARGS='--help'
	@$(PIP) --constraint .ci/constraints.txt --editable '.[mutate]'
	@$(PY) -m tests.mutation $(ARGS)

docs: $(STAMP) ## Writes what is made from settings, from the tests and their marks, and from a store
	@$(PY) docs/generate_configuration.py
	@$(PY) docs/generate_example.py
	@$(PY) -m tests.evidence

site: chromium ## Takes and tests the console's pages in Chromium, and builds the documentation site in build/site
	@$(PY) -m tests.browser.pictures docs/images
	@$(PY) -m pytest -q -m browser tests/browser $(ARGS)
	@.ci/ensure-site .venv-site
	@.venv-site/bin/python site/stage.py build/site-pages
	@cp site/mkdocs.yml build/mkdocs.yml
	@.venv-site/bin/zensical build --strict --config-file build/mkdocs.yml
	@.venv-site/bin/python site/versions.py build/site-built build/site

lock: ## Writes .ci/constraints.txt from the newest versions of all dependencies
	@$(MAKE) --no-print-directory .venv-lock/installed VENV=.venv-lock PINNED=no
	@PIP_DISABLE_PIP_VERSION_CHECK=1 .venv-lock/bin/python -m pip install --quiet --editable '.[mutate,gcs,azure,site,browser]'
	@{ head -1 .ci/constraints.txt; .venv-lock/bin/python -m pip freeze --exclude-editable; } >.ci/constraints.new
	@mv .ci/constraints.new .ci/constraints.txt
	@rm -rf .venv-lock

coverage: $(STAMP) java ## Runs the tests and writes which lines and branches they reach, as coverage/index.html
	@$(PY) -m pytest -m 'not nightly and not interop and not clouds and not browser' $(IN_WORKERS) --cov --cov-report=html:coverage --cov-report=term $(ARGS)

java:
	@.ci/ensure-java

chromium: $(STAMP) java
	@.ci/ensure-chromium
	@$(PIP) --constraint .ci/constraints.txt --editable '.[browser]'

clean: ## Removes the virtual environment and everything that was built
	rm -rf $(VENV) .venv-* mutants build dist coverage .coverage* demo-output nightly-output bench/results .pytest_cache .mypy_cache .ruff_cache .hypothesis \
	    .import_linter_cache spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Made when it is missing, when pyproject.toml or the constraints have changed, or when the last installation did not end.
$(STAMP): pyproject.toml .ci/constraints.txt .ci/ensure-venv
	@PINNED=$(PINNED) .ci/ensure-venv $(VENV) $(STAMP)

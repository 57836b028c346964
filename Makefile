# EDT Studio. `make` lists what there is; nothing needs to be installed before but Python 3.11 or newer.
PORT ?= 8000
HOST ?= 127.0.0.1
PY := .venv/bin/python
WORKERS ?= 3
SOURCES := webapp experiments training_runtime edt_client tools
# What needs no process, broker or browser: deciders, formats, and who may import whom.
FAST := tests/architecture tests/runtime tests/scheduling tests/engine/test_membership.py tests/engine/test_tree.py \
    tests/host/test_reconcile.py tests/host/test_reconcile_agents.py tests/client tests/notebooks/test_cell.py

.DEFAULT_GOAL := help
.PHONY: help demo up node test check lint style types bench gpu-check packages tensorflow clean setup setup-test setup-bench browser

help: ## list these targets
	@echo "EDT Studio: share a few GPUs; jobs grow and shrink without stopping."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "Data is kept in .edt (EDT_HOME moves it); README.md lists every setting."

demo: setup ## set up, start and show it: two people's jobs share four slots (EXIT=1: end by itself)
	@$(PY) manage.py demo --port $(PORT) $(if $(EXIT),--exit)

up: setup ## set up and start the studio at http://127.0.0.1:8000 (PORT=..., HOST=..., SLOTS=...)
	@$(PY) manage.py studio --host $(HOST) --port $(PORT) $(if $(SLOTS),--slots $(SLOTS))

node: setup ## share this machine's slots with a studio (STUDIO=https://... TOKEN=edtn_...; what page "Add a machine" says)
	@$(PY) -m training_runtime.node join $(STUDIO) $(if $(TOKEN),--token $(TOKEN)) $(if $(SLOTS),--slots $(SLOTS))

test: setup-test browser ## lint, types and every test, as continuous integration runs them
	@tools/test.sh $(PY) $(WORKERS) $(ARGS)

check: lint ## style, types and the fast tests: while you work (under two minutes)
	@$(PY) -m pytest -q $(FAST)

lint: style types ## style and types

style: setup-test # ruff and djade: seconds
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@find templates -name '*.html' -print0 | xargs -0 .venv/bin/djade --target-version 5.2 --check

types: setup-test # mypy
	@EDT_HOME=$(CURDIR)/.cache/lint $(PY) -m mypy $(SOURCES)

bench: setup-bench ## run the benchmarks (QUICK=1: under a minute each; ONLY=name: that one)
	@set -e; for file in $$(grep -l '__main__' benchmarks/$(or $(ONLY),*).py); do \
	    name=$$(basename $$file .py); \
	    echo "== $$name"; $(PY) -m benchmarks.$$name $(if $(QUICK),--quick); \
	done

gpu-check: setup-test ## what only GPUs can show: exactness, speed and a death with 1 to 4 workers (QUICK=1); says so where there is none
	@$(PY) -m pytest -q tests/gpu
	@$(PY) -m benchmarks.gpu_check $(if $(QUICK),--quick)

packages: setup ## add packages that scripts use often: torchvision, keras, pandas, tqdm, tensorboard, ...
	@tools/setup.sh packages

tensorflow: setup ## add TensorFlow, for scripts that use more of it than tf.keras
	@tools/setup.sh tensorflow

clean: ## remove the virtual environment and all caches (never your data)
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis test-output
	@find . -name __pycache__ -type d -not -path './.edt/*' -prune -exec rm -rf {} +

setup:
	@tools/setup.sh

setup-test:
	@tools/setup.sh test

setup-bench: setup-test
	@tools/setup.sh bench

browser:
	@tools/browser.sh

# Every target does the set-up a fresh machine needs: Python 3.11 or newer and git are enough.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-quick soak lint bench docs lock clean

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

setup: ## make .venv
	@scripts/setup

demo: setup ## ten issues become merged changes, every trap named: make demo ARGS="--seed 7"
	@$(BIN)/ironworks demo $(ARGS)

test: lint ## everything but the soak tests; skips are listed with their reasons
	$(PYTEST) -m "not soak"

test-quick: setup ## the tests that take under two minutes together
	$(PYTEST) -m "not slow and not soak"

soak: setup ## the tests that take many minutes
	$(PYTEST) -m soak

lint: setup ## ruff, mypy, import-linter
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup ## every program in benchmarks/
	@for program in benchmarks/*.py; do \
	  [ ! -e "$$program" ] || { echo "== $$program" && $(BIN)/python "$$program"; } || exit 1; \
	done

docs: setup ## write docs/reference anew from the code
	$(BIN)/python scripts/docs.py

lock: setup ## resolve the dependencies anew: make lock ARGS="--upgrade"
	scripts/lock $(ARGS)

clean: ## remove what the other targets made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Everything a checkout needs. Start with `make run`; PYTHON=python3.12 (say) chooses the interpreter of the first setup.

BIN := .venv/bin

# Arguments for pytest, as in: make test ARGS="-k endpoint"
ARGS ?=

# Empty keeps the pinned versions that still fit; make requirements UPGRADE=--upgrade takes the newest of all.
UPGRADE ?=

.DEFAULT_GOAL := help
.PHONY: help setup nano run test check requirements

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

setup: ## make .venv ready; quick when nothing has changed
	@PYTHON='$(PYTHON)' tools/setup.sh

nano: setup ## add what Fun-ASR-Nano needs; the first time, building llama.cpp takes some minutes
	@tools/setup.sh nano

run: setup ## serve captions on a page at http://127.0.0.1:8765, with the built-in digits until a full model is installed
	@echo 'run: the command liveasr is $(BIN)/liveasr here; `source $(BIN)/activate` puts it on the path'
	@exec $(BIN)/liveasr serve

# Two at a time, since many wait for a clock; those of a file one after the other, since they share servers and browsers.
test: nano ## run the tests, those of Fun-ASR-Nano included
	$(BIN)/pytest --numprocesses 2 --dist loadfile $(ARGS)

check: setup ## lint, formatting, types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy -p liveasr
	MYPYPATH=src $(BIN)/mypy --explicit-package-bases tests

# One file for every platform and Python, and one that has llama.cpp besides: it compiles for minutes, and few want it.
COMPILE = $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --extra mic --group dev \
	--no-emit-index-url --no-annotate --custom-compile-command 'make requirements' $(UPGRADE)

requirements: ## pin the versions in requirements*.txt, from pyproject.toml
	@PYTHON='$(PYTHON)' tools/setup.sh uv
	$(COMPILE) --output-file requirements.txt
	$(COMPILE) --extra nano --constraint requirements.txt --output-file requirements-nano.txt

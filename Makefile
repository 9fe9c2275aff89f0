# Two commands for people: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check

.PHONY: help demo test test-slow verify docs format clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       install climb into $(VENV) and run CLIMB on a built-in synthetic stream (a minute or two)"
	@echo "make test       install the development tools and pass every check (under ten minutes)"
	@echo "make test-slow  what needs longer"
	@echo "make verify     every method on the demo's stream, three seeds (an hour on two cores)"
	@echo "make docs       the documentation as a site, in build/site"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# A stamp file per install: pip runs again only when the project's requirements change.
$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) install -q -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) install -q -c constraints.txt -e ".[dev]"
	@touch $@ $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/climb run

test: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 -m "not slow and not gpu"

test-slow: $(VENV)/.installed-dev
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "slow"

verify: $(VENV)/.installed
	$(BIN)/python benchmarks/verify_methods.py

docs: $(VENV)/.installed-dev
	$(BIN)/mkdocs build --strict
	@echo "open build/site/index.html"

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache

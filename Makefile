# Two commands for people: `make demo` and `make test`. The others serve development; see CONTRIBUTING.md.
PYTHON ?= python3
VENV ?= .venv
BIN ?= $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help demo test test-slow soak gpu-test coverage verify docs wheel-test format clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       install climb into $(VENV) and run CLIMB on a built-in synthetic stream (a minute or two)"
	@echo "make test       install the development tools and pass every check (about ten minutes on two cores)"
	@echo "make test-slow  the slow tests"
	@echo "make soak       the soak test (hours): kills, damage, hostile images, arguments and requests, limits, a million images"
	@echo "make gpu-test   the tests that need a CUDA device"
	@echo "make coverage   the quick tests again, with line coverage and its floor"
	@echo "make verify     every method on the demo's stream, three seeds (an hour on two cores)"
	@echo "make docs       the documentation as a site, in build/site"
	@echo "make wheel-test build the wheel, install it into an empty environment, run the demo from it"

# INSTALLED=1 takes the Python in BIN as it is, for machines that install in a step of their own.
ifndef INSTALLED
INSTALL := $(VENV)/.installed
INSTALL_DEV := $(VENV)/.installed-dev
endif

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# A stamp file per install: pip runs again only when the project's requirements change.
$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -q -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -q -c constraints.txt -e ".[dev]"
	@touch $@ $(VENV)/.installed

demo: $(INSTALL)
	$(BIN)/climb run

test: $(INSTALL_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 -m "not slow and not gpu"

test-slow: $(INSTALL_DEV)
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "slow and not gpu"

# Each part runs alone and ends with its count of trials and failures.
soak: $(INSTALL_DEV)
	$(BIN)/python tests/soak/kills.py
	$(BIN)/python tests/soak/damage.py
	$(BIN)/python tests/soak/malformed_images.py
	$(BIN)/python tests/soak/arguments.py
	$(BIN)/python tests/soak/server.py
	$(BIN)/python tests/soak/pages.py
	$(BIN)/python tests/soak/limits.py
	$(BIN)/python benchmarks/million.py

gpu-test: $(INSTALL_DEV)
	$(BIN)/pytest -m gpu

coverage: $(INSTALL_DEV)
	$(BIN)/pytest -n 2 -m "not slow and not gpu" --cov --cov-report=term:skip-covered

verify: $(INSTALL)
	$(BIN)/python benchmarks/verify_methods.py

docs: $(INSTALL_DEV)
	$(BIN)/mkdocs build --strict
	@echo "open build/site/index.html"

# From another folder, so that the wheel is imported and not the checkout.
wheel-test:
	rm -rf build/wheel-test dist
	$(PYTHON) -m venv build/wheel-test
	build/wheel-test/bin/python -m pip --disable-pip-version-check install -q build
	build/wheel-test/bin/python -m build -q --wheel
	$(PYTHON) -m venv --clear build/wheel-test
	build/wheel-test/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt dist/*.whl
	cd build && wheel-test/bin/climb doctor && wheel-test/bin/climb run --out wheel-test/demo

format: $(INSTALL_DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .coverage

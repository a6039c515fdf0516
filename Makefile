# make demo and make test need Python 3.11 or newer and pip, nothing else.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-unit test-slow test-timm coverage docs lint release-check clean

# one thread: on small networks threads wait for each other longer than they work
demo: .venv/runtime.stamp
	$(BIN)/falconcal run digits --threads 1 --out runs/digits

test: lint
	$(BIN)/python -m pytest --numprocesses 2

# the quick tests: under a minute, no other processes, browsers or whole studies
test-unit: .venv/development.stamp
	$(BIN)/python -m pytest --numprocesses 2 -m 'not slow and not end_to_end'

coverage: .venv/development.stamp
	$(BIN)/python -m pytest --numprocesses 2 --cov --cov-report=term --cov-report=html:site/coverage

test-slow: .venv/development.stamp
	$(BIN)/python -m pytest -m slow
	HYPOTHESIS_PROFILE=searching $(BIN)/python -m pytest -m hypothesis
	$(MAKE) test-timm

# timm's torchvision does not import beside torch's CPU build: an environment on top of .venv, where
# the tests declare the operators that it lacks
test-timm: .venv/timm.stamp
	.venv-timm/bin/python -m pytest -m slow tests/integrations/test_timm.py
	.venv-timm/bin/python -m pytest tests/project/test_architecture.py -k "five_lines"

docs: .venv/development.stamp
	$(BIN)/python -m mkdocs build --strict --quiet --site-dir site

lint: .venv/development.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# build, check and install the release in a fresh environment, run it, and test the source archive
release-check: .venv/development.stamp
	PYTHON=$(PYTHON) ./.ci/release-check

clean:
	rm -rf .venv .venv-timm site dist .mypy_cache .ruff_cache .pytest_cache .coverage

.venv/python.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "falconcal needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

.venv/runtime.stamp: .venv/python.stamp pyproject.toml constraints.txt
	@echo "Installing falconcal into .venv (a minute or two the first time) ..."
	$(INSTALL) --editable .
	@touch $@

.venv/timm.stamp: .venv/development.stamp
	$(PYTHON) -m venv .venv-timm
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
		"$$(.venv-timm/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beside.pth"
	.venv-timm/bin/python -m pip install --quiet --disable-pip-version-check --no-deps timm==1.0.31 torchvision==0.28.0
	.venv-timm/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt huggingface_hub pyyaml pandas
	@touch $@

.venv/development.stamp: .venv/python.stamp pyproject.toml constraints.txt
	@echo "Installing falconcal and the development tools into .venv (a minute or two the first time) ..."
	$(INSTALL) --editable '.[dev]'
	@touch $@ .venv/runtime.stamp

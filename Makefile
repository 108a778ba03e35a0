# Two commands need nothing but Python 3.11+, pip and make: `make demo` and `make test`. Both make the environment in
# .venv first; a second run finds it there and starts at once.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# The pins hold for what is installed and for what builds qkv itself.
INSTALL := $(PIP) install --constraint constraints.txt --build-constraint constraints.txt

# What an environment was last made from; newer settings make it again.
DEMO_READY := $(VENV)/.ready-for-demo
TEST_READY := $(VENV)/.ready-for-test
SETTINGS   := pyproject.toml constraints.txt
# What the pages are built and tested with. Nothing else needs npm: the package carries what was built.
NPM_READY  := viewer/node_modules/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test lint format types imports unit slow benchmark viewer browser clean

help:  ## say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(DEMO_READY)  ## judge a wrong attention and show the report
	$(BIN)/qkv demo

test: lint types imports unit  ## everything that has to pass before a change is done

lint: $(TEST_READY)  ## style, without changing anything
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(TEST_READY)
	$(BIN)/mypy

imports: $(TEST_READY)
	$(BIN)/lint-imports --no-cache

# Two workers have the cores; threads of each under small matrices only get in their way.
unit: $(TEST_READY)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m "not slow" $(PYTEST_ARGS)

slow: $(TEST_READY)  ## the tests that take minutes: every way of every fault
	$(BIN)/python -m pytest -q -n 2 -m slow $(PYTEST_ARGS)

format: $(TEST_READY)  ## put the style right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmark: $(TEST_READY)  ## measure what the project claims
	$(BIN)/python -m benchmarks

viewer: $(NPM_READY)  ## build the script and the styles of the pages
	cd viewer && npm run build

browser: $(TEST_READY) $(NPM_READY)  ## test the pages in Chromium
	PYTHON=$(abspath $(BIN)/python) node --test --test-concurrency=2 $(wildcard viewer/tests/*.test.mjs)

clean:  ## remove the environment and everything that was built
	rm -rf $(VENV) build dist viewer/node_modules viewer/tests/shots .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests examples -name __pycache__ -type d -prune -exec rm -rf {} +

# `--upgrade` because the pip that comes with a Python may be too old to know dependency groups.
define make_venv
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"qkv needs Python 3.11 or newer and $(PYTHON) is {v[0]}.{v[1]}. Name another one: make PYTHON=python3.11")'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --quiet --upgrade --constraint constraints.txt pip
endef

$(DEMO_READY): $(SETTINGS)
	$(make_venv)
	$(INSTALL) --editable '.[torch]'
	@touch $@

# What the tests need includes what the demo needs.
$(TEST_READY): $(SETTINGS)
	$(make_venv)
	$(INSTALL) --editable '.[test]' --group dev
	@touch $(DEMO_READY) $@

$(NPM_READY): viewer/package-lock.json
	cd viewer && npm ci --no-audit --no-fund
	@touch $@

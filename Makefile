# Needs python3 (3.11 or later, with venv) and make. Everything else is installed into .venv.

PYTHON ?= python3
BIN := .venv/bin
PYTEST_OPTIONS ?= -n 2 --dist worksteal -m "not slow"
STAMP := .venv/.installed


.PHONY: demo test slow check static bench soak soak-servers docs format clean

demo: $(STAMP)
	$(BIN)/python -m examples.flights

test: $(STAMP)
	$(BIN)/pytest $(PYTEST_OPTIONS)

# More of the same as in `test`, a cluster and Connect.
slow: $(STAMP)
	$(BIN)/pytest -m slow

check: static test docs

# All of `check` but the tests and the docs.
static: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python -m bench

soak: $(STAMP)
	$(BIN)/python -m tests.soak

# Servers that are killed every few seconds, and their database too.
soak-servers: $(STAMP)
	$(BIN)/python -m tests.soak_servers --minutes 3 --seed 3

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Kilonova needs Python 3.11 or later; name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

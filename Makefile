# Needs python3 (3.11 or later, with venv) and make; tests of the web page need a Chromium too: see `browser`.
# Everything else is installed into .venv.

PYTHON ?= python3
BIN := .venv/bin
ALL_TESTS := -n 3 --dist worksteal -m "not slow"
# Of the tests that take longer than a second, of which there are 1,200, each run takes others.
LONG_SHARE ?= 0.2
PYTEST_OPTIONS ?= $(ALL_TESTS) --long-share $(LONG_SHARE)
STAMP := .venv/.installed
BROWSER := chromium fonts-inter fonts-noto-core

# Images of containers often forbid it, and then each of the many processes of the tests compiles all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: install demo test test-all browser archive slow check static bench soak soak-servers chaos docs pictures format clean

install: $(STAMP)

demo: $(STAMP)
	$(BIN)/python -m examples.flights

test: $(STAMP) browser archive
	$(BIN)/pytest $(PYTEST_OPTIONS)

# All tests but the slow ones, in most of an hour; records which take long.
test-all: $(STAMP) browser archive
	$(BIN)/pytest $(ALL_TESTS) --record-durations

# Java's class-data archive, with which Spark starts in half the time.
archive: $(STAMP)
	$(BIN)/python -c "from kilonova.jvm.cds_archive import make_class_data_archive; make_class_data_archive()"

# A Chromium for the tests of the web page, which are skipped where there is none.
browser:
	@for each in chromium chromium-browser google-chrome; do command -v $$each >/dev/null && exit; done; \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    apt-get update -qq && apt-get install -qq -y --no-install-recommends $(BROWSER) || \
	        echo "Chromium could not be installed: the web page is not tested" >&2; \
	else \
	    echo "There is no Chromium: the web page is not tested. Install one, such as with: apt-get install $(BROWSER)" >&2; \
	fi

# More of the same as in `test`, a cluster and Connect.
slow: $(STAMP)
	KILONOVA_STRIDE=1 PYSPARK_SUBMIT_ARGS=pyspark-shell $(BIN)/pytest -m slow

check: static test docs

# All of `check` but the tests and the docs.
static: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python -m bench

# Hours of faults, with new seeds, which are printed.
soak: $(STAMP)
	$(BIN)/python -m tests.soak
	$(BIN)/python -m tests.chaos --faults 1000

# Servers that are killed every few seconds, and their database too, with a new seed.
soak-servers: $(STAMP)
	$(BIN)/python -m tests.soak_servers --minutes 0.5

# Servers with Sparks of their own, and faults of every kind, with a new seed.
chaos: $(STAMP)
	$(BIN)/python -m tests.chaos --minutes 0.5

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The pictures of the web page in the docs, taken anew.
pictures: $(STAMP) browser
	KILONOVA_PICTURES=1 $(BIN)/pytest tests/web/browser/test_pictures.py

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

# uv takes a third of the time, but does not know pip's configuration, so that it may not find what pip finds.
# Compiling all modules takes twice as long as installing them: only those are compiled that commands and servers import,
# because where the environment forbids it, each command would compile them, for which `kilonova status` takes 2 s.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Kilonova needs Python 3.11 or later; name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet -e '.[dev]' || \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[dev]'
	$(BIN)/python -c 'import kilonova.cli.main, kilonova.scheduler.loop, kilonova.web.application, kilonova.warehouse.session'
	@touch $@

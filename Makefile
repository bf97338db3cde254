# Two commands do everything on a fresh machine: `make demo` and `make test`. Both set up what they need first.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/.set-up
# Tests use one thread each, so that a process for each core is the fastest; a file's tests share what they made.
SPREAD := -n auto --maxprocesses 4 --dist loadfile

.PHONY: demo test quick docs reference setup clean help

help:
	@echo "make demo    prepare the Complete Journey data, build its label space, write a report to look at"
	@echo "make test    style, types and all tests"
	@echo "make quick   the fast tests only"
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

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

reference: setup
	$(BIN)/python scripts/reference.py

setup: $(STAMP)

# Once, and again only when the requirements change.
$(STAMP): pyproject.toml constraints.txt scripts/set-up
	PYTHON=$(PYTHON) VENV=$(VENV) scripts/set-up
	@touch $@

clean:
	rm -rf runs .cache site

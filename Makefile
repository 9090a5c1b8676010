# `make demo` and `make test` do all the set-up they need, in .venv.
#
#   PYTHON       the interpreter to build .venv from: CPython 3.11, 3.12 or 3.13
#   PIP_OPTIONS  for example --extra-index-url https://download.pytorch.org/whl/cpu,
#                to get torch without its GPU libraries (gigabytes) on Linux
#   WORKERS      how many processes run tests
#   TORCH        the version of torch that `make test-torch` runs the tests with, say 2.14.1

PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,\
	$(shell command -v $(name))))
PIP_OPTIONS ?=
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
NATIVE := $(wildcard src/fusewright/native/*.[ch] src/fusewright/native/standalone/*.[ch])

.PHONY: demo test test-all test-torch lint style types imports docs wheels bench bless clean

demo: $(READY)
	$(BIN)/python -m examples.demo

test: $(READY)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal \
		-m 'not every_float and not thorough'

test-all: $(READY)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal

# Another torch has an environment of its own; the one for development keeps the pinned torch.
test-torch: OTHER := .venv-torch-$(TORCH)
test-torch:
	@test -n "$(TORCH)" || { echo "which torch? for example: make test-torch TORCH=2.14.1"; exit 1; }
	test -x $(OTHER)/bin/python || $(PYTHON) -m venv $(OTHER)
	grep -v -e '^torch==' -e '^triton==' constraints.txt > $(OTHER)/constraints.txt
	$(OTHER)/bin/python -m pip install $(PIP_OPTIONS) --constraint $(OTHER)/constraints.txt \
		'torch==$(TORCH)' --editable '.[dev]'
	$(OTHER)/bin/python -m pytest --numprocesses $(WORKERS) --dist worksteal

lint: style types imports

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports

# The documentation site, in build/site; a link that leads nowhere is an error.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# A wheel for each supported Python that is found, in dist.
wheels: $(READY)
	$(BIN)/python -m tools.build_wheels

bench: $(READY)
	$(BIN)/python -m benchmarks.compare --device cpu

# Write the golden files anew; read the difference before committing it.
bless: $(READY)
	$(BIN)/python -m tests.bless

# The package stays editable, with its C extension built in place by pip.
$(READY): pyproject.toml setup.py constraints.txt $(NATIVE)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
		{ echo "fusewright needs CPython 3.11, 3.12 or 3.13: make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_OPTIONS) --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .venv-torch-* build src/*.egg-info src/fusewright/native/*.so

# The two commands of a newcomer: `make bench` and `make test`. Both make .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: bench test test-all lint clean

# torch comes first and pinned: on a machine without GPUs the plain name fetches gigabytes of CUDA.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "commbench needs Python 3.11 or newer; name one with make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(shell grep '^torch==' constraints.txt)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[mpi-wheel,test]'
	touch $@

bench: $(VENV)/.installed
	$(BIN)/commbench run quick

# Triton's interpreter runs the kernels on a CPU; without it their tests skip.
$(VENV)/.tested: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[kernels]'
	touch $@

test: $(VENV)/.tested
	$(BIN)/python -m pytest -m "not full"

# The slow and wide rest; `make test` is not repeated.
test-all: $(VENV)/.tested
	$(BIN)/python -m pytest -m full

lint: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet ruff && $(BIN)/ruff check .

clean:
	rm -rf $(VENV) build *.egg-info

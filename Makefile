# Everything runs in .venv, which the first command that needs it makes with pip and constraints.txt.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help demo tour test quick lint bench clean

help:
	@echo "make demo    a federation that a vehicle leaves: every method's F1, and a report; about two minutes"
	@echo "make tour    one departure with plain arrays, printed step by step"
	@echo "make test    all tests            make quick   without the slow ones"
	@echo "make lint    ruff and mypy        make bench   the benchmarks of benchmarks/"
	@echo "make clean   remove .venv and caches"

# Runs anew every time. Without --overwrite, what runs/demo holds of these settings would be gone on from or shown.
demo: .venv/ready
	$(BIN)/mpt run --dataset road --rare truck --per-class 300 --rounds 25 --epochs 2 --out runs/demo --overwrite \
	  --methods fedavg,ccvr,icarl,sdc,ldc,frozen,remaining-mean,mpt,mpt-lite,oracle,oracle-train

tour: .venv/ready
	$(BIN)/python examples/core_tour.py

test: .venv/ready
	$(BIN)/python -m pytest

quick: .venv/ready
	$(BIN)/python -m pytest -m "not slow"

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/ready
	$(BIN)/python benchmarks/reconstruction.py
	$(BIN)/python benchmarks/merging.py
	$(BIN)/python benchmarks/road.py

.venv/ready: pyproject.toml constraints.txt
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "'$(PYTHON)' is no Python 3.11 or newer; name one: make PYTHON=/path/to/python3 $(MAKECMDGOALS)"; exit 1; }
	'$(PYTHON)' -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,sim]"
	@touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist

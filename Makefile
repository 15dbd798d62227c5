# Everything runs in .venv, which the first command that needs it makes with pip and constraints.txt: each command
# installs what it needs and no more.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help demo tour fleet-demo fleet-newest test quick lint docs bench bench-simulators bench-cpu clean

help:
	@echo "make demo          a federation that a vehicle leaves, and a report; a minute"
	@echo "make fleet-demo    a SuperLink and four vehicles, one of which leaves; 3 minutes"
	@echo "make tour          one departure with plain arrays, printed step by step"
	@echo "make docs          docs/_build/html; 5 minutes, GALLERY=skip: half a one"
	@echo "make test          all tests; 25 minutes on two cores"
	@echo "make quick         without the slow ones"
	@echo "make lint          ruff, mypy and import-linter"
	@echo "make bench         a reconstruction, merging, drawn road objects"
	@echo "make bench-cpu     what MPT adds to a round, and how it grows; 10 minutes"
	@echo "make fleet-newest  the fleet's tests on the newest Flower; 15 minutes"
	@echo "make bench-simulators  a round beside Flower's and pfl's; 10 minutes"
	@echo "make clean         remove .venv, .venv-bench, .venv-newest and caches"

# Runs anew every time. Without --overwrite, what runs/demo holds of these settings would be gone on from or shown.
# ROWS=all has every row of the paper's Table 2 besides; or name some that `mpt methods` lists.
ROWS ?= fedavg,frozen,mpt,mpt-x,oracle-train
ALL := fedavg,ccvr,icarl,sdc,ldc,frozen,remaining-mean,mpt,mpt-lite,mpt-x,oracle,oracle-train
demo: .venv/sim
	$(BIN)/mpt run --dataset digits --rare 8 --rounds 25 --epochs 2 --eval-every 1 --out runs/demo --overwrite \
	  --methods $(if $(filter all,$(ROWS)),$(ALL) --slow-every 5,$(ROWS))

tour: .venv/sim
	$(BIN)/python examples/core_tour.py

fleet-demo: .venv/fleet
	$(BIN)/python -m mpt.fleet.flower.demo runs/fleet-demo deploy/flower

# Side by side: a file a process, as many as there are cores, at most four, with a thread each.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test: .venv/ready
	$(PYTEST)

quick: .venv/ready
	$(PYTEST) -m "not slow"

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# GALLERY=skip shows the examples' code without running them.
docs: .venv/docs
	$(BIN)/python -m sphinx -b html -W --keep-going -q -d docs/_build/doctrees docs docs/_build/html
	$(BIN)/python docs/check_links.py docs/_build/html

bench: .venv/ready
	$(BIN)/python benchmarks/reconstruction.py
	$(BIN)/python benchmarks/merging.py
	$(BIN)/python benchmarks/road.py

bench-cpu: .venv/ready
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/scaling.py

bench-simulators: .venv-bench/ready
	.venv-bench/bin/python benchmarks/simulators.py

# Says what breaks on the newest Flower. Where a package that it wants is not to be had, it is tried without, and pip says so.
fleet-newest: .venv-newest/ready
	.venv-newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "flwr[simulation]"
	.venv-newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --no-deps flwr
	@.venv-newest/bin/python -m pip check --disable-pip-version-check | grep -i flwr || true
	@.venv-newest/bin/python -c 'from importlib.metadata import version; print("Flower", version("flwr"))'
	.venv-newest/bin/python -m pytest -q --tb=line -rfE tests/fleet

.venv-newest/ready: pyproject.toml constraints.txt
	'$(PYTHON)' -m venv .venv-newest
	.venv-newest/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,fleet-sim]"
	@touch $@

.venv-bench/ready: pyproject.toml constraints.txt
	'$(PYTHON)' -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  -e ".[fleet-sim]" "pfl[pytorch]==0.6.0"
	@touch $@

# $(call install,extras,what for): into .venv, with a line before and a line after.
define install
	@echo "Installing what $(2) needs into .venv, with pip ..."
	@begun=$$(date +%s); \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(1)]" && \
	  echo "... done after $$(($$(date +%s) - begun)) s; .venv has $$(du -sm .venv | cut -f1) MB"
	@touch $@
endef

.venv/bin/python:
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "'$(PYTHON)' is no Python 3.11 or newer; name one: make PYTHON=/path/to/python3 $(MAKECMDGOALS)"; exit 1; }
	@'$(PYTHON)' -m venv .venv

.venv/sim: pyproject.toml constraints.txt | .venv/bin/python
	$(call install,sim,the demo)

.venv/fleet: .venv/sim
	$(call install,fleet,a fleet)

.venv/ready: .venv/sim
	$(call install,dev$(comma)fleet-sim,a developer)

.venv/docs: .venv/sim
	$(call install,docs,the documentation)

comma := ,

clean:
	rm -rf .venv .venv-bench .venv-newest .pytest_cache .mypy_cache .ruff_cache .hypothesis dist

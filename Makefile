# make demo   sets everything up and runs the line on simulated logs, to a served prediction
# make test   sets everything up and passes the default tests
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
CONFIG := pipeline/configs/demo.yaml

.PHONY: demo test test-all lint benchmarks clean

$(VENV)/.installed: setup.py
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info[:2] == (3, 11) else "Python 3.11 is needed: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/rankmill simulate --out demo/logs --days 7 --rows-per-day 40000 --seed 7 --start 2026-01-05 --dirt 0.01
	$(BIN)/rankmill run $(CONFIG)
	@$(BIN)/rankmill serve $(CONFIG) > demo/server.log 2>&1 & server=$$!; \
	trap 'kill $$server' EXIT; \
	echo "rankmill predict $(CONFIG) --sample 5"; \
	$(BIN)/rankmill predict $(CONFIG) --sample 5 --wait 120

test: $(VENV)/.installed
	$(BIN)/python -m pytest --numprocesses=2 --dist=loadfile

# What starts processes of its own has the machine to itself; the rest runs two at a time.
test-all: $(VENV)/.installed
	$(BIN)/python -m pytest -m 'slow and not distributed and not serving' --numprocesses=2 --dist=loadfile
	$(BIN)/python -m pytest -m 'distributed or serving'

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy preprocessing models serving pipeline tests

benchmarks: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,peers]'
	$(BIN)/python -m tests.benchmarks.preprocess
	$(BIN)/python -m tests.benchmarks.train

clean:
	rm -rf $(VENV) demo work *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

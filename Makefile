# The commands of this repository. Everything is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: venv test lint demo bench clean

venv: $(VENV)/installed

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[test]'
	touch $@

lint: venv
	$(BIN)/ruff check .
	$(BIN)/mypy

test: venv
	$(BIN)/python -m pytest

demo: venv
	$(BIN)/python examples/compile_everything.py

# One after another, and nothing else at the same time: they measure.
bench: venv
	$(BIN)/python benchmarks/lowering_speed.py
	$(BIN)/python benchmarks/verify_speed.py
	$(BIN)/python benchmarks/table_check.py
	$(BIN)/python benchmarks/compile_speed.py
	$(BIN)/python benchmarks/service_hits.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

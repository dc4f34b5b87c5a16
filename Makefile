# Each target makes the virtual environment if there is none, and installs what it needs if that has changed. VENV=DIR keeps
# it elsewhere: several clones may then share one.
PYTHON ?= python3
VENV ?= .venv
TEXT ?= ../shared/data/text
WORKERS ?= 2
BIN := $(VENV)/bin

.PHONY: run test bench train chromium

run: $(VENV)/.app
	$(BIN)/streamlit run app.py

test: $(VENV)/.dev chromium
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

bench: $(VENV)/.dev chromium
	$(BIN)/python -m tests.benchmarks

train: $(VENV)/.app
	$(BIN)/python -m model.training story --text $(TEXT)

$(VENV)/.app: requirements.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

$(VENV)/.dev: requirements-dev.txt $(VENV)/.app
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

# Debian's package where there is apt and the right to use it, else playwright's own
chromium: $(VENV)/.dev
	@command -v chromium >/dev/null || \
		(test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium) || \
		$(BIN)/playwright install chromium

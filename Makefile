# Each target creates the virtual environment if there is none, and installs its requirements if they changed. VENV=DIR
# puts it elsewhere, for several clones to share. WORKERS: test processes; more than cores, as some wait for a browser.
PYTHON ?= python3
VENV ?= .venv
TEXT ?= ../shared/data/text
WORKERS ?= 3
BIN := $(VENV)/bin
REQUIREMENTS := requirements.txt $(addprefix requirements-,ray.txt gguf.txt bitsandbytes.txt)

.PHONY: run serve test test-unit audit upgrade-check bench train words chromium redis

run: $(VENV)/.app
	$(BIN)/streamlit run app.py

serve: $(VENV)/.app
	$(BIN)/streamlit run serve.py

# Bytecode is written even if the environment disables it: the suite starts about a hundred processes. mypy's cache
# is kept with the environment, for the next clone too. Tests compare with the CPU's numbers; those of a GPU, if any,
# are `python -m pytest tests/model/test_hardware.py`.
test: export PYTHONDONTWRITEBYTECODE =
test test-unit: export CUDA_VISIBLE_DEVICES =
test: $(VENV)/.dev chromium redis
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --cache-dir $(VENV)/.mypy_cache
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

# Tests that need neither a browser nor many seconds
test-unit: export PYTHONDONTWRITEBYTECODE =
test-unit: $(VENV)/.dev
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow" --ignore tests/browser

audit: $(VENV)/.dev
	.ci/audit $(BIN)

# Install the newest versions of the required packages, except torch, in another environment, and test what is used of
# them besides their documented interfaces: each test names the part of a package that an upgrade has changed
INTERNALS := tests/ui/test_streamlit_internals.py tests/ui/test_cached_messages.py tests/ui/test_session_lock.py \
	tests/ui/test_limits_of_a_session.py \
	tests/model/huggingface/test_huggingface_internals.py \
	tests/serving/test_ray_internals.py tests/browser/test_internals.py
upgrade-check: chromium
	test -x $(VENV)-upgrade/bin/python || $(PYTHON) -m venv $(VENV)-upgrade
	sed -E '/^torch==/!s/==[^ ]+//; /^-r/d' $(REQUIREMENTS) > $(VENV)-upgrade/newest.txt
	grep -E '^(pytest|playwright|axe-playwright)' requirements-dev.txt >> $(VENV)-upgrade/newest.txt
	$(VENV)-upgrade/bin/pip install --quiet --disable-pip-version-check --upgrade -r $(VENV)-upgrade/newest.txt
	$(VENV)-upgrade/bin/python -m pytest --numprocesses 0 $(INTERNALS)

bench: $(VENV)/.bench chromium
	$(BIN)/python -m tests.benchmarks $(BENCH)

train: $(VENV)/.app
	$(BIN)/python -m model.training story --text $(TEXT)

# Update locale/ from the source: new sentences are added without a translation, those that are gone are removed
words: $(VENV)/.dev
	$(BIN)/python -m babel.messages.frontend --quiet extract --mapping-file babel.cfg --no-default-keywords \
		--keywords N_:1 --keywords say:1 --keywords say_count:1,2 --keywords msg:1 --keywords msg_count:1,2 \
		--sort-output --no-location --omit-header \
		--output-file locale/unmask.pot app.py i18n.py model mask_check lessons serving viz ui pages
	$(BIN)/pybabel --quiet update --domain unmask --input-file locale/unmask.pot --output-dir locale \
		--no-fuzzy-matching --ignore-obsolete --width 120
	rm locale/unmask.pot

# These files hold the installed requirements: a clone with the same ones skips pip, which would take ten seconds
$(VENV)/.app: requirements.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	cat $^ | cmp -s - $@ || $(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	cat $^ > $@

$(VENV)/.dev: requirements-dev.txt $(REQUIREMENTS) $(VENV)/.app
	cat $^ | cmp -s - $@ || $(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	cat $^ > $@

# BertViz, and the scripts that its page would fetch from other hosts
$(VENV)/.bench: requirements-bench.txt $(VENV)/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-bench.txt
	npm install --silent --no-audit --no-fund --no-package-lock --prefix $(VENV)/bertviz d3@5.16.0 jquery@2.2.4 requirejs@2.3.8
	touch $@

# Debian's package if apt may be used, else playwright's own browser
chromium: $(VENV)/.dev
	@command -v chromium >/dev/null || \
		(test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium) || \
		$(BIN)/playwright install chromium

# For rooms shared by several replicas. If it is missing and apt may not be used, its tests are skipped with that reason
redis:
	@command -v redis-server >/dev/null || \
		(test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq --no-install-recommends redis-server) || true

# Two commands do everything on a fresh machine: `make run` shows the memory at work,
# `make test` runs what CI runs. Both set themselves up and are quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests start many processes: none is to compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test lint tests sanitize setup browser clean

run: $(READY)
	$(BIN)/mgmem demo

# Both at once: tests that wait for a browser or a killed run leave the cores idle.
test: $(READY) browser
	$(MAKE) --jobs 2 --no-print-directory lint tests

# A kernel's second thread that waits for its first sleeps: workers are more than cores, and one that
# spins takes a core from another.
tests: $(READY)
	OMP_WAIT_POLICY=passive $(BIN)/pytest -n 3 --dist loadgroup --no-loadscope-reorder

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The kernels with every access and every sum checked, on the grid of shapes and with tensors that do
# not fit together. Takes minutes, needs gcc; not part of `make test`. Compiled first without the
# checker's own runtime, which everything that looks at memory needs to be loaded before. Running out
# of memory is left out: the checker itself ends the process then.
SANITIZE := g++ -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g
CHECKERS = $(foreach name,libasan.so libubsan.so libstdc++.so,$(shell g++ -print-file-name=$(name)))
sanitize: $(READY)
	CXX="$(SANITIZE)" $(BIN)/python -c "from mgmem.ops.native import build; \
		build._TIMEOUT = 3600; build.library_path()"
	CXX="$(SANITIZE)" LD_PRELOAD="$(CHECKERS)" ASAN_OPTIONS=detect_leaks=0 \
		$(BIN)/pytest --capture=sys -p no:xdist -p no:faulthandler tests/ops/test_configurations.py \
		tests/ops/test_native.py tests/ops/test_narrow.py tests/ops/test_trust.py \
		tests/ops/test_transforms.py \
		-k "not compiler and not build and not fork and not out_of_memory"

setup: $(READY)

# The page is tested in a real browser where there is one; where it can be installed, it is.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  { apt-get update -qq && apt-get install -y -qq chromium; } >/dev/null 2>&1; } || \
	  echo "no chromium here: the page's browser tests are skipped"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache

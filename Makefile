# make train    trains the bundled scene on whatever this machine has     make train ARGS="dataset=lego"
# make test     runs the tests of minutes                                 make test ARGS="tests/ops -x"
# make test-all runs all tests: these, and those that train for longer, start every script or try each page of docs/
# make fuzz     feeds damaged files to what reads them, fails disks under commands, and calls every operation with the worst of
#               arguments under the sanitizers of g++, for an hour or more        make fuzz CASES=1000
# make docs     builds the site of docs/ into build/docs; a broken link fails it
# make wheel    packs the last commit as one wheel, for every Python, PyTorch and GPU generation, into build/wheel
# make wheel-matrix    installs that wheel under several Pythons and PyTorches, gigabytes each, runs its commands and
#               compiles the sources with each PyTorch's headers
# make clean    removes what these made, except the runs in outputs/
#
# All of them install everything into .venv first, once. pip is used as it is configured on this machine: where its index
# offers PyTorch's CPU build too, a machine without a GPU saves gigabytes.

TORCH = torch==2.13.0
PYTHON = python3
EXTRAS = test
ARGS =
CASES = 10000
FUZZERS = tests/fuzz/readers.py tests/fuzz/faults.py tests/fuzz/ops.py
# Processes of one thread each: as most tensors of the tests are tiny, two such processes take half the time of one
# with two threads. The third works where others wait for a browser, a compiler or the end of another process: a twelfth
# less on two cores. A file's tests stay together and share what they trained. Files go in the order of their names, by
# which tests/unit, the many quick ones, come last: no process waits long for the last file of another.
WORKERS = 3

VENV_PYTHON = .venv/bin/python
WHEEL_ARCHS = 75 80 86 89 90 100 120

PIP_INSTALL = $(VENV_PYTHON) -m pip --disable-pip-version-check install
PYTEST = OMP_NUM_THREADS=1 $(VENV_PYTHON) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: train test test-all fuzz docs wheel wheel-matrix clean

train: .venv/.installed
	@$(VENV_PYTHON) scripts/train.py $(ARGS)

test: .venv/.installed
	@$(PYTEST) -m "not slow" $(ARGS)

test-all: .venv/.installed
	@$(PYTEST) $(ARGS)

fuzz: .venv/.installed
	@for program in $(FUZZERS); do OMP_NUM_THREADS=1 $(VENV_PYTHON) $$program $(CASES) || exit 1; done
	@NERF_REPEATS=300 $(PYTEST) tests/ops/test_repeatable.py tests/ops/test_repeatable_cuda.py

docs: .venv/.docs
	@NO_MKDOCS_2_WARNING=1 $(VENV_PYTHON) -m mkdocs build --strict

wheel: .venv/.installed
	@rm -rf build/wheel && mkdir -p build/wheel/tree && git archive HEAD | tar x -C build/wheel/tree
	@NERF_CUDA_ARCHS="$(WHEEL_ARCHS)" $(VENV_PYTHON) cuda_ext/wheel.py build/wheel build/wheel/tree

wheel-matrix: wheel
	@$(VENV_PYTHON) cuda_ext/wheel_matrix.py build/wheel/*.whl $(ARGS)

# Of the package that is installed: naming the checkout would install that again.
.venv/.docs: .venv/.installed
	$(PIP_INSTALL) "nerf-voxel[docs]"
	@touch $@

# The library is compiled against the PyTorch that is there by then: so no build isolation. Meanwhile pip brings the
# rest, for which it needs one core.
.venv/.installed: Makefile pyproject.toml setup.py | $(VENV_PYTHON)
	$(PIP_INSTALL) $(TORCH) "setuptools>=77" ninja
	$(VENV_PYTHON) cuda_ext/build.py & \
	NERF_BUILD=0 $(PIP_INSTALL) --no-build-isolation -e ".[$(EXTRAS)]"; installed=$$?; wait $$! && exit $$installed
	@$(with_cuda_compiler)
	@touch $@

$(VENV_PYTHON):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "error: Python 3.10 or newer is needed; name one with: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv --clear .venv || { rm -rf .venv; \
	  echo "error: no virtual environment; Debian and Ubuntu have it in a package: apt install python3-venv" >&2; exit 1; }

# A GPU whose driver works, but no nvcc: gets nvcc as a wheel and builds the library again, now with its CUDA code.
# Without success the GPU still runs the PyTorch backend, and training says what is missing.
define with_cuda_compiler
if nvidia-smi > /dev/null 2>&1 && ! $(VENV_PYTHON) cuda_ext/build.py --nvcc; then \
  $(PIP_INSTALL) --no-build-isolation -e ".[cuda]" && $(VENV_PYTHON) cuda_ext/build.py || \
    echo "note: no CUDA code in the native library; the GPU will run the PyTorch backend" >&2; \
fi
endef

clean:
	rm -rf .venv build nerf/ops/libnerf.so nerf_voxel.egg-info .pytest_cache .ruff_cache
	find nerf cuda_ext scripts data tests -name __pycache__ -prune -exec rm -rf {} +

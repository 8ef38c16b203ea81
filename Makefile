# SPDX-License-Identifier: BSD-3-Clause
# Short names for what CMake, ctest and scripts/ do. `make help` lists them.
.DEFAULT_GOAL := build
.PHONY: build wheel sim demo test gpu-check ci bench accuracy lint format fuzz install uninstall clean help

JOBS ?= $(shell nproc 2>/dev/null || echo 2)
FUZZ_SECONDS ?= 600
PREFIX ?= /usr/local
RESULT ?=
CMAKE_GENERATOR ?= $(if $(shell command -v ninja 2>/dev/null),Ninja,Unix Makefiles)
export CMAKE_GENERATOR
# The Python package, for the interpreter that scripts/setup prepares for tests.
PYTHON_OPTIONS := -DFA3_BUILD_PYTHON=ON -DPython_EXECUTABLE=$(CURDIR)/build/python/bin/python
# One word of the shell, whatever is in it. DESTDIR gets there as an environment variable.
quoted = '$(subst ','\'',$(1))'
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)
export CTEST_PARALLEL_LEVEL ?= $(JOBS)

build: ## library and command: build/release/bin/fa3
	@scripts/setup build
	@cmake --preset release
	@cmake --build --preset release --target fa3 fa3_cli fa3_conformance

wheel: ## the Python package, built in an isolated environment: build/dist/fa3-….whl
	@scripts/setup build
	@python3 -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/dist .

sim: ## the simulator of Hopper GPUs: build/release/lib/libfa3_sim.so
	@scripts/setup build sim
	@cmake --preset release -DFA3_BUILD_SIM=ON
	@cmake --build --preset release --target fa3_sim

demo: build ## attention on tensors of a real transformer, compared with the model's own output
	@scripts/demo

test: ## every tier of tests on the release build, at most 5 minutes
	@scripts/setup build test
	@cmake --preset release -DFA3_BUILD_TESTS=ON $(PYTHON_OPTIONS)
	@cmake --build --preset release
	@ctest --preset release || { status=$$?; \
	  cp build/release/Testing/Temporary/LastTest.log build/failed-tests.log; \
	  echo "make test: the output of what failed is above, that of every test in build/failed-tests.log"; \
	  exit $$status; }

gpu-check: ## build/gpu-check.tar.gz, to carry to a Hopper GPU: every check there, and speed beside PyTorch
	@scripts/setup build test
	@cmake --preset release -DFA3_BUILD_TESTS=ON
	@cmake --build --preset release --target fa3_gpu_check
	@bench/gpu_check/bundle.py

ci: ## clang with -Werror and sanitizers, fuzzers, what `make test` leaves out: before a merge
	@scripts/setup build test ci
	@scripts/ci

bench: build ## speed beside PyTorch on this machine (a virtual environment under build/, 6 GB)
	@scripts/setup build bench
	@bench/run

accuracy: ## errors against FP64 on inputs with outliers, the GPU kernel simulated; in RESULT as JSON lines too
	@scripts/setup build sim bench
	@cmake --preset release -DFA3_BUILD_SIM=ON -DFA3_BUILD_BENCH=ON
	@cmake --build --preset release --target fa3_sim fa3_accuracy
	@build/release/bin/fa3_accuracy $(call quoted,$(RESULT)) --commit "$$(bench/machine.py)"

lint: ## the rules of CONTRIBUTING.md that a script can check
	@scripts/setup build ci
	@cmake --preset release >/dev/null
	@scripts/lint

format: ## clang-format over the tree
	@scripts/setup build ci
	@git ls-files '*.h' '*.hpp' '*.c' '*.cpp' | xargs clang-format -i

fuzz: ## each fuzzer for FUZZ_SECONDS (600)
	@scripts/setup build test ci
	@scripts/fuzz $(FUZZ_SECONDS)

install: build ## into PREFIX (/usr/local), staged below DESTDIR, with the simulator if `make sim` has built it
	@cmake --build --preset release --target fa3_installed
	@cmake --install build/release --prefix $(call quoted,$(PREFIX))

uninstall: ## what `make install` put there, given the same PREFIX and DESTDIR
	@scripts/uninstall $(call quoted,$(PREFIX))

clean: ## forget every build
	@rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

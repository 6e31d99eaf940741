# `make demo` and `make test` do everything from a fresh clone: environment, installation, run.
PYTHON ?= python3
BIN := .venv/bin
QUESTION ?= What does os.path.join do?
# For two cores: tests wait now and then
WORKERS ?= 3
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist loadfile
# Parts of llama.cpp that nobody here uses are more than half of compiling it: image projectors, and what its programs
# share, which llama-cpp-python switches on after all options, so that only a file can switch it off again
LEAN := .venv/llama.cmake

.PHONY: demo test test-slow test-all test-real test-pair test-vulkan test-arm check fmt prove clean

demo: .venv/run
	$(BIN)/slipstream run -m demo "$(QUESTION)" --stats

test: check
	$(PYTEST)

test-slow: .venv/dev # what `make test` leaves out, but for public weights and GPUs
	$(PYTEST) -m "slow and not real and not pair and not device"

test-all: test test-slow

test-real: .venv/dev # skips with a sentence where the weights cannot be fetched
	$(BIN)/pytest -m real tests/real

test-pair: .venv/dev # a target of 1.5B parameters with a draft model of its family, 1.6 GB in 28 packages
	$(BIN)/pytest -m pair tests/pair

# Libraries with Vulkan are built once with `$(BIN)/python -m bench.build vulkan $(VULKAN)`; skips with a sentence without them
VULKAN ?= $(HOME)/.cache/slipstream/vulkan
test-vulkan: .venv/dev
	$(if $(wildcard $(VULKAN)/build/bin),LLAMA_CPP_LIB_PATH=$(VULKAN)/build/bin GGML_VK_VISIBLE_DEVICES=0) \
	$(BIN)/pytest -m device tests/device

# An emulated machine of its own; skips with a sentence where that cannot be. `ARM_ARCH=armv8-a` is an older processor
test-arm: .venv/dev
	tests/arm/run.sh

check: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

prove: .venv/dev
	$(BIN)/python -m bench.prove
	$(BIN)/python -m bench.architectures

fmt: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/run: export CMAKE_ARGS := -DLLAVA_BUILD=OFF '-DCMAKE_PROJECT_llama.cpp_INCLUDE=$(CURDIR)/$(LEAN)' $(CMAKE_ARGS)
.venv/run: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	echo 'set(LLAMA_BUILD_COMMON OFF)' > $(LEAN)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/dev: .venv/run
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist

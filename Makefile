# The usual ways in; the build itself is described in CMakeLists.txt.
BUILD := build/release
JOBS := $(shell nproc)
PREFIX ?= /usr/local
DESTDIR ?=
PARTS ?=
ARGS ?=

MAKEFLAGS += --no-print-directory

.PHONY: help run test lint install bench-table gpu-test gpu-bench clean

help:
	@echo "make run          train a small mixture-of-experts language model on the CPU (ARGS=... go to the example)"
	@echo "make test         everything that proves the library; PARTS='release asan' runs these parts alone"
	@echo "make lint         checks of the sources, and a build with clang"
	@echo "make install      header, libraries, command, manual page (PREFIX=$(PREFIX), DESTDIR=)"
	@echo "make bench-table  measure on this machine and write the table of the README"
	@echo "make gpu-test     what proves the library on this machine's GPU; PARTS='order shapes' runs tests of these names"
	@echo "make gpu-bench    measure this machine's GPU against cuBLAS and PyTorch (ARGS='--part layer', --quick, ...)"
	@echo "make clean        remove build/"

run:
	@scripts/install-dependencies run
	@$(MAKE) release
	$(BUILD)/examples/train_moe $(ARGS)

test:
	@scripts/install-dependencies test
	@scripts/run-tests $(PARTS)

lint:
	@scripts/install-dependencies test
	@scripts/lint

install: release
	@cmake --install $(BUILD) --prefix $(PREFIX)

bench-table: release
	@bench/table.py --command $(BUILD)/cli/megamoe --readme README.md

gpu-test:
	@scripts/gpu-test $(PARTS)

gpu-bench:
	@scripts/gpu-bench $(ARGS)

clean:
	rm -rf build

# Warnings are errors in `make test`; a newer compiler's new warning stops nobody here.
.PHONY: release
release:
	@cmake -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=Release -DMMOE_WERROR=OFF -DMMOE_TESTS=OFF >/dev/null
	@cmake --build $(BUILD) -j$(JOBS)

# Every target makes its own set-up: on Debian, as root, the packages that are lacking; then .venv.
.DEFAULT_GOAL := help
.PHONY: help demo test test-rest test-all coverage fuzz wild hidden compare advice matrix arm64 matrix-clean bench soak kernel single dist deb release changelog lint docs screenshots site packs clean

SETUP := bash tools/setup_machine.sh
PYTHON := .venv/bin/python
KERNEL := gdbheapx/kernel/_kernel.so

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1 - /p' Makefile

demo: ## a server that hoards memory, examined live and from its core, then trimmed
	@$(SETUP) demo
	@$(PYTHON) -m demo.run

# One worker for each CPU and one more, as in make matrix: tests wait for processes.
WORKERS := -n $$(($$(nproc) + 1)) --dist worksteal
test: ## unit tests, each command live and on a core, what the allocators themselves say, the documentation's samples: 8 minutes on 2 CPUs; COVERED=1: and make coverage's table
	@$(SETUP) test
	@$(if $(COVERED),PYTEST_PLUGINS=tools.covered) $(PYTHON) -m tools.run_tests -q $(WORKERS) $(PYTEST) -m "first and not wild" tests

test-rest: ## every test that is not in make test, nor in make wild: processes at work and under load, damage, third-party programs
	@$(SETUP) test
	@$(PYTHON) -m tools.run_tests -q $(WORKERS) $(PYTEST) -m "not first and not wild" tests

test-all: test test-rest ## make test, then make test-rest: 25 minutes on 2 CPUs; the other releases: make matrix

coverage: ## one table: how much of each folder of the product the unit tests run in their own process
	@$(SETUP) test
	@PYTEST_PLUGINS=tools.covered $(PYTHON) -m pytest -q -n auto --dist worksteal --hypothesis-profile=fast -m "not slow and not wild" tests/unit tests/addons/*/unit

fuzz: ## structures that contradict themselves, for ten minutes: ELF, cores, debug information, call frames, lists of objects, snapshots; FUZZ_SECONDS=60
	@$(SETUP) test
	@end=$$(($$(date +%s) + $${FUZZ_SECONDS:-600})); while [ $$(date +%s) -lt $$end ]; do GDBHEAPX_FUZZ=1 $(PYTHON) -m pytest -q -x -p no:cacheprovider tests/fuzz || exit 1; done

wild: ## large third-party programs, a hundred damaged cores, heaps over 200 MB: one at a time, with a table; then make hidden
	@$(SETUP) test
	@$(PYTHON) -m tools.wild

hidden: ## the reading tests with symbols and libraries hidden from the tool, then gdb, too, with what each expects less
	@$(SETUP) test
	@$(PYTHON) -m tools.wild --hidden

matrix: ## tests that depend on libc, gdb or Python, in an image of each Debian release of docker/matrix.py; SUITES="bullseye sid" for some
	@$(SETUP) matrix
	@$(PYTHON) docker/run_matrix.py $(addprefix --suite ,$(SUITES)) $(addprefix --tested ,$(TESTED))

arm64: ## what can differ on aarch64, in an emulated machine with Debian's kernels of 4 and of 16 KiB pages; BOOTS=16k for one, WHOLE=1 for more
	@$(SETUP) arm64
	@$(PYTHON) -m tools.arm_machine $(if $(WHOLE),--whole) test $(BOOTS)

matrix-clean: ## remove the images of the matrix
	@$(SETUP) matrix
	@$(PYTHON) docker/run_matrix.py --clean

bench: ## the figures of docs/reference/scale.md, and stops for heaps that are hard to read, with their limits; BENCH_ONLY=NAME,NAME for some
	@$(SETUP) demo
	@$(PYTHON) -m bench.run

advice: ## what each setting that is advised does to programs of known shapes: docs/reference/advice.md, and what the product advises; five minutes
	@$(SETUP) test
	@$(PYTHON) -m bench.advice

compare: ## what this checkout answers against another one, on the same processes and cores: make compare OLD=DIR; RUNS=9: what it costs
	@$(SETUP) test
	@$(PYTHON) -m bench.compare "$(OLD)" $(RUNS)

soak: ## 1,000 trims and 1,000 purges of a server that checks itself, 100 purges of redis-server; ROUNDS=N for others; ONLY=looks-redis, ONLY=looks-java: looks alone
	@$(SETUP) test
	@$(PYTHON) -m bench.soak $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ONLY),--only $(ONLY))

$(KERNEL): $(wildcard gdbheapx/kernel/*.[ch])
	@$(SETUP) demo
	@$(PYTHON) gdbheapx/kernel/build.py

kernel: ## build the C kernel in the checkout
	@$(SETUP) demo
	@$(PYTHON) gdbheapx/kernel/build.py

single: ## one file that gdb's `source` accepts and Python runs, for hosts where nothing can be installed; WITH=views,monitor for these add-ons alone, WITH=none for none
	@$(SETUP) demo
	@$(PYTHON) -m tools.make_single $(if $(WITH),--with $(WITH))

dist: ## sdist, a wheel with the kernel for each machine whose compiler is here; in dist/, tried in venvs
	@$(SETUP) dist
	@$(PYTHON) -m tools.make_dist

deb: ## Debian's package, built and tried in the image of each release of docker/matrix.py; SUITES="bookworm sid" for some; ARM64=1: for arm64, too
	@$(SETUP) dist
	@$(PYTHON) docker/make_deb.py $(addprefix --suite ,$(SUITES)) $(if $(ARM64),--arm64)

release: ## all of a release but the upload, in dist/: sdist, wheels, the one file, packages, the image, a bill of materials, SHA256SUMS
	@$(SETUP) dist
	@$(PYTHON) -m tools.make_release

SITE := NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --clean --config-file tools/mkdocs.yml
lint: ## ruff, mypy, vermin, and the site where its package can be installed
	@$(SETUP) test
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m mypy --strict gdbheapx commands
	@.venv/bin/vermin -q --no-tips -t=3.9- --violations gdbheapx commands
	@if $(PYTHON) -c "import material" 2>/dev/null; then $(SITE); else echo "site: skipped, mkdocs-material is not installed"; fi

docs: ## reference, man page and completion from the declarations of the commands, docs/reference/support.md from docker/matrix.py
	@$(SETUP) test
	@$(PYTHON) -m tools.make_reference
	@$(PYTHON) -m tools.make_api_reference
	@$(PYTHON) -m tools.make_support
	@$(PYTHON) -m tools.make_manual
	@$(PYTHON) -m tools.make_completion

screenshots: ## the pictures in docs/images, of the demo's server and of a service in Python; requires Chromium
	@$(SETUP) test
	@$(PYTHON) -m tools.make_screenshots

site: ## docs/ as pages for a browser, in build/site; a broken link is an error
	@$(SETUP) test
	@$(SITE)

changelog: ## a release's section of CHANGELOG.md from changelog.d, and the version everywhere: make changelog VERSION=1.0.1
	@$(SETUP) test
	@$(PYTHON) -m tools.make_changelog "$(VERSION)"

DEBUG := tests/data/jemalloc tests/data/glibc
packs: ## rebuild the included packs; DEBUG=DIR from other debug files, STOCK=LIBRARY for those outside DIR/.build-id and for a libc
	@$(SETUP) test
	@$(PYTHON) -m tools.make_packs $(if $(STOCK),--stock $(STOCK)) $(DEBUG)

clean: ## remove what was built
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis gdbheapx-single.py
	find . -name __pycache__ -prune -exec rm -rf {} +
	find gdbheapx -name '*.so' -delete
